"""What a party keeps of its training columns, to notice new rows that are unlike them. It holds no row.

Numbers are quantiles and ends rounded to two digits, the ends outwards, and shares in per cent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Booleans
from evenhand.data.tables.columns import number_from_state, require, require_keys
from evenhand.data.tables.raw import DATE, NUMBER, RawColumn

VERSION: Final = 1
_QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
_LEAST_ROWS: Final = 20
"""Fewer rows have no quantiles."""
_FACTOR: Final = 4.0
"""Quantiles that are all this much larger or smaller have moved."""
_MORE_MISSING: Final = 0.2


@dataclass(frozen=True)
class NumberReference:
    """A column of numbers or dates: ends, quantiles, and the share of rows without a value."""

    name: str
    kind: str
    low: float
    high: float
    quantiles: tuple[float, ...]
    missing: float

    def remarks_on(self, raw: RawColumn) -> list[str]:
        """Describe how new rows differ."""
        rows, missing = len(raw.series), int(raw.missing.sum())
        where = f"column {self.name!r}"
        if missing == rows:
            return [f"{where} has no value in any of {rows:,} rows; {_lacked(self.missing)}"]
        said = []
        if rows >= _LEAST_ROWS and missing / rows > self.missing + _MORE_MISSING:
            said.append(f"{where}: {missing:,} of {rows:,} rows have no value; {_lacked(self.missing)}")
        if raw.kind != self.kind:
            return said
        values = raw.known
        beyond = int(np.count_nonzero((values < self.low) | (values > self.high)))
        moved = self._moved(values)
        if moved is not None:
            said.append(f"{where}: {moved}")
        if beyond:
            said.append(
                f"{where}: {beyond:,} of {rows:,} rows are beyond all training rows, which lie from "
                f"{self._shown(self.low)} to {self._shown(self.high)}"
            )
        return said

    def _moved(self, values: Array) -> str | None:
        """Say by what factor, or how far, quantiles have moved."""
        if len(values) < _LEAST_ROWS or not self.quantiles:
            return None
        now, before = np.quantile(values, _QUANTILES), np.asarray(self.quantiles)
        middle = f"the median is {self._shown(now[2])}, in training rows {self._shown(before[2])}"
        if self.kind == NUMBER and self.low >= 0:
            there = before > 0
            with np.errstate(divide="ignore", invalid="ignore"):
                factors = now[there] / before[there]
            if there.sum() >= 2 and ((factors >= _FACTOR).all() or (factors <= 1 / _FACTOR).all()):
                factor = float(np.median(factors))
                rounded = float(f"{max(factor, 1 / factor) if factor else 0.0:.2g}")
                times = f"{rounded:,.12g} times" if factor >= 1 or not factor else f"1/{rounded:,.12g} of"
                return f"{middle}; quantiles are about {times} those of training rows. Is the unit another one?"
        spread = before[-1] - before[0]
        if spread > 0 and (now[0] > before[-1] or now[-1] < before[0]):
            return f"{middle}; nine in ten values are on one side of nine in ten of the training rows"
        return None

    def _shown(self, value: float) -> str:
        if self.kind == DATE:
            return str(np.datetime64("1970-01-01") + np.timedelta64(math.floor(value), "D"))
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:.4g}"


@dataclass(frozen=True)
class LevelReference:
    """A category: the share of rows without a value."""

    name: str
    missing: float

    def remarks_on(self, raw: RawColumn) -> list[str]:
        """Describe how new rows differ."""
        rows, missing = len(raw.series), int(raw.missing.sum())
        if missing == rows or (rows >= _LEAST_ROWS and missing / rows > self.missing + _MORE_MISSING):
            how = "any" if missing == rows else f"{missing:,}"
            return [f"column {self.name!r} has no value in {how} of {rows:,} rows; {_lacked(self.missing)}"]
        return []


@dataclass(frozen=True)
class Reference:
    """All columns of a party."""

    columns: Mapping[str, NumberReference | LevelReference] = field(default_factory=dict)

    @classmethod
    def of(cls, features: Iterable[tuple[str, pd.Series]], training: Booleans) -> Self:
        """Look at the training rows of each column."""
        found: dict[str, NumberReference | LevelReference] = {}
        for name, column in features:
            raw = RawColumn.of(column[training], name)
            missing = math.floor(100 * float(raw.missing.mean())) / 100 if len(raw.series) else 0.0
            if raw.kind in (NUMBER, DATE) and raw.known.size:
                found[name] = _numbers(raw, str(raw.kind), missing)
            else:
                found[name] = LevelReference(name, missing)
        return cls(found)

    def remarks_on(self, features: Iterable[tuple[str, pd.Series]]) -> list[str]:
        """Describe how new rows differ from the training rows."""
        said = []
        for name, column in features:
            if name in self.columns and len(column):
                said += self.columns[name].remarks_on(RawColumn.of(column, name))
        return said

    def to_state(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"version": VERSION, "columns": [asdict(one) for one in self.columns.values()]}

    @classmethod
    def from_state(cls, state: Any) -> Self:
        """Read a state; refuse one that was not written here."""
        require(isinstance(state, dict) and state.get("version") == VERSION, "version", str(VERSION))
        require_keys(state, ("version", "columns"), "the reference")
        require(isinstance(state["columns"], list), "columns", "a list")
        found: dict[str, NumberReference | LevelReference] = {}
        for place, one in enumerate(state["columns"]):
            where = f"columns[{place}]"
            require(isinstance(one, dict) and isinstance(one.get("name"), str), where, "a column with a name")
            if "kind" not in one:
                require_keys(one, ("name", "missing"), where)
                found[one["name"]] = LevelReference(one["name"], number_from_state(one["missing"], where))
                continue
            require_keys(one, ("name", "kind", "low", "high", "quantiles", "missing"), where)
            require(one["kind"] in (NUMBER, DATE), f"{where}.kind", "number or date")
            require(isinstance(one["quantiles"], list), f"{where}.quantiles", "a list")
            low, high, missing = (number_from_state(one[key], f"{where}.{key}") for key in ("low", "high", "missing"))
            quantiles = tuple(number_from_state(value, f"{where}.quantiles") for value in one["quantiles"])
            require(len(quantiles) in (0, len(_QUANTILES)), f"{where}.quantiles", "none, or five numbers")
            found[one["name"]] = NumberReference(one["name"], one["kind"], low, high, quantiles, missing)
        return cls(found)


def _numbers(raw: RawColumn, kind: str, missing: float) -> NumberReference:
    values = raw.known
    low, high = _outward(float(values.min()), -1, kind), _outward(float(values.max()), 1, kind)
    quantiles: tuple[float, ...] = ()
    if len(values) >= _LEAST_ROWS:
        quantiles = tuple(_rounded(float(one), kind) for one in np.quantile(values, _QUANTILES))
    return NumberReference(raw.name, kind, low, high, quantiles, missing)


def _step(value: float, kind: str) -> float:
    """Return the distance of neighbouring numbers of two digits; of dates, a month."""
    return 30.0 if kind == DATE else 10.0 ** (math.floor(math.log10(abs(value))) - 1)


def _outward(value: float, side: int, kind: str) -> float:
    if value == 0.0:
        return 0.0
    step = _step(value, kind)
    found = (math.ceil if side > 0 else math.floor)(value / step) * step
    return float(f"{found:.12g}") if math.isfinite(found) else value


def _rounded(value: float, kind: str) -> float:
    if value == 0.0:
        return 0.0
    found = round(value / _step(value, kind)) * _step(value, kind)
    return float(f"{found:.12g}") if math.isfinite(found) else value


def _lacked(share: float) -> str:
    return f"{100 * share:.0f} % of the training rows lacked one" if share else "(nearly) no training row lacked one"
