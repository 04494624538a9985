"""Read numbers in text: with a currency, thousands separators, a decimal comma, or words among them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from evenhand.arrays import Array

Decimal: TypeAlias = Literal[".", ","]

_CURRENCIES: Final = r"[€$£¥]|EUR|USD|GBP|CHF|JPY|CNY|INR|SEK|NOK|DKK|PLN|CZK|HUF|CAD|AUD"
_NUMERAL: Final = re.compile(
    rf"([-+]?)\s*(?:{_CURRENCIES})?\s*([-+]?)\s*((?:\d|[.,](?=\d)|['\s](?=\d))+)\s*(?:{_CURRENCIES}|%)?"
)
_THOUSANDS: Final = {sign: re.compile(rf"[1-9]\d{{0,2}}(?:{re.escape(sign)}\d{{3}})+") for sign in ".,' "}
_MOST_WORDS: Final = 0.1


class Numbers(NamedTuple):
    """Numbers read from text.

    Attributes
    ----------
    values
        NaN where a cell is empty or not a number.
    decimal
        The decimal sign.
    words
        Cells that are not numbers, each once.
    """

    values: Array
    decimal: Decimal
    words: tuple[str, ...]


def guessed_numbers(column: pd.Series) -> Numbers | None:
    """Read text as numbers; return None if too many cells are not numbers, or a cell is a code such as 007."""
    cells = [str(cell) for cell in column.dropna().unique()]
    bodies = [body for cell in cells if (body := _body(cell)) is not None]
    if not bodies or any(re.match(r"0\d", body) for _, body in bodies):
        return None
    decimal = _decimal(body for _, body in bodies)
    if decimal is None:
        return None
    found = read_numbers(column, decimal)
    known = int(column.notna().sum())
    return found if int(np.isnan(found.values).sum()) - (len(column) - known) <= _MOST_WORDS * known else None


def read_numbers(column: pd.Series, decimal: Decimal) -> Numbers:
    """Read text as numbers; cells that are not numbers are missing."""
    cells = {cell: _number(str(cell), decimal) for cell in column.dropna().unique()}
    words = tuple(str(cell) for cell, value in cells.items() if value is None)
    values = column.map(cells).to_numpy(dtype=np.float64, na_value=np.nan)
    return Numbers(values, decimal, words)


def read_any_number(cell: str) -> float | None:
    """Return a cell's number with either decimal sign; None if it is no number."""
    found = _number(cell, ".")
    return _number(cell, ",") if found is None else found


def decimal_of(column: pd.Series) -> Decimal | None:
    """Return the decimal sign in text, if some cell shows it and none contradicts it."""
    bodies = [body[1] for cell in column.dropna().unique() if (body := _body(str(cell))) is not None]
    found = _decimals(bodies)
    return next(iter(found)) if len(found) == 1 else None


def example(column: pd.Series, words: Sequence[str]) -> str:
    """Return a cell that shows why the column is not plain numbers."""
    odd = (str(cell) for cell in column.dropna() if not re.fullmatch(r"\s*-?\d+(\.\d+)?\s*", str(cell)))
    return next(odd, words[0] if words else "")


def _body(cell: str) -> tuple[str, str] | None:
    """Return the sign, and the digits with the separators between them."""
    match = _NUMERAL.fullmatch(cell.strip())
    return None if match is None else (match[1] or match[2], match[3])


def _number(cell: str, decimal: Decimal) -> float | None:
    found = _body(cell)
    if found is None:
        return None
    sign, body = found
    body = re.sub(r"\s", " ", body)
    whole, comma, fraction = body.partition(decimal)
    if decimal in fraction or (comma and not fraction.isdecimal()):
        return None
    marks = {mark for mark in whole if not mark.isdecimal()}
    if len(marks) > 1 or (marks and not _THOUSANDS[marks.pop()].fullmatch(whole)):
        return None
    digits = "".join(one for one in whole if one.isdecimal())
    return float(f"{sign}{digits or '0'}.{fraction or '0'}")


def _decimal(bodies: Iterable[str]) -> Decimal | None:
    """Return the decimal sign that the unambiguous cells show; None if they contradict each other."""
    found = _decimals(bodies)
    if len(found) == 2:
        return None
    return "," if found == {","} else "."


def _decimals(bodies: Iterable[str]) -> set[Decimal]:
    found: set[Decimal] = set()
    for body in bodies:
        signs = [sign for sign in body if sign in ".,"]
        if len(set(signs)) == 2:
            found.add("," if signs[-1] == "," else ".")
        elif len(signs) > 1:
            # A sign that occurs twice separates thousands.
            found.add("," if signs[0] == "." else ".")
        elif signs and not _THOUSANDS[signs[0]].fullmatch(body):
            found.add("," if signs[0] == "," else ".")
    return found
