"""What is known of a column after some of its rows, so that it can be learned batch by batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from evenhand.data.tables.columns import (
    NUMBER,
    Column,
    Level,
    LevelColumn,
    NumberColumn,
    column_kind,
    column_levels,
    finite_values,
    require_complete,
    standardised,
)
from evenhand.data.tables.encoder_state import levels_from_state
from evenhand.errors import DataError

_SUMS: Final = ("origin", "mean", "spread", "low", "high")


@dataclass(frozen=True)
class PartialColumn:
    """A column of which some rows have been seen; a value, so that a refused batch leaves nothing behind.

    `mean` is counted from `origin`, the first value seen, and `spread` is the sum of squared distances from the mean.
    Two batches are joined as Chan, Golub and LeVeque do (1979). Neither loses digits where values lie far from zero.
    """

    name: str
    kind: str | None = None
    levels: frozenset[Level] = frozenset()
    rows: int = 0
    origin: float = 0.0
    mean: float = 0.0
    spread: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def after(self, column: pd.Series) -> PartialColumn:
        """What is known once these rows have been seen as well."""
        require_complete(column, self.name)
        kind = column_kind(column, self.name)
        if kind != NUMBER:
            found = frozenset(column_levels(column, self.name, kind))
            return self.joined(PartialColumn(self.name, kind, found, len(column), low=0.0, high=0.0))
        values = finite_values(column, self.name)
        origin = self.origin if self.rows else float(values[0])
        with np.errstate(over="ignore", invalid="ignore"):
            away = values - origin
            mean = float(away.mean())
            spread = float(np.square(away - mean).sum())
        low, high = float(values.min()), float(values.max())
        return self.joined(PartialColumn(self.name, kind, frozenset(), len(values), origin, mean, spread, low, high))

    def joined(self, other: PartialColumn) -> PartialColumn:
        """What is known of both together, where the other has seen other rows of a column of the same kind."""
        if self.rows == 0:
            return other
        if other.kind != self.kind:
            raise DataError(f"column {self.name!r} held {self.kind} and now holds {other.kind} values; convert it")
        rows = self.rows + other.rows
        apart = other.mean - self.mean + (other.origin - self.origin)
        return replace(
            self,
            levels=self.levels.union(other.levels),
            rows=rows,
            mean=self.mean + apart * (other.rows / rows),
            spread=self.spread + other.spread + apart * apart * (self.rows * other.rows / rows),
            low=min(self.low, other.low),
            high=max(self.high, other.high),
        )

    def column(self, scale: bool) -> Column:
        """The column as learned from all rows seen."""
        assert self.kind is not None, "at least one batch has been seen"
        if self.kind != NUMBER:
            # Levels of one kind, so that they can be sorted.
            return LevelColumn(self.name, self.kind, tuple(sorted(self.levels)))
        if not scale:
            return NumberColumn(self.name, 0.0, 1.0)
        return standardised(self.name, self.low, self.high, self.origin + self.mean, math.sqrt(self.spread / self.rows))

    def to_state(self, scale: bool) -> dict[str, Any]:
        """As plain JSON values: levels in order, of numbers that are to be scaled their sums, and no more."""
        head = {"name": self.name, "kind": self.kind}
        if self.kind != NUMBER:
            return {**head, "rows": 1, "levels": sorted(self.levels)}
        if not scale:
            return {**head, "rows": 1, **dict.fromkeys(_SUMS, 0.0)}
        return {**head, "rows": self.rows, **{name: getattr(self, name) for name in _SUMS}}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> PartialColumn:
        """Read what somebody else has written; whatever is wrong with it is a DataError."""
        try:
            name, kind, rows = str(state["name"]), state["kind"], int(state["rows"])
            if kind != NUMBER:
                levels = frozenset(levels_from_state(state["levels"], kind, "levels"))
                return cls(name, kind, levels, rows, low=0.0, high=0.0)
            sums = {key: float(state[key]) for key in _SUMS}
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"this is not a summary of a column: {error!r}") from error
        if rows < 1 or not all(map(math.isfinite, sums.values())) or sums["spread"] < 0 or sums["low"] > sums["high"]:
            raise DataError(f"the summary of column {name!r} is of no column: {rows} rows, {sums}")
        return cls(name, kind, frozenset(), rows, **sums)
