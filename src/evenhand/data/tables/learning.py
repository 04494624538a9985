"""What is known of a column after some of its rows, so that it can be learned batch by batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from evenhand.data.tables.columns import Level, NumberColumn, count_levels, has_hours, standardised
from evenhand.data.tables.encoder_state import levels_from_state
from evenhand.data.tables.making import Made, Rules, level_columns, nothing_known, number_columns
from evenhand.data.tables.raw import DATE, NUMBER, RawColumn
from evenhand.errors import DataError

_SUMS: Final = ("origin", "mean", "spread", "low", "high")


@dataclass(frozen=True)
class PartialColumn:
    """A column of which some rows have been seen; a value, so that a refused batch leaves nothing behind.

    `rows` are those with a value. `mean` is counted from `origin`, the first value seen, and `spread` is the sum of
    squared distances from the mean. Two batches are joined as Chan, Golub and LeVeque do (1979). Neither loses digits
    where values lie far from zero.

    Attributes
    ----------
    counts
        Of a category its levels, with the number of their rows.
    unique
        Whether no two rows have the same level.
    gaps, timed
        Whether a value is missing somewhere, and whether dates come with a time of day.
    """

    name: str
    kind: str | None = None
    counts: Mapping[Level, int] = field(default_factory=dict)
    rows: int = 0
    origin: float = 0.0
    mean: float = 0.0
    spread: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    gaps: bool = False
    unique: bool = True
    timed: bool = False
    infinite: int = 0

    def after(self, raw: RawColumn) -> PartialColumn:
        """What is known once these rows have been seen as well."""
        rows = len(raw.series) - int(raw.gaps.sum())
        gaps = rows < len(raw.series)
        declared = isinstance(raw.series.dtype, pd.CategoricalDtype)
        if raw.kind is None or (rows == 0 and not declared):
            return self.joined(PartialColumn(self.name, gaps=gaps, infinite=raw.infinite))
        if raw.kind not in (NUMBER, DATE):
            counts = count_levels(raw)
            unique = not declared and set(counts.values()) == {1}
            return self.joined(PartialColumn(self.name, raw.kind, counts, max(rows, 1), gaps=gaps, unique=unique))
        values = raw.known
        origin = self.origin if self.rows else float(values[0])
        with np.errstate(over="ignore", invalid="ignore"):
            away = values - origin
            mean = float(away.mean())
            spread = float(np.square(away - mean).sum())
        found = PartialColumn(
            self.name,
            raw.kind,
            rows=rows,
            origin=origin,
            mean=mean,
            spread=spread,
            low=float(values.min()),
            high=float(values.max()),
            gaps=gaps,
            timed=raw.kind == DATE and has_hours(values),
            infinite=raw.infinite,
        )
        return self.joined(found)

    def joined(self, other: PartialColumn) -> PartialColumn:
        """What is known of both together, where the other has seen other rows of a column of the same kind."""
        gaps, infinite = self.gaps or other.gaps, self.infinite + other.infinite
        if not self.rows or not other.rows:
            # Who has seen nothing but gaps says nothing else.
            return replace(other if other.rows else self, gaps=gaps, infinite=infinite)
        if other.kind != self.kind:
            raise DataError(f"column {self.name!r} held {self.kind} and now holds {other.kind} values; convert it")
        rows = self.rows + other.rows
        apart = other.mean - self.mean + (other.origin - self.origin)
        return replace(
            self,
            counts=_added(self.counts, other.counts),
            rows=rows,
            mean=self.mean + apart * (other.rows / rows),
            spread=self.spread + other.spread + apart * apart * (self.rows * other.rows / rows),
            low=min(self.low, other.low),
            high=max(self.high, other.high),
            gaps=gaps,
            unique=self.unique and other.unique and self.counts.keys().isdisjoint(other.counts.keys()),
            timed=self.timed or other.timed,
            infinite=infinite,
        )

    def made(self, scale: bool, rules: Rules) -> Made:
        """The column as learned from all rows seen; gaps are put at the mean, for medians do not add up."""
        if self.kind is None or not self.rows:
            return nothing_known(self.name, rules)
        missing = rules.of(self.name, self.gaps)
        if self.kind not in (NUMBER, DATE):
            # Levels of one kind, so that they can be sorted.
            counts = {level: self.counts[level] for level in sorted(self.counts)}
            return level_columns(self.name, self.kind, counts, missing, self.unique, rules)
        mean, deviation = self.origin + self.mean, math.sqrt(self.spread / self.rows)
        centre, divisor = standardised(self.name, self.low, self.high, mean, deviation) if scale else (0.0, 1.0)
        fill = mean if math.isfinite(mean) else 0.0
        number = NumberColumn(self.name, centre, divisor, missing, fill, self.kind)
        return number_columns(number, timed=self.timed, infinite=self.infinite)

    def to_state(self, scale: bool, rules: Rules) -> dict[str, Any]:
        """As plain JSON values: levels in order, of numbers that are to be scaled their sums, and no more.

        How many rows a level has is said only where the most frequent are to be found.
        """
        head = {"name": self.name, "kind": self.kind, "gaps": self.gaps}
        if not self.rows:
            return {**head, "rows": 0}
        if self.kind not in (NUMBER, DATE):
            levels = sorted(self.counts)
            counts = {} if rules.max_levels is None else {"counts": [self.counts[level] for level in levels]}
            return {**head, "rows": 1, "levels": levels, "unique": self.unique, **counts}
        sums = {name: getattr(self, name) for name in _SUMS} if scale else dict.fromkeys(_SUMS, 0.0)
        return {**head, "rows": self.rows if scale else 1, "timed": self.timed, **sums}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> PartialColumn:
        """Read what somebody else has written; whatever is wrong with it is a DataError."""
        try:
            name, kind, rows, gaps = str(state["name"]), state["kind"], int(state["rows"]), bool(state["gaps"])
            if rows == 0:
                return cls(name, gaps=gaps)
            if kind not in (NUMBER, DATE):
                levels = levels_from_state(state["levels"], kind, "levels")
                counts = dict(zip(levels, map(int, state.get("counts", [1] * len(levels))), strict=True))
                if min(counts.values(), default=0) < 0 or rows < 0:
                    raise DataError(f"the summary of column {name!r} counts below zero")
                return cls(name, kind, counts, rows, gaps=gaps, unique=bool(state["unique"]))
            sums: dict[str, Any] = {key: float(state[key]) for key in _SUMS}
            timed = bool(state["timed"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"this is not a summary of a column: {error!r}") from error
        if rows < 1 or not all(map(math.isfinite, sums.values())) or sums["spread"] < 0 or sums["low"] > sums["high"]:
            raise DataError(f"the summary of column {name!r} is of no column: {rows} rows, {sums}")
        return cls(name, kind, {}, rows, gaps=gaps, timed=timed, **sums)


def _added(some: Mapping[Level, int], more: Mapping[Level, int]) -> dict[Level, int]:
    """Levels of both, also those that are declared and have no rows."""
    total = dict(some)
    for level, count in more.items():
        total[level] = total.get(level, 0) + count
    return total
