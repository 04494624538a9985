"""The compiled arithmetic of VFB²: a row's partial score, ϑ of a score, and a block's update by a row.

Each function works on one row of one party's block, stored by rows (CSR), and releases the interpreter's lock. The
interleaver, the roles and the threads are three ways of calling them. The cost of an update depends on the row's
non-zeros, not on the number of columns. SVRG and SAGA add a dense term (the mean gradient) and every rule a
regulariser. Only the row's own columns are touched, each scaled by 1 / (share of drawn rows that touch it), so that the
sum over rows is the same (Leblond, Pedregosa and Lacoste-Julien, ASAGA, 2017).

The state of a column is contiguous in memory, in one row of `columns`. An update then waits for memory once.

Loops over a batch of one party take rows as an array in which −1 marks an unused entry, as in the messages. The threads
of a party share its block without waiting for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from typing import Any, Final

import numba
import numpy as np

from evenhand.privacy.compiled import decode_scalar, encode_scalar

FRACTION_BITS: Final = 44
"""Fraction bits of the fixed point for masks: a term's error is below 10⁻¹³, and sums of scores may reach ±500,000."""
SCALE: Final = 2.0**FRACTION_BITS
WEIGHT, DRIFT, KEEP, RARITY = 0, 1, 2, 3
"""Entries of a column's row in `columns`: w_j; the mean gradient over the column's share of drawn rows; what the
regulariser needs (see `row_update`); and 1 / share."""
RIDGE, BOUNDED, DENSE_RIDGE, DENSE_BOUNDED = 0, 1, 2, 3
"""Regularisers: λ/2 w², and the paper's nonconvex λ/2 w² / (1 + w²). The last two take explicit steps."""
LOGISTIC, SQUARED = 0, 1
"""Indices of losses, in the order of `LOSSES`."""
LOSSES: Final = ("logistic", "squared")
SGD, SVRG, SAGA = 0, 1, 2
"""Update rules, in the order of `RULES`."""
RULES = ("sgd", "svrg", "saga")
LOSS, ERROR, POSITIVE = 0, 1, 2
"""Indices of measures, in the order of `evenhand.constraints.losses.MEASURES`."""


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile without the interpreter's lock, and cache the machine code on disk for the next process."""
    made: Callable[..., Any] = numba.njit(nogil=True, cache=True, error_model="numpy")(function)
    return made


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile inline. For functions called for every row: a call with arrays costs more than a row's update."""
    made: Callable[..., Any] = numba.njit(nogil=True, cache=True, error_model="numpy", inline="always")(function)
    return made


@inlined
def row_score(indices: Any, data: Any, start: int, stop: int, columns: Any) -> tuple[np.uint64, float]:
    """Return w_ℓᵀ(x_i)_ℓ in fixed point modulo 2⁶⁴, and the sum of its terms' absolute values.

    The row's entries are `start` to `stop`. Each term is rounded by itself. Integers add up to the same sum in any
    order. A row's score therefore does not depend on which party has which column, and one loop may add the terms of
    all parties at once. If the sum of absolute values exceeds the range of fixed point, or is NaN, the score is
    invalid.
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
def theta(loss: int, score: float, label: float, stratum: int, tilts: Any, measures: Any, temperatures: Any) -> float:
    """Return ϑ = ∂L/∂(wᵀx_i): n times the row's part of the Lagrangian's derivative.

    `tilts[cell, k]` is n times what the multipliers add to the weight of a row of this stratum in the k-th measure;
    `temperatures[k]` is the measure's temperature and cut. Without constraints there is no measure, and ϑ is that of
    the paper.
    """
    slope = score - label if loss == SQUARED else -label * sigmoid(-label * score)
    total = slope
    for k in range(measures.shape[0]):
        if tilts[stratum, k] != 0.0:
            if measures[k] == LOSS:
                total += tilts[stratum, k] * slope
            else:
                direction = -label if measures[k] == ERROR else 1.0
                rate = sigmoid(direction * (score - temperatures[k, 1]) / temperatures[k, 0])
                total += tilts[stratum, k] * rate * (1.0 - rate) * direction / temperatures[k, 0]
    return total


@inlined
def row_update(
    indices: Any, data: Any, start: int, stop: int, columns: Any, regulariser: int, step: float, change: float
) -> None:
    """Update w_j ← (w_j − γ(change · x_ij + drift_j)) / (1 + γ λ_j c(w_j)) for the row's columns.

    `change` is ϑ minus its reference (none in SGD), divided by n times the row's probability. λ_j is λ divided by the
    column's share. The regulariser is taken implicitly: a column that one row in n touches has λ_j = nλ, and an
    explicit step would overshoot. c is 1 for the ridge, and KEEP is then the factor 1 / (1 + γ λ_j). For the bounded
    regulariser c = (1 + w²)⁻², and KEEP is γ λ_j. The fixed point is that of the explicit step. For explicit steps this
    does only the row's own part, after `dense_move`.
    """
    # Entries are accessed one by one: a view of the column's row would cost more than the arithmetic.
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
    """Take an explicit step without the row's own part: w_j ← w_j − γ(drift_j + λ c(w_j) w_j) for the block's columns.

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
    """Update SAGA's mean gradient after a row's scalar has changed by n · `change`."""
    for place in range(start, stop):
        j = indices[place]
        columns[j, DRIFT] += change * data[place] * columns[j, RARITY]


@compiled
def mask_values(values: Any, scale: float, limit: float, masks: Any, sums: Any) -> bool:
    """Compute value + mask modulo 2⁶⁴ for each value; return False if one is too large to be masked."""
    for place in range(len(values)):
        if not abs(values[place]) <= limit:
            return False
        sums[place] = encode_scalar(values[place], scale) + masks[place]
    return True


@compiled
def batch_scores(starts: Any, indices: Any, data: Any, columns: Any, rows: Any, limit: float, sums: Any) -> float:
    """Add w_ℓᵀ(x_i)_ℓ to the mask of each row of a batch (VFB² Algorithm 1, steps 2-3).

    Return the number of multiplications, or −1 if a partial score is too large to be masked.
    """
    multiplications = 0.0
    for place in range(len(rows)):
        row = rows[place]
        if row >= 0:
            score, size = row_score(indices, data, starts[row], starts[row + 1], columns)
            if not size <= limit:
                return -1.0
            sums[place] += score
            multiplications += starts[row + 1] - starts[row]
    return multiplications


@compiled
def batch_theta(theta_inputs: Any, rows: Any, sums: Any, thetas: Any) -> None:
    """Compute ϑ of a batch's rows from their summed scores in fixed point (VFB² Algorithm 2, step 4)."""
    for place in range(len(rows)):
        row = rows[place]
        thetas[place] = 0.0
        if row >= 0:
            thetas[place] = theta(
                theta_inputs.loss,
                decode_scalar(sums[place], SCALE),
                theta_inputs.labels[row],
                theta_inputs.strata[row],
                theta_inputs.tilts,
                theta_inputs.measures,
                theta_inputs.temperatures,
            )


@compiled
def batch_update(
    starts: Any,
    indices: Any,
    data: Any,
    columns: Any,
    regulariser: int,
    rule: int,
    step: float,
    rows: Any,
    weights: Any,
    thetas: Any,
    references: Any,
) -> float:
    """Update a block row by row with the party's own references (VFB² Algorithm 3, steps 3-4).

    Return the number of multiplications.
    """
    multiplications = 0.0
    for place in range(len(rows)):
        row = rows[place]
        if row < 0:
            continue
        start, stop = starts[row], starts[row + 1]
        change = thetas[place]
        if rule != SGD:
            change -= references[row]
        dense_move(columns, 0, len(columns), regulariser, step)
        row_update(indices, data, start, stop, columns, regulariser, step, change * weights[row])
        if rule == SAGA:
            row_remember(indices, data, start, stop, columns, change / len(references))
            references[row] = thetas[place]
        multiplications += stop - start
    return multiplications
