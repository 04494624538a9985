"""Read dates in text, also if a column holds them in several formats."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pandas as pd

# What a cell looks like, and the formats that it can be read in.
_SHAPES: Final = tuple(
    (re.compile(shape), formats)
    for shape, formats in (
        (r"\d{4}-\d{1,2}([-T ].*)?", ("ISO8601",)),
        (r"\d{1,2}\.\d{1,2}\.\d{4}", ("%d.%m.%Y",)),
        (r"\d{1,2}/\d{1,2}/\d{4}", ("%d/%m/%Y", "%m/%d/%Y")),
        (r"\d{1,2}-\d{1,2}-\d{4}", ("%d-%m-%Y",)),
        (r"\d{4}/\d{1,2}/\d{1,2}", ("%Y/%m/%d",)),
        (r"\d{8}", ("%Y%m%d",)),
    )
)


@dataclass(frozen=True, eq=False)
class Dates:
    """Dates read from text.

    Attributes
    ----------
    values
        The date of each cell, by its text.
    formats
        A cell of each format that occurs.
    words
        Cells that are not dates.
    unclear
        Cells that are dates in more than one way, such as 03/04/2020.
    """

    values: dict[str, pd.Timestamp]
    formats: tuple[str, ...]
    words: tuple[str, ...]
    unclear: tuple[str, ...]


def read_dates(cells: Iterable[str]) -> Dates:
    """Read each different cell; all cells of one shape are read in one format."""
    rest = {cell: cell.strip() for cell in cells}
    values: dict[str, pd.Timestamp] = {}
    formats: list[str] = []
    unclear: list[str] = []
    for shape, known in _SHAPES:
        inside = [cell for cell, text in rest.items() if shape.fullmatch(text)]
        if not inside:
            continue
        text = pd.Series([rest[cell] for cell in inside], dtype=object)
        found = [one for form in known if (one := _parsed(text, form)) is not None]
        best = min(found, key=lambda one: int(one.isna().sum()), default=None)
        if best is None:
            continue
        if any(not one.equals(best) and one.isna().sum() == best.isna().sum() for one in found):
            unclear += inside
            continue
        read = {cell: one for cell, one in zip(inside, best, strict=True) if not pd.isna(one)}
        values |= read
        formats += list(read)[:1]
    words = tuple(cell for cell in rest if cell not in values and cell not in unclear)
    return Dates(values, tuple(formats), words, tuple(unclear))


def _parsed(text: pd.Series, form: str) -> pd.Series | None:
    """Return dates without time zones, NaT where a cell is no date; None if no cell is one."""
    try:
        found = pd.to_datetime(text, format=form, errors="coerce")
    except (ValueError, TypeError, OverflowError):
        # Different time zones, for instance.
        return None
    if found.dtype == object or found.isna().all():
        return None
    return found.dt.tz_localize(None) if getattr(found.dtype, "tz", None) is not None else found
