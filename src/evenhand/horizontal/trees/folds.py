"""Draw folds from the contents of rows, so that a row's fold does not depend on which client has it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Booleans, Bytes, Integers
from evenhand.horizontal.trees.binning import keys

BLANK: Final = 10
"""One in this many rows does not influence where trees of a single model split."""
_MISSING: Final = 1
"""Stands for a missing value; no number in the format of `keys` has so few digits after the shift."""
_SHIFT: Final = 12
"""Digits of a number that do not count, so that the last ones, which differ between machines, do not matter."""


def content_folds(features: Any, folds: int) -> Integers:
    """Return the fold of each row. Rows of equal contents share one: no model has seen a copy of a row it judges."""
    columns = [np.where(np.isnan(column), _MISSING, keys(np.nan_to_num(column)) >> _SHIFT) for column in features.T]
    return np.asarray(_mixed(columns, len(features)) % np.uint64(folds), dtype=np.int64)


def content_blank(bins: Bytes) -> Booleans:
    """Return the rows that do not influence where trees of a single model split.

    Leave-one-out scores correct only for leaf values; these rows also give an unbiased estimate for the chosen splits.
    """
    return np.asarray(_mixed(list(bins.T), len(bins)) % np.uint64(BLANK) == 0)


def _mixed(columns: list[Any], rows: int) -> npt.NDArray[np.uint64]:
    """Return a hash of each row."""
    mixed = np.zeros(rows, dtype=np.uint64)
    for column in columns:
        mixed = (mixed ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed
