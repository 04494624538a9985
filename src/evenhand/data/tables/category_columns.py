"""Categories (text, booleans, declared categories): one 0/1 feature for each level."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Self, TypeAlias

import numpy as np
import pandas as pd

from evenhand.arrays import Booleans, Integers
from evenhand.data.tables.columns import (
    ID_ROWS,
    MANY_LEVELS,
    Bin,
    Block,
    ColumnSummary,
    EncodedColumn,
    FitRules,
    MissingMode,
    is_text,
    number_from_state,
    require,
    require_keys,
)
from evenhand.data.tables.raw import LEVEL_TYPES, RawColumn
from evenhand.data.tables.suspicions import suspected
from evenhand.errors import DataError
from evenhand.printing import toml_key

Level: TypeAlias = str | int | float | bool


@dataclass(frozen=True)
class CategoryColumn(EncodedColumn):
    """A category with the levels kept at fit.

    After the levels come a feature for all `other` values, if there is one, and one for missing values, if fit saw
    any. A column without levels gives no features: it is an id, or fit saw no value.
    """

    name: str
    level_kind: str
    levels: tuple[Level, ...]
    missing: MissingMode = "refused"
    other: bool = False
    remarks: tuple[str, ...] = ()

    @classmethod
    def empty(cls, name: str, rules: FitRules) -> Self:
        """Return the column of which fit saw no value."""
        said = f"column {name!r} has no value in the training rows: it gives no features"
        return cls(name, "text", (), rules.mode(name, missing=False), remarks=(said,))

    @property
    def kind(self) -> str:
        return self.level_kind

    @property
    def widths(self) -> tuple[int, ...]:
        return (len(self.levels) + self.other + (self.missing == "seen"),)

    def feature_names(self, as_is: bool) -> list[str]:
        if as_is:
            return [self.name]
        more = [*(["another"] if self.other else []), *(["missing"] if self.missing == "seen" else [])]
        return [*(f"{self.name}={level}" for level in self.levels), *(f"{self.name} is {one}" for one in more)]

    def bins(self) -> list[Bin]:
        more = [*(["another"] if self.other else []), *(["missing"] if self.missing == "seen" else [])]
        return [
            Bin(str(one), unit, unit) for one, unit in zip([*self.levels, *more], np.eye(self.widths[0]), strict=True)
        ]

    def encode(self, raw: RawColumn) -> list[Block]:
        if self.missing == "refused":
            raw.refuse_missing()
        if not self.levels:
            codes = np.full(len(raw.series), -1, dtype=np.int64)
        else:
            raw.require(self.kind)
            codes = self._codes(raw)
        if self.other:
            codes[(codes < 0) & ~raw.missing] = len(self.levels)
        if self.missing == "seen":
            codes[raw.missing] = self.widths[0] - 1
        return [codes]

    @cached_property
    def _index(self) -> pd.Index:
        return pd.Index(list(self.levels))

    def _codes(self, raw: RawColumn) -> Integers:
        """Return each row's place among the levels, -1 for a missing value or one not seen at fit."""
        series = raw.series
        if isinstance(series.dtype, pd.CategoricalDtype):
            # Look up the few categories, not the many rows. Code -1, a missing value, takes the last place.
            places = np.append(self._index.get_indexer(series.cat.categories), -1)
            return np.asarray(places[series.cat.codes.to_numpy()], dtype=np.int64)
        found = np.full(len(series), -1, dtype=np.int64)
        if (there := ~raw.missing).any():
            found[there] = self._index.get_indexer(pd.Index(_plain(series if there.all() else series[there])))
        return found

    def unseen(self, raw: RawColumn) -> Booleans:
        """Tell which rows have a value that fit did not see."""
        if not self.levels or raw.kind is None:
            return np.zeros(len(raw.series), dtype=bool)
        return (self._codes(raw) < 0) & ~raw.missing

    def to_state(self) -> dict[str, Any]:
        state = {"name": self.name, "kind": self.kind, "levels": list(self.levels), "missing": self.missing}
        return {**state, "other": True} if self.other else state

    @classmethod
    def from_state(cls, state: Mapping[str, Any], where: str) -> Self:
        """Read a column; refuse a state that an encoder could not have written."""
        other = ["other"] if "other" in state else []
        require_keys(state, ("name", "kind", "levels", "missing", *other), where)
        require(not other or state["other"] is True, f"{where}.other", "true")
        levels = _levels_from_state(state["levels"], state["kind"], f"{where}.levels")
        return cls(state["name"], state["kind"], levels, state["missing"], bool(other))


@dataclass(frozen=True)
class CategorySummary(ColumnSummary):
    """The levels of a category with the number of rows of each, and whether no two rows have the same level.

    `own_text` tells whether the levels are cells of the owner's own table that nobody has declared a category.
    """

    counts: Mapping[Level, int] = field(default_factory=dict)
    unique: bool = True
    own_text: bool = False

    @classmethod
    def of(cls, raw: RawColumn) -> CategorySummary:
        """Summarise rows; the levels that a pandas category declares count even without rows."""
        counts = _count_levels(raw)
        declared = isinstance(raw.series.dtype, pd.CategoricalDtype)
        unique = not declared and set(counts.values()) == {1}
        missing, own = int(raw.missing.sum()), raw.kind == "text" and not declared
        rows = max(len(raw.series) - missing, 1)
        return cls(raw.name, raw.kind, rows, missing > 0, counts=counts, unique=unique, own_text=own)

    def _merge_values(self, other: CategorySummary) -> CategorySummary:
        counts = dict(self.counts)
        for level, count in other.counts.items():
            counts[level] = counts.get(level, 0) + count
        unique = self.unique and other.unique and self.counts.keys().isdisjoint(other.counts.keys())
        own = self.own_text and other.own_text
        return replace(self, rows=self.rows + other.rows, counts=counts, unique=unique, own_text=own)

    def fitted(self, rules: FitRules) -> CategoryColumn:
        """Return the column with its levels, the most frequent ones if there are more than `max_levels`.

        An id gives no features.
        """
        assert self.kind is not None
        levels, most = sorted(self.counts), rules.max_levels
        column = CategoryColumn(self.name, self.kind, tuple(levels), rules.mode(self.name, self.missing))
        looks = suspected(self.name, self.counts) if self.own_text else None
        if looks is not None and looks.kind != "leave out":
            return replace(column, remarks=(looks.said,))
        if self.unique and self.kind == "text" and len(levels) >= ID_ROWS:
            said = (
                f"column {self.name!r} has another value in each of {len(levels):,} rows, as an id has: it is left "
                f'out. Say so with types = {{ {toml_key(self.name)} = "leave out" }}, or keep it with "category"'
            )
            return replace(column, levels=(), missing="unseen", remarks=(said,))
        if most is not None and len(levels) > most:
            # Of levels that are equally frequent, the first in order.
            kept = sorted(levels, key=lambda level: (-self.counts[level], level))[:most]
            return replace(column, levels=tuple(sorted(kept)), other=True)
        if looks is not None:
            return replace(column, remarks=(looks.said,))
        if len(levels) <= MANY_LEVELS:
            return column
        said = (
            f"column {self.name!r} has {len(levels):,} different values, and as many features were made of it; keep "
            "the most frequent with max_levels = 100, or leave the column out"
        )
        return replace(column, remarks=(said,))

    def values_to_state(self, rules: FitRules) -> Mapping[str, Any]:
        """Return the sorted levels; their counts only if the most frequent are to be found."""
        levels = sorted(self.counts)
        counts = {} if rules.max_levels is None else {"counts": [self.counts[level] for level in levels]}
        return {"rows": 1, "levels": levels, "unique": self.unique, **counts}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> CategorySummary:
        """Read another client's summary."""
        name, rows = str(state["name"]), int(state["rows"])
        levels = _levels_from_state(state["levels"], state["kind"], "levels")
        counts = dict(zip(levels, map(int, state.get("counts", [1] * len(levels))), strict=True))
        if min(counts.values(), default=0) < 0 or rows < 0:
            raise DataError(f"the summary of column {name!r} has a negative count")
        unique = bool(state["unique"])
        return cls(name, state["kind"], rows, bool(state["missing"]), counts=counts, unique=unique)


def _levels_from_state(levels: Any, kind: Any, where: str) -> tuple[Level, ...]:
    """Read sorted levels of this kind."""
    require(isinstance(kind, str) and kind in LEVEL_TYPES, f"{where}' kind", "a known kind")
    require(isinstance(levels, list), where, "a list")
    taken = LEVEL_TYPES[kind]
    for k, level in enumerate(levels):
        # Some JSON writers turn 2.0 into 2: the kind restores the type.
        fits = is_text(level) if taken is str else type(level) in ((int, float) if taken is float else (taken,))
        require(fits, f"{where}[{k}]", kind)
    cast = [number_from_state(level, where) for level in levels] if taken is float else levels
    require(all(one < other for one, other in pairwise(cast)), where, "sorted, and no level twice")
    return tuple(cast)


def _count_levels(raw: RawColumn) -> dict[Level, int]:
    """Count the rows of each level, sorted; a category's declared levels count even without rows."""
    assert raw.kind is not None
    series = raw.series[~raw.missing] if raw.missing.any() else raw.series
    counts = _plain(series).value_counts(sort=False)
    cast = LEVEL_TYPES[raw.kind]
    levels = {cast(level): int(count) for level, count in sorted(zip(counts.index.tolist(), counts, strict=True))}
    if raw.kind == "decimal" and not all(math.isfinite(level) for level in levels):
        raise DataError(f"column {raw.name!r}: an infinite number cannot be a category")
    return levels


def _plain(series: pd.Series) -> pd.Series:
    """Return nullable booleans without missing values as plain ones, which are looked up faster and like any other."""
    if pd.api.types.is_bool_dtype(series.dtype):
        boolean = not isinstance(series.dtype, pd.CategoricalDtype)
    else:
        boolean = series.dtype == object and len(series) > 0 and isinstance(series.iloc[0], (bool, np.bool_))
    return series.astype(bool) if boolean else series
