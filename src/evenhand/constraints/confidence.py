"""Variances of slice means, and critical values of confidence intervals.

Both assume that rows are drawn at random from the population, and that the model did not see them. On its own training
rows a model looks slightly better than it is.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from evenhand.arrays import Array
from evenhand.errors import InputError

LEVEL = 0.95
"""Default confidence level."""


def critical_value(level: float, comparisons: int) -> float:
    """Return z such that all comparisons hold at once with probability `level` (union bound, two-sided)."""
    if not 0 < level < 1:
        raise InputError(f"level is {level}: give a number between 0 and 1, such as 0.95")
    return float(ndtri(1.0 - (1.0 - level) / (2.0 * max(comparisons, 1))))


def rate_variance(hits: npt.ArrayLike, rows: npt.ArrayLike) -> Array:
    """Return the variance of a rate, p̃(1 − p̃)/n with p̃ = (k + 1)/(n + 2): never zero, and ∞ without rows."""
    hits, rows = np.asarray(hits, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    rate = (hits + 1.0) / (rows + 2.0)
    return np.divide(rate * (1.0 - rate), rows, out=np.full(rate.shape, np.inf), where=rows > 0)


def mean_variance(total: npt.ArrayLike, squares: npt.ArrayLike, rows: npt.ArrayLike) -> Array:
    """Return the variance of a mean, from the rows' sum and sum of squares; ∞ for fewer than two rows."""
    total, squares, rows = (np.asarray(one, dtype=np.float64) for one in (total, squares, rows))
    known = rows > 1
    spread = np.maximum(squares - np.divide(total**2, rows, out=np.zeros(total.shape), where=known), 0.0)
    return np.divide(spread, rows * (rows - 1.0), out=np.full(total.shape, np.inf), where=known)
