"""Numbers and dates: standardised, with 0/1 features for the parts of a date and for missing values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.data.tables.columns import (
    Bin,
    Block,
    ColumnSummary,
    EncodedColumn,
    FitRules,
    MissingMode,
    number_from_state,
    require,
    require_keys,
)
from evenhand.data.tables.raw import DATE, NUMBER, RawColumn
from evenhand.errors import DataError
from evenhand.printing import toml_key

_CALENDAR: Final[dict[str, tuple[str, ...]]] = {
    "month": tuple(map(str, range(1, 13))),
    "weekday": ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
    "hour": tuple(map(str, range(24))),
}
"""The parts of a date, and the values of each."""
_SUMS: Final = ("origin", "mean", "spread", "low", "high")


@dataclass(frozen=True)
class NumericColumn(EncodedColumn):
    """A number: (x - mean) / scale, with `fill` in place of a missing x, and an indicator if fit saw missing values."""

    name: str
    mean: float = 0.0
    scale: float = 1.0
    missing: MissingMode = "unseen"
    fill: float = 0.0
    remarks: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return NUMBER

    @property
    def calendar(self) -> tuple[str, ...]:
        """The parts of the date that become features; a number has none."""
        return ()

    @classmethod
    def fit(cls, raw: RawColumn, rules: FitRules) -> NumericColumn:
        """Learn mean, scale and median from rows of which at least one has a value."""
        values, missing = raw.known, bool(raw.missing.any())
        with np.errstate(over="ignore", invalid="ignore"):
            mean, deviation = float(values.mean()), float(values.std())
        # If fit saw no missing value, a later one is filled with the mean.
        fill = float(np.median(values)) if missing else mean
        return NumericSummary.range_of(raw).column(mean, deviation, fill, rules)

    @property
    def widths(self) -> tuple[int, ...]:
        return (1, *(len(_CALENDAR[part]) for part in self.calendar), *([1] if self.missing == "seen" else []))

    def signs(self, direction: int) -> list[int]:
        if self.kind != NUMBER:
            return super().signs(direction)
        return [direction, *([0] if self.missing == "seen" else [])]

    def feature_names(self, as_is: bool) -> list[str]:
        if as_is:
            return [self.name, *(f"{self.name} {part}" for part in self.calendar)]
        parts = [f"{self.name} {part}={value}" for part in self.calendar for value in _CALENDAR[part]]
        return [self.name, *parts, *([f"{self.name} is missing"] if self.missing == "seen" else [])]

    def bins(self) -> list[Bin]:
        units = np.eye(sum(self.widths))
        date = self.kind == DATE
        middle = str(np.datetime64(int(self.mean), "D")) if date else f"{self.mean:.6g}"
        step = "each day later" if date else "each 1 more"
        found = [(f"at {middle}", 0.0 * units[0]), (step, units[0] / self.scale)]
        parts = [f"{part} {value}" for part in self.calendar for value in _CALENDAR[part]]
        found += zip(parts, units[1:], strict=False)
        if self.missing == "seen":
            found.append(("missing", units[-1] + (self.fill - self.mean) / self.scale * units[0]))
        return [Bin(name, features, features) for name, features in found]

    def encode(self, raw: RawColumn) -> list[Block]:
        blocks: list[Block] = [self._standardised(raw), *(_calendar_codes(raw, part) for part in self.calendar)]
        return [*blocks, np.where(raw.missing, 0, -1)] if self.missing == "seen" else blocks

    def _standardised(self, raw: RawColumn) -> Array:
        raw.require(self.kind)
        if self.missing == "refused":
            raw.refuse_missing()
        if raw.kind is None:
            return np.full(len(raw.series), (self.fill - self.mean) / self.scale)
        found = np.where(raw.missing, self.fill, raw.numbers) if raw.missing.any() else raw.numbers
        with np.errstate(over="ignore", invalid="ignore"):
            values = (found - self.mean) / self.scale
        if not np.isfinite(values).all():
            raise DataError(f"column {self.name!r}: values lie too far from those it was fitted on; rescale them")
        return values

    def to_state(self) -> dict[str, Any]:
        state = {"name": self.name, "kind": self.kind, "mean": self.mean, "scale": self.scale, "missing": self.missing}
        return state if self.missing == "refused" else {**state, "fill": self.fill}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], where: str, scale: bool) -> Self:
        """Read a column; refuse a state that an encoder could not have written."""
        filled = [] if state["missing"] == "refused" else ["fill"]
        date = ["timed"] if state["kind"] == DATE else []
        require_keys(state, ("name", "kind", "mean", "scale", "missing", *filled, *date), where)
        mean = number_from_state(state["mean"], f"{where}.mean")
        divisor = number_from_state(state["scale"], f"{where}.scale", positive=True)
        require(scale or (mean, divisor) == (0.0, 1.0), where, "unscaled, as in an encoder that does not scale")
        fill = number_from_state(state["fill"], f"{where}.fill") if filled else 0.0
        for key in date:
            require(isinstance(state[key], bool), f"{where}.{key}", "true or false")
        return cls(state["name"], mean, divisor, state["missing"], fill, **{key: state[key] for key in date})


@dataclass(frozen=True)
class DateColumn(NumericColumn):
    """A date as days since 1970, standardised, and its month, weekday and (if `timed`) hour as 0/1 features."""

    timed: bool = False

    @property
    def kind(self) -> str:
        return DATE

    @property
    def calendar(self) -> tuple[str, ...]:
        return ("month", "weekday", "hour") if self.timed else ("month", "weekday")

    def to_state(self) -> dict[str, Any]:
        return {**super().to_state(), "timed": self.timed}


@dataclass(frozen=True)
class NumericSummary(ColumnSummary):
    """Sums of a column of numbers or dates.

    `mean` is counted from `origin`, the first value seen; `spread` is the sum of squared distances from the mean.
    Summaries are merged as in Chan, Golub and LeVeque (1979). Neither loses digits when values lie far from zero.
    `timed` tells whether dates come with a time of day.
    """

    origin: float = 0.0
    mean: float = 0.0
    spread: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    timed: bool = False

    @classmethod
    def range_of(cls, raw: RawColumn) -> NumericSummary:
        """Summarise rows of which at least one has a value, without their sums."""
        values = raw.known
        timed = raw.kind == DATE and bool((values != np.floor(values)).any())
        found = cls(raw.name, raw.kind, values.size, values.size < len(raw.series), raw.infinite)
        return replace(found, low=float(values.min()), high=float(values.max()), timed=timed)

    @classmethod
    def of(cls, raw: RawColumn, origin: float | None = None) -> NumericSummary:
        """Summarise rows of which at least one has a value."""
        origin = float(raw.known[0]) if origin is None else origin
        with np.errstate(over="ignore", invalid="ignore"):
            away = raw.known - origin
            mean = float(away.mean())
            spread = float(np.square(away - mean).sum())
        return replace(cls.range_of(raw), origin=origin, mean=mean, spread=spread)

    def _merge_values(self, other: NumericSummary) -> NumericSummary:
        rows = self.rows + other.rows
        apart = other.mean - self.mean + (other.origin - self.origin)
        return replace(
            self,
            rows=rows,
            mean=self.mean + apart * (other.rows / rows),
            spread=self.spread + other.spread + apart * apart * (self.rows * other.rows / rows),
            low=min(self.low, other.low),
            high=max(self.high, other.high),
            timed=self.timed or other.timed,
        )

    def fitted(self, rules: FitRules) -> NumericColumn:
        """Return the fitted column; missing values are filled with the mean, because medians do not add up."""
        mean = self.origin + self.mean
        return self.column(mean, math.sqrt(self.spread / self.rows), mean, rules)

    def column(self, mean: float, deviation: float, fill: float, rules: FitRules) -> NumericColumn:
        """Return the column with this mean, population standard deviation and fill."""
        centre, scale = self._standardisation(mean, deviation) if rules.scale else (0.0, 1.0)
        # A mean of huge numbers may overflow. Nothing else notices when the column is not standardised.
        fill = fill if math.isfinite(fill) and not rules.as_is else 0.0
        missing = rules.mode(self.name, self.missing)
        if self.kind == DATE:
            return DateColumn(self.name, centre, scale, missing, fill, timed=self.timed)
        remark = (
            f"column {self.name!r}: {self.infinite:,} infinite values count as missing; replace them, or refuse them "
            f'with missing = {{ {toml_key(self.name)} = "refuse" }}'
        )
        return NumericColumn(self.name, centre, scale, missing, fill, (remark,) if self.infinite else ())

    def _standardisation(self, mean: float, deviation: float) -> tuple[float, float]:
        if self.low == self.high:
            # The rounded mean of a constant may miss it, and a tiny deviation would scale the difference up to one.
            return self.low, 1.0
        if not math.isfinite(deviation):
            raise DataError(
                f"column {self.name!r}: values from {self.low:g} to {self.high:g} are too large to standardise; "
                "rescale them"
            )
        return mean, deviation or 1.0

    def values_to_state(self, rules: FitRules) -> Mapping[str, Any]:
        sums = {name: getattr(self, name) if rules.scale else 0.0 for name in _SUMS}
        return {"rows": self.rows if rules.scale else 1, "timed": self.timed, **sums}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> NumericSummary:
        """Read another client's summary."""
        name, rows = str(state["name"]), int(state["rows"])
        sums: dict[str, Any] = {key: float(state[key]) for key in _SUMS}
        if rows < 1 or not all(map(math.isfinite, sums.values())) or sums["spread"] < 0 or sums["low"] > sums["high"]:
            raise DataError(f"the summary of column {name!r} is inconsistent: {rows} rows, {sums}")
        return cls(name, state["kind"], rows, bool(state["missing"]), **sums, timed=bool(state["timed"]))


def _calendar_codes(raw: RawColumn, part: str) -> Integers:
    """Return each row's month, weekday or hour as a place in the calendar, -1 where the date is missing."""
    found = np.full(len(raw.series), -1, dtype=np.int64)
    if raw.kind is None:
        return found
    there = ~raw.missing
    days = np.floor(raw.numbers[there])
    if part == "month":
        found[there] = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12
    elif part == "weekday":
        # The first of January 1970 was a Thursday.
        found[there] = (days.astype(np.int64) + 3) % 7
    else:
        # Days are rounded: less than half a microsecond before the hour is the hour.
        found[there] = np.floor((raw.numbers[there] - days) * 24 + 1.4e-10).astype(np.int64) % 24
    return found
