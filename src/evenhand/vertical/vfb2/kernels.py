"""The arithmetic of VFB², compiled: a row's partial score, ϑ of a score, and a block's update by a row.

Everything here works on one row of one party's block, stored by rows (CSR), and releases the interpreter's lock; the
interleaver, the roles and the threads are three ways of calling it. An update costs the row's non-zeros, not the number
of columns: where SVRG and SAGA add a dense term (the mean gradient) and every rule a regulariser, only the row's own
columns are touched, each scaled by 1 / (share of drawn rows that touch it), so that the sum over rows is the same
(Leblond, Pedregosa and Lacoste-Julien, ASAGA, 2017).

What is kept for a column lies side by side in memory, in one row of `columns`: an update then waits for memory once.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from typing import Any, Final

import numba
import numpy as np

from evenhand.privacy.compiled import encode_scalar

FRACTION_BITS: Final = 44
"""Of the fixed point that masks need: a term is off by less than 10⁻¹³, and sums of scores may reach ±500,000."""
SCALE: Final = 2.0**FRACTION_BITS
WEIGHT, DRIFT, KEEP, RARITY = 0, 1, 2, 3
"""Entries of a column's row in `columns`: w_j; the mean gradient over the column's share of drawn rows; what the
regulariser needs (see `row_update`); and 1 / share."""
RIDGE, BOUNDED, DENSE_RIDGE, DENSE_BOUNDED = 0, 1, 2, 3
"""Regularisers: λ/2 w², and the paper's nonconvex λ/2 w² / (1 + w²); the last two in explicit steps of all columns."""
LOGISTIC, SQUARED = 0, 1
"""Losses, in the order of `LOSSES`."""
LOSSES: Final = ("logistic", "squared")
LOSS, ERROR, POSITIVE = 0, 1, 2
"""Measures, in the order of `evenhand.constraints.losses.MEASURES`."""


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile, free of the interpreter's lock, and keep the machine code on disk for the next process."""
    made: Callable[..., Any] = numba.njit(nogil=True, cache=True, error_model="numpy")(function)
    return made


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for what is called once or more a row: a call that hands over arrays costs more than a row's update."""
    made: Callable[..., Any] = numba.njit(nogil=True, cache=True, error_model="numpy", inline="always")(function)
    return made


@inlined
def row_score(indices: Any, data: Any, start: int, stop: int, columns: Any) -> tuple[np.uint64, float]:
    """w_ℓᵀ(x_i)_ℓ in fixed point modulo 2⁶⁴, and the sum of its terms' sizes; the row's entries are `start` to `stop`.

    Every term is rounded by itself. Whole numbers add up to the same in any order, so that a row's score does not
    depend on which parties have which of its columns, and one loop may add all parties' terms at once. A sum of sizes
    beyond what fixed point holds, or none at all, says that the score is worth nothing.
    """
    total, size = np.uint64(0), 0.0
    for place in range(start, stop):
        term = data[place] * columns[indices[place], WEIGHT]
        size += abs(term)
        total += encode_scalar(term, SCALE)
    return total, size


@compiled
def sigmoid(value: float) -> float:
    if value >= 0.0:
        return 1.0 / (1.0 + exp(-value))
    tail = exp(value)
    return tail / (1.0 + tail)


@inlined
def theta(loss: int, score: float, label: float, cell: int, tilts: Any, measures: Any, temperatures: Any) -> float:
    """ϑ = ∂L/∂(wᵀx_i): n times the row's part of the Lagrangian's derivative.

    `tilts[cell, k]` is n times what the multipliers add to the weight of a row of this cell in the k-th measure.
    Without constraints there is no measure, and ϑ is the paper's.
    """
    slope = score - label if loss == SQUARED else -label * sigmoid(-label * score)
    total = slope
    for k in range(measures.shape[0]):
        if tilts[cell, k] != 0.0:
            if measures[k] == LOSS:
                total += tilts[cell, k] * slope
            else:
                direction = -label if measures[k] == ERROR else 1.0
                rate = sigmoid(direction * score / temperatures[k])
                total += tilts[cell, k] * rate * (1.0 - rate) * direction / temperatures[k]
    return total


@inlined
def row_update(
    indices: Any, data: Any, start: int, stop: int, columns: Any, regulariser: int, step: float, change: float
) -> None:
    """w_j ← (w_j − γ(change · x_ij + drift_j)) / (1 + γ λ_j c(w_j)) for the row's columns.

    `change` is ϑ less its reference (SGD has none) over n times the row's chance; λ_j is λ over the column's
    share. The regulariser is taken implicitly: a column that one row in n touches has λ_j = nλ, and an explicit step
    would overshoot. c is 1 for the ridge, for which KEEP is the finished factor 1 / (1 + γ λ_j); for the bounded
    regulariser c = (1 + w²)⁻² and KEEP is γ λ_j. The fixed point is the explicit step's, of which this does the row's
    own part only, after `dense_move`.
    """
    # Entries are named one by one: a view of the column's row would cost more than the arithmetic.
    if regulariser == RIDGE:
        for place in range(start, stop):
            j = indices[place]
            moved = columns[j, WEIGHT] - step * (change * data[place] + columns[j, DRIFT])
            columns[j, WEIGHT] = moved * columns[j, KEEP]
    elif regulariser == BOUNDED:
        for place in range(start, stop):
            j = indices[place]
            moved = columns[j, WEIGHT] - step * (change * data[place] + columns[j, DRIFT])
            bound = 1.0 + columns[j, WEIGHT] ** 2
            columns[j, WEIGHT] = moved / (1.0 + columns[j, KEEP] / (bound * bound))
    else:
        for place in range(start, stop):
            columns[indices[place], WEIGHT] -= step * change * data[place]


@inlined
def dense_move(columns: Any, first: int, stop: int, regulariser: int, step: float) -> None:
    """An explicit step but for the row's own part: w_j ← w_j − γ(drift_j + λ c(w_j) w_j) for the block's columns.

    KEEP is γ λ. Does nothing where steps are sparse.
    """
    if regulariser == DENSE_RIDGE:
        for j in range(first, stop):
            columns[j, WEIGHT] -= step * columns[j, DRIFT] + columns[j, KEEP] * columns[j, WEIGHT]
    elif regulariser == DENSE_BOUNDED:
        for j in range(first, stop):
            bound = 1.0 + columns[j, WEIGHT] ** 2
            columns[j, WEIGHT] -= step * columns[j, DRIFT] + columns[j, KEEP] * columns[j, WEIGHT] / (bound * bound)


@inlined
def row_remember(indices: Any, data: Any, start: int, stop: int, columns: Any, change: float) -> None:
    """SAGA: the mean gradient after a row's scalar has moved by n · `change`."""
    for place in range(start, stop):
        j = indices[place]
        columns[j, DRIFT] += change * data[place] * columns[j, RARITY]
