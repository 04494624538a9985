"""Columns as they are, for trees: numbers with their gaps, categories as codes, one feature a column.

A gap, or a level not seen at fit, is NaN: where it goes is learned, or is the tree's default.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from evenhand.arrays import Array
from evenhand.data.tables.columns import (
    NUMBER,
    Column,
    LevelColumn,
    NumberColumn,
    column_kind,
    finite_values,
    fit_column,
    require_kind,
)
from evenhand.data.tables.learning import PartialColumn

NOTHING_SEEN = "text"
"""The kind of a column of which nothing but gaps was seen."""


def learn_column(column: pd.Series, name: str) -> Column:
    """A number, or a category with its levels, from the values that are there."""
    if _is_number(column, name):
        return NumberColumn(name, 0.0, 1.0)
    known = column.dropna()
    has_levels = len(known) or isinstance(column.dtype, pd.CategoricalDtype)
    return fit_column(known, name, scale=False) if has_levels else LevelColumn(name, NOTHING_SEEN, ())


def learn_more(seen: PartialColumn, column: pd.Series) -> PartialColumn:
    """The same batch by batch: a batch of nothing but gaps teaches nothing."""
    known = column.dropna()
    if not len(known) and _is_number(column, seen.name):
        known = pd.Series([0.0])
    return seen.after(known) if len(known) else seen


def learned(seen: PartialColumn) -> Column:
    return LevelColumn(seen.name, NOTHING_SEEN, ()) if seen.kind is None else seen.column(scale=False)


def assemble_as_is(columns: Sequence[Column], found: Sequence[pd.Series], rows: int) -> Array:
    """Encode into a float64 array, one feature a column."""
    out = np.full((rows, len(columns)), np.nan)
    for place, (column, series) in enumerate(zip(columns, found, strict=True)):
        there = series.notna().to_numpy()
        if not there.any():
            continue
        known = series if there.all() else series[there]
        if isinstance(column, NumberColumn):
            require_kind(known, column.name, NUMBER)
            out[there, place] = finite_values(known, column.name)
        else:
            codes = column.codes(known).astype(np.float64)
            codes[codes < 0] = np.nan
            out[there, place] = codes
    return out


def categorical_places(columns: Sequence[Column]) -> tuple[int, ...]:
    """Which features hold codes."""
    return tuple(place for place, column in enumerate(columns) if isinstance(column, LevelColumn))


def _is_number(column: pd.Series, name: str) -> bool:
    if not (pd.api.types.is_numeric_dtype(column.dtype) and column_kind(column, name) == NUMBER):
        return False
    finite_values(column.dropna(), name)
    return True
