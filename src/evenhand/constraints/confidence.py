"""How sure a mean over a slice is of the population's: variances of slice means, and what to multiply their roots by.

Rows are taken as drawn at random from the people that a statement is about, and the model as given. Both are promises
of whoever states something: a model's own training rows flatter it a little.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from evenhand.arrays import Array
from evenhand.constraints.binding import BoundConstraints
from evenhand.constraints.losses import Logistic, Loss
from evenhand.errors import InputError

LEVEL = 0.95
"""How sure statements are unless another level is asked for."""


def critical_value(level: float, comparisons: int) -> float:
    """z such that all of these comparisons hold at once with probability `level` (union bound, two-sided)."""
    if not 0 < level < 1:
        raise InputError(f"level is {level}: give a number between 0 and 1, such as 0.95")
    return float(ndtri(1.0 - (1.0 - level) / (2.0 * max(comparisons, 1))))


def rate_variance(hits: npt.ArrayLike, rows: npt.ArrayLike) -> Array:
    """Variance of a rate: p̃(1 − p̃)/n with p̃ = (k + 1)/(n + 2), so that no rate is ever quite sure; ∞ without rows."""
    hits, rows = np.asarray(hits, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    rate = (hits + 1.0) / (rows + 2.0)
    return np.divide(rate * (1.0 - rate), rows, out=np.full(rate.shape, np.inf), where=rows > 0)


def mean_variance(total: npt.ArrayLike, squares: npt.ArrayLike, rows: npt.ArrayLike) -> Array:
    """Variance of a mean, from the rows' sum and sum of squares; ∞ below two rows, which do not show how they vary."""
    total, squares, rows = (np.asarray(one, dtype=np.float64) for one in (total, squares, rows))
    known = rows > 1
    spread = np.maximum(squares - np.divide(total**2, rows, out=np.zeros(total.shape), where=known), 0.0)
    return np.divide(spread, rows * (rows - 1.0), out=np.full(total.shape, np.inf), where=known)


def exact_rows(bound: BoundConstraints, labels: Array, scores: Array, loss: Loss | None = None) -> tuple[Array, Array]:
    """Each constraint row's exact value at these scores, and its standard error, for given sizes of the slices.

    Exact is the rate one would report for the measures ``"error"`` and ``"positive"``; a mean loss is exact as it is.
    """
    values, errors = np.zeros((2, len(bound)))
    for measure, places in bound.measures.items():
        is_loss = measure.name == "loss"
        measured: Array = (
            (loss or Logistic()).value(scores, labels) if is_loss else measure.exact(scores, labels).astype(np.float64)
        )
        values[places] = bound.row_values(measured, places)
        size, total, squares = (
            np.bincount(bound.cell, weights=weights, minlength=bound.weights.shape[1])
            for weights in (np.ones_like(measured), measured, measured**2)
        )
        for place in places:
            # Rows of data that weigh the same in the row form a part; parts are disjoint even if its slices are not.
            weight, part = np.unique(bound.weights[place], return_inverse=True)
            rows, hits, squared = (np.bincount(part, weights=one) for one in (size, total, squares))
            variance = mean_variance(hits, squared, rows) if is_loss else rate_variance(hits, rows)
            inside = weight != 0
            errors[place] = np.sqrt(np.sum((weight * rows)[inside] ** 2 * variance[inside]))
    return values, errors
