"""One raw column and what it becomes: a standardised number, or one 0/1 feature for each level."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Integers
from evenhand.errors import DataError

Level: TypeAlias = str | int | float | bool

NUMBER: Final = "number"
# How messages name what a categorical column's levels are.
LEVEL_TYPES: Final[dict[str, type]] = {"text": str, "integer": int, "decimal": float, "boolean": bool}
_INFERRED: Final = {"string": "text", "integer": "integer", "floating": "decimal", "boolean": "boolean"}


@dataclass(frozen=True)
class NumberColumn:
    """A numeric column: (x - mean) / scale."""

    name: str
    mean: float
    scale: float

    @property
    def width(self) -> int:
        return 1

    @property
    def names_out(self) -> list[str]:
        return [self.name]

    def values(self, column: pd.Series) -> Array:
        """Return the standardised values."""
        require_complete(column, self.name)
        require_kind(column, self.name, NUMBER)
        with np.errstate(over="ignore", invalid="ignore"):
            values = (finite_values(column, self.name) - self.mean) / self.scale
        if not np.isfinite(values).all():
            raise DataError(f"column {self.name!r}: values lie too far from those it was fitted on; rescale them")
        return values

    def to_state(self) -> dict[str, Any]:
        return {"name": self.name, "kind": NUMBER, "mean": self.mean, "scale": self.scale}


@dataclass(frozen=True)
class LevelColumn:
    """A categorical column with the levels seen at fit; `kind` is a key of the level types."""

    name: str
    kind: str
    levels: tuple[Level, ...]

    @property
    def width(self) -> int:
        return len(self.levels)

    @property
    def names_out(self) -> list[str]:
        return [f"{self.name}={level}" for level in self.levels]

    @cached_property
    def _index(self) -> pd.Index:
        return pd.Index(list(self.levels))

    def codes(self, column: pd.Series) -> Integers:
        """Return each row's place among the levels, -1 for a value not seen at fit."""
        require_complete(column, self.name)
        require_kind(column, self.name, self.kind)
        if isinstance(column.dtype, pd.CategoricalDtype):
            # Look the few categories up, not the many rows.
            places = self._index.get_indexer(column.cat.categories)
            return np.asarray(places[column.cat.codes.to_numpy()], dtype=np.int64)
        return np.asarray(self._index.get_indexer(pd.Index(_plain(column))), dtype=np.int64)

    def to_state(self) -> dict[str, Any]:
        return {"name": self.name, "kind": self.kind, "levels": list(self.levels)}


Column: TypeAlias = NumberColumn | LevelColumn


def fit_column(column: pd.Series, name: str, scale: bool) -> Column:
    """Learn a column's mean and scale, or its levels, from the rows given and no others."""
    require_complete(column, name)
    kind = column_kind(column, name)
    if kind != NUMBER:
        return LevelColumn(name, kind, column_levels(column, name, kind))
    values = finite_values(column, name)
    if not scale:
        return NumberColumn(name, 0.0, 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = float(values.mean()), float(values.std())
    return standardised(name, float(values.min()), float(values.max()), mean, deviation)


def standardised(name: str, low: float, high: float, mean: float, deviation: float) -> NumberColumn:
    """A column to be standardised, given its range, mean and population standard deviation."""
    if low == high:
        # The rounded mean of a constant may miss it, and a tiny deviation would blow that up to one.
        return NumberColumn(name, low, 1.0)
    if not math.isfinite(deviation):
        raise DataError(f"column {name!r}: values from {low:g} to {high:g} are too large to standardise; rescale them")
    return NumberColumn(name, mean, deviation or 1.0)


def column_kind(column: pd.Series | pd.Index, name: str) -> str:
    """Say whether a column is a number or what its levels are; refuse what is neither."""
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        inferred = pd.api.types.infer_dtype(dtype.categories, skipna=False)
    elif pd.api.types.is_bool_dtype(dtype):
        inferred = "boolean"
    elif pd.api.types.is_complex_dtype(dtype):
        inferred = "complex"
    elif pd.api.types.is_numeric_dtype(dtype):
        return NUMBER
    else:
        inferred = pd.api.types.infer_dtype(column, skipna=False)
        if inferred in ("integer", "floating", "decimal", "mixed-integer-float"):
            raise DataError(
                f"column {name!r} holds numbers as objects: make it numeric with pandas.to_numeric, "
                "or a category with astype('category')"
            )
    if inferred not in _INFERRED:
        raise DataError(
            f"column {name!r} holds {inferred} values ({dtype}), which cannot be encoded: make it a number, "
            "text, a boolean or a category of one of these"
        )
    return _INFERRED[inferred]


def require_complete(column: pd.Series, name: str) -> None:
    """Refuse missing values: what to put in their place is the party's decision."""
    if missing := int(column.isna().sum()):
        raise DataError(
            f"column {name!r}: {missing:,} of {len(column):,} values are missing; "
            "fill them in, or drop the rows or the column"
        )


def column_levels(column: pd.Series, name: str, kind: str) -> tuple[Level, ...]:
    """Every level, sorted; a category's declared levels count even where these rows lack them."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        found = column.dtype.categories
    else:
        found = pd.Index(_plain(column).unique())
    levels = tuple(LEVEL_TYPES[kind](level) for level in sorted(found.tolist()))
    if kind == "decimal" and not all(math.isfinite(level) for level in levels):
        raise DataError(f"column {name!r}: an infinite number cannot be a category")
    return levels


def _plain(column: pd.Series) -> pd.Series:
    # A nullable boolean column without gaps looks levels up faster, and like any other, as plain booleans.
    return column.astype(bool) if pd.api.types.is_bool_dtype(column.dtype) else column


def finite_values(column: pd.Series, name: str) -> Array:
    values = column.to_numpy(dtype=np.float64)
    if infinite := int(np.count_nonzero(~np.isfinite(values))):
        raise DataError(f"column {name!r}: {infinite:,} of {len(values):,} values are infinite; replace them")
    return values


def require_kind(column: pd.Series, name: str, fitted: str) -> None:
    """Refuse values of another kind than those at fit."""
    found = column_kind(column, name)
    if found != fitted:
        # One-hot rows of zeros would otherwise hide that, say, the codes "1" arrive as the numbers 1.
        raise DataError(f"column {name!r} was fitted as {fitted} and now holds {found} values; convert it")
