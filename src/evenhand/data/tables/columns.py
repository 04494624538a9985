"""What columns become: standardised numbers, and 0/1 features for levels, for parts of a date and for gaps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Booleans, Integers
from evenhand.data.tables.raw import DATE, LEVEL_TYPES, NUMBER, RawColumn
from evenhand.errors import DataError

Level: TypeAlias = str | int | float | bool
Missing: TypeAlias = Literal["refused", "unseen", "seen"]
"""What is done about gaps: they are refused, or taken though the rows of fit had none, or as those rows had them."""

PARTS: Final[dict[str, tuple[str, ...]]] = {
    "month": tuple(map(str, range(1, 13))),
    "weekday": ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
    "hour": tuple(map(str, range(24))),
}
"""Parts of the calendar, and what each can be."""


@dataclass(frozen=True)
class NumberColumn:
    """A number, or a date as days since 1970: (x - mean) / scale, with `fill` in place of x where it is missing."""

    name: str
    mean: float
    scale: float
    missing: Missing = "refused"
    fill: float = 0.0
    kind: str = NUMBER

    @property
    def width(self) -> int:
        return 1

    @property
    def names_out(self) -> list[str]:
        return [self.name]

    def values(self, raw: RawColumn) -> Array:
        """Return the standardised values."""
        raw.require(self.kind)
        if self.missing == "refused":
            raw.refuse_gaps()
        if raw.kind is None:
            return np.full(len(raw.series), (self.fill - self.mean) / self.scale)
        found = np.where(raw.gaps, self.fill, raw.numbers) if raw.gaps.any() else raw.numbers
        with np.errstate(over="ignore", invalid="ignore"):
            values = (found - self.mean) / self.scale
        if not np.isfinite(values).all():
            raise DataError(f"column {self.name!r}: values lie too far from those it was fitted on; rescale them")
        return values

    def to_state(self) -> dict[str, Any]:
        state = {"name": self.name, "kind": self.kind, "mean": self.mean, "scale": self.scale, "missing": self.missing}
        return state if self.missing == "refused" else {**state, "fill": self.fill}


@dataclass(frozen=True)
class LevelColumn:
    """A categorical column with the levels kept at fit; `kind` is a key of the level types.

    Behind the levels come a place for all `other` values, if there is one, and one for gaps, if they were seen.
    """

    name: str
    kind: str
    levels: tuple[Level, ...]
    missing: Missing = "refused"
    other: bool = False

    @property
    def width(self) -> int:
        return len(self.levels) + self.other + (self.missing == "seen")

    @property
    def names_out(self) -> list[str]:
        more = [*(["another"] if self.other else []), *(["missing"] if self.missing == "seen" else [])]
        return [*(f"{self.name}={level}" for level in self.levels), *(f"{self.name} is {one}" for one in more)]

    @cached_property
    def _index(self) -> pd.Index:
        return pd.Index(list(self.levels))

    def codes(self, raw: RawColumn) -> Integers:
        """Return each row's place among the levels, -1 for a value not seen at fit."""
        if self.missing == "refused":
            raw.refuse_gaps()
        if not self.levels:
            # Nothing was learned of it: whatever it holds now says nothing.
            found = np.full(len(raw.series), -1, dtype=np.int64)
        else:
            raw.require(self.kind)
            found = self._places(raw)
        if self.other:
            found[(found < 0) & ~raw.gaps] = len(self.levels)
        if self.missing == "seen":
            found[raw.gaps] = self.width - 1
        return found

    def _places(self, raw: RawColumn) -> Integers:
        series = raw.series
        if isinstance(series.dtype, pd.CategoricalDtype):
            # Look the few categories up, not the many rows; the place behind the last is that of gaps.
            places = np.append(self._index.get_indexer(series.cat.categories), -1)
            return np.asarray(places[series.cat.codes.to_numpy()], dtype=np.int64)
        found = np.full(len(series), -1, dtype=np.int64)
        if (there := ~raw.gaps).any():
            found[there] = self._index.get_indexer(pd.Index(plain_levels(series if there.all() else series[there])))
        return found

    def unseen(self, raw: RawColumn) -> Booleans:
        """Which rows have a value that was not there at fit."""
        if not self.levels or raw.kind is None:
            return np.zeros(len(raw.series), dtype=bool)
        return (self._places(raw) < 0) & ~raw.gaps

    def to_state(self) -> dict[str, Any]:
        state = {"name": self.name, "kind": self.kind, "levels": list(self.levels), "missing": self.missing}
        return {**state, "other": True} if self.other else state


@dataclass(frozen=True)
class PartColumn:
    """A part of a date: month, day of the week, or hour. A gap is none of them."""

    name: str
    part: str

    @property
    def width(self) -> int:
        return len(PARTS[self.part])

    @property
    def names_out(self) -> list[str]:
        return [f"{self.name} {self.part}={one}" for one in PARTS[self.part]]

    def codes(self, raw: RawColumn) -> Integers:
        raw.require(DATE)
        found = np.full(len(raw.series), -1, dtype=np.int64)
        if raw.kind is None:
            return found
        there = ~raw.gaps
        days = np.floor(raw.numbers[there])
        if self.part == "month":
            moments = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
            found[there] = moments % 12
        elif self.part == "weekday":
            # The first of January 1970 was a Thursday.
            found[there] = (days.astype(np.int64) + 3) % 7
        else:
            found[there] = _hours(raw.numbers[there])
        return found

    def to_state(self) -> dict[str, Any]:
        return {"name": self.name, "kind": "part", "part": self.part}


@dataclass(frozen=True)
class GapColumn:
    """1 where a number or date is missing."""

    name: str

    @property
    def width(self) -> int:
        return 1

    @property
    def names_out(self) -> list[str]:
        return [f"{self.name} is missing"]

    def codes(self, raw: RawColumn) -> Integers:
        return np.where(raw.gaps, 0, -1)

    def to_state(self) -> dict[str, Any]:
        return {"name": self.name, "kind": "gap"}


Column: TypeAlias = NumberColumn | LevelColumn | PartColumn | GapColumn


def has_hours(days: Array) -> bool:
    """Whether dates come with a time of day."""
    return bool((days != np.floor(days)).any())


def _hours(days: Array) -> Integers:
    # Days are rounded: what is less than half a microsecond before the hour is the hour.
    return (np.floor((days - np.floor(days)) * 24 + 1.4e-10).astype(np.int64)) % 24


def standardised(name: str, low: float, high: float, mean: float, deviation: float) -> tuple[float, float]:
    """Mean and scale of a column, given its range, mean and population standard deviation."""
    if low == high:
        # The rounded mean of a constant may miss it, and a tiny deviation would blow that up to one.
        return low, 1.0
    if not math.isfinite(deviation):
        raise DataError(f"column {name!r}: values from {low:g} to {high:g} are too large to standardise; rescale them")
    return mean, deviation or 1.0


def count_levels(raw: RawColumn) -> dict[Level, int]:
    """Every level with the number of its rows, sorted; a category's declared levels count even without rows."""
    assert raw.kind is not None
    series = raw.series[~raw.gaps] if raw.gaps.any() else raw.series
    counts = plain_levels(series).value_counts(sort=False)
    cast = LEVEL_TYPES[raw.kind]
    levels = {cast(level): int(count) for level, count in sorted(zip(counts.index.tolist(), counts, strict=True))}
    if raw.kind == "decimal" and not all(math.isfinite(level) for level in levels):
        raise DataError(f"column {raw.name!r}: an infinite number cannot be a category")
    return levels


def plain_levels(series: pd.Series) -> pd.Series:
    # A nullable boolean column without gaps looks levels up faster, and like any other, as plain booleans.
    return series.astype(bool) if _is_boolean(series) else series


def _is_boolean(series: pd.Series) -> bool:
    if pd.api.types.is_bool_dtype(series.dtype):
        return not isinstance(series.dtype, pd.CategoricalDtype)
    return series.dtype == object and len(series) > 0 and isinstance(series.iloc[0], (bool, np.bool_))
