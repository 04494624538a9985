"""An encoder's state as plain JSON values, taken back only if an encoder could have written it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from evenhand.arrays import Array
from evenhand.data.tables.columns import PARTS, Column, GapColumn, Level, LevelColumn, NumberColumn, PartColumn
from evenhand.data.tables.raw import DATE, LEVEL_TYPES, NUMBER
from evenhand.errors import DataError

VERSION: Final = 1
_WIDEST: Final = 2**31 - 1


@dataclass(frozen=True)
class Learned:
    """What an encoder has learned: named columns, or the width of a sparse matrix and perhaps its divisors.

    Columns that are taken `as_is` are one feature each.
    """

    scale: bool
    columns: tuple[Column, ...] | None = None
    width: int | None = None
    divisors: Array | None = None
    as_is: bool = False

    def to_state(self) -> dict[str, Any]:
        head: dict[str, Any] = {"version": VERSION, "scale": self.scale}
        if self.divisors is not None:
            return {**head, "divisors": self.divisors.tolist()}
        if self.columns is None:
            return {**head, "unscaled": self.width}
        kept = {"as_is": True} if self.as_is else {}
        return {**head, **kept, "columns": [column.to_state() for column in self.columns]}


def from_json(content: bytes) -> Any:
    """Plain values from JSON; too deep a nesting is an error like any other."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"this is not the state of an encoder: it cannot be read as JSON ({error})") from error


def learned_from_state(state: Any) -> Learned:
    """Take a state back."""
    version: Any = state.get("version") if isinstance(state, dict) else None
    _require(type(version) is int, "version", "a number")
    if version != VERSION:
        raise DataError(
            f"the encoder's state has version {version}; this evenhand reads version {VERSION}: use the evenhand that "
            "wrote it"
        )
    scale: Any = state.get("scale")
    _require(isinstance(scale, bool), "scale", "true or false")
    if "divisors" in state:
        _require_keys(state, ("version", "scale", "divisors"), "the state")
        _require(scale and isinstance(state["divisors"], list), "divisors", "a list, of an encoder that scales")
        divisors = np.array([_number(one, "divisors", positive=True) for one in state["divisors"]], dtype=np.float64)
        return Learned(scale, width=divisors.size, divisors=divisors)
    if "unscaled" in state:
        _require_keys(state, ("version", "scale", "unscaled"), "the state")
        width = state["unscaled"]
        _require(not scale and type(width) is int and 0 <= width <= _WIDEST, "unscaled", f"a count up to {_WIDEST:,}")
        return Learned(scale, width=width)
    as_is = "as_is" in state
    _require_keys(state, ("version", "scale", *(["as_is"] if as_is else []), "columns"), "the state")
    _require(not as_is or (state["as_is"] is True and not scale), "as_is", "true, of an encoder that does not scale")
    _require(isinstance(state["columns"], list), "columns", "a list")
    columns = tuple(_column(one, f"columns[{k}]", scale) for k, one in enumerate(state["columns"]))
    features = [feature for column in columns for feature in _told_apart_by(column)]
    _require(len(set(features)) == len(features), "columns", "a list of different names")
    return Learned(scale, columns, as_is=as_is)


def _told_apart_by(column: Column) -> list[tuple[str, str]]:
    if isinstance(column, PartColumn):
        return [(column.name, column.part)]
    return [(column.name, "gap" if isinstance(column, GapColumn) else "")]


def _column(state: Any, where: str, scale: bool) -> Column:
    kind: Any = state.get("kind") if isinstance(state, dict) else None
    if kind in ("part", "gap"):
        name = state.get("name")
        _require(_is_text(name), f"{where}.name", "text")
        _require_keys(state, ("name", "kind", *(["part"] if kind == "part" else [])), where)
        if kind == "gap":
            return GapColumn(name)
        _require(isinstance(state["part"], str) and state["part"] in PARTS, f"{where}.part", "a part of a date")
        return PartColumn(name, state["part"])
    _require(isinstance(state, dict), where, "a column")
    missing, rest = state.get("missing"), dict(state)
    _require(isinstance(missing, str) and missing in ("refused", "unseen", "seen"), f"{where}.missing", "a known rule")
    del rest["missing"]
    other, fill = rest.pop("other", False), 0.0
    _require(isinstance(other, bool), f"{where}.other", "true or false")
    if kind in (NUMBER, DATE) and missing != "refused":
        fill = _number(rest.pop("fill", None), f"{where}.fill")
    column = _plain_column(rest, where, scale)
    if isinstance(column, LevelColumn):
        return replace(column, missing=missing, other=other)
    _require(not other, f"{where}.other", "said of a number")
    return replace(column, missing=missing, fill=fill)


def _plain_column(state: Any, where: str, scale: bool) -> NumberColumn | LevelColumn:
    """Read a column of numbers or levels, without its rules for missing values."""
    kind: Any = state.get("kind") if isinstance(state, dict) else None
    known = kind in (NUMBER, DATE) or (isinstance(kind, str) and kind in LEVEL_TYPES)
    _require(known, f"{where}.kind", "a known kind")
    name = state.get("name")
    _require(_is_text(name), f"{where}.name", "text")
    if kind in LEVEL_TYPES:
        _require_keys(state, ("name", "kind", "levels"), where)
        return LevelColumn(name, kind, levels_from_state(state["levels"], kind, f"{where}.levels"))
    _require_keys(state, ("name", "kind", "mean", "scale"), where)
    mean = _number(state["mean"], f"{where}.mean")
    divisor = _number(state["scale"], f"{where}.scale", positive=True)
    _require(scale or (mean, divisor) == (0.0, 1.0), where, "left as it is, since the encoder does not scale")
    return NumberColumn(name, mean, divisor, kind=kind)


def levels_from_state(levels: Any, kind: Any, where: str) -> tuple[Level, ...]:
    """Levels of a column of that kind, sorted."""
    _require(isinstance(kind, str) and kind in LEVEL_TYPES, f"{where}' kind", "a known kind")
    _require(isinstance(levels, list), where, "a list")
    taken = LEVEL_TYPES[kind]
    for k, level in enumerate(levels):
        # Some JSON writers turn 2.0 into 2: the type is restored from the kind.
        fits = _is_text(level) if taken is str else type(level) in ((int, float) if taken is float else (taken,))
        _require(fits, f"{where}[{k}]", kind)
    cast = [_number(level, where) for level in levels] if taken is float else levels
    _require(all(one < other for one, other in pairwise(cast)), where, "sorted, and no level twice")
    return tuple(cast)


def _number(value: Any, where: str, *, positive: bool = False) -> float:
    _require(type(value) in (int, float), where, "a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    _require(
        number == value and math.isfinite(number) and (number > 0.0 or not positive),
        where,
        "above 0" if positive else "finite",
    )
    return number


def _is_text(value: Any) -> bool:
    """Whether a value is text that can be written: JSON can hold half of a sign of two halves."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _require_keys(state: dict[str, Any], keys: tuple[str, ...], where: str) -> None:
    _require(set(state) == set(keys), where, f"made of {', '.join(keys)}")


def _require(holds: Any, where: str, what: str) -> None:
    if not holds:
        raise DataError(f"this is not the state of an encoder: {where} is not {what}")
