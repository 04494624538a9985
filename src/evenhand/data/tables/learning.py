"""What is known of a column after some of its rows, so that it can be learned batch by batch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

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
from evenhand.errors import DataError


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
        if self.kind is not None and kind != self.kind:
            raise DataError(f"column {self.name!r} held {self.kind} and now holds {kind} values; convert it")
        if kind != NUMBER:
            found = column_levels(column, self.name, kind)
            return replace(self, kind=kind, levels=self.levels.union(found), rows=self.rows + len(column))
        values = finite_values(column, self.name)
        rows = self.rows + len(values)
        origin = self.origin if self.rows else float(values[0])
        with np.errstate(over="ignore", invalid="ignore"):
            away = values - origin
            mean = float(away.mean())
            spread = float(np.square(away - mean).sum())
        apart = mean - self.mean
        return replace(
            self,
            kind=kind,
            rows=rows,
            origin=origin,
            mean=self.mean + apart * (len(values) / rows),
            spread=self.spread + spread + apart * apart * (self.rows * len(values) / rows),
            low=min(self.low, float(values.min())),
            high=max(self.high, float(values.max())),
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
