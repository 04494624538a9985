"""Compiled loops of VFB²'s parties: a batch of rows, or all of them, at one party.

Rows come as an array in which −1 marks an unused entry, as in the messages. All loops release the interpreter's lock,
so that the threads of one party share its block without waiting for each other.
"""

from __future__ import annotations

from typing import Any

from evenhand.privacy.compiled import decode_scalar, encode_scalar
from evenhand.vertical.vfb2.interleaver import SAGA, SGD
from evenhand.vertical.vfb2.kernels import SCALE, compiled, dense_move, row_remember, row_score, row_update, theta


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
