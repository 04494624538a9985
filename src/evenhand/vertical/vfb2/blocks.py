"""A party's data stored by rows, and the state that VFB² keeps for each column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from evenhand.arrays import Array, Integers, Matrix
from evenhand.errors import DataError
from evenhand.privacy.compiled import decode_scalar
from evenhand.privacy.fixed_point import largest
from evenhand.protocol.roles import Sends, Task
from evenhand.vertical.vfb2.kernels import (
    BOUNDED,
    DENSE_BOUNDED,
    DENSE_RIDGE,
    DRIFT,
    FRACTION_BITS,
    KEEP,
    RARITY,
    RIDGE,
    SCALE,
    WEIGHT,
    compiled,
    row_score,
)
from evenhand.vertical.vfb2.options import VFB2

Sums = NDArray[np.uint64]
"""Masks, and sums of masked numbers in fixed point."""
REGULARISERS = {
    ("ridge", "sparse"): RIDGE,
    ("bounded", "sparse"): BOUNDED,
    ("ridge", "dense"): DENSE_RIDGE,
    ("bounded", "dense"): DENSE_BOUNDED,
}


class Block:
    """One party's rows (CSR) and columns. The intercept, if any, is a last column of ones.

    Parameters
    ----------
    ridge
        λ of the regulariser, which does not apply to the intercept.
    """

    state_fields: ClassVar = {"state_columns": Array}

    def __init__(self, name: str, matrix: Matrix, ridge: float, options: VFB2, intercept: bool) -> None:
        stored = sp.csr_array(matrix) if not sp.issparse(matrix) or matrix.format != "csr" else matrix
        self.name = name
        self.rows, width = stored.shape
        # Arrays of the right type are not copied, because the data may fill half the memory. Indices are unsigned,
        # because compiled code checks signed ones for negative values.
        self.starts = stored.indptr.astype(np.int64, copy=False).view(np.uint64)
        self.indices = stored.indices.astype(np.int32, copy=False).view(np.uint32)
        self.data = stored.data.astype(np.float64, copy=False)
        self._check(width)
        if intercept:
            self._append_ones(width)
            width += 1
        self.columns: Array = np.zeros((width, 4))
        self.regulariser = REGULARISERS[options.regulariser, options.update]
        self._dense = options.update == "dense"
        self._is_ridge = options.regulariser == "ridge"
        self._ridge = ridge
        self._regularised = slice(0, width - intercept)

    def _check(self, width: int) -> None:
        """Refuse invalid data, because compiled loops do not check it."""
        if len(self.indices) and int(self.indices.max()) >= width:
            raise DataError(f"{self.name}: a row names column {int(self.indices.max())}, but there are {width} columns")
        if not np.isfinite(self.data.sum()) and not np.isfinite(self.data).all():
            raise DataError(f"{self.name}: its columns hold missing or infinite numbers; fill or drop them")

    def _append_ones(self, place: int) -> None:
        """Append an entry of one to every row."""
        starts = self.starts + np.arange(self.rows + 1, dtype=np.uint64)
        indices = np.empty(starts[-1], dtype=np.uint32)
        data = np.empty(starts[-1])
        _append(self.starts, self.indices, self.data, np.uint32(place), indices, data)
        self.starts, self.indices, self.data = starts, indices, data

    def sort_rows(self, order: Integers) -> None:
        """Store the rows in this order."""
        starts = np.zeros_like(self.starts)
        np.cumsum(np.diff(self.starts)[order], out=starts[1:])
        indices, data = np.empty_like(self.indices), np.empty_like(self.data)
        _sort(self.starts, self.indices, self.data, order, starts, indices, data)
        self.starts, self.indices, self.data = starts, indices, data

    def give_up_rows(self) -> None:
        """Release the rows after another store has copied them."""
        # Empty copies: even an empty view would keep the whole array in memory.
        self.starts, self.indices, self.data = (part[:0].copy() for part in (self.starts, self.indices, self.data))

    @property
    def weights(self) -> Array:
        return self.columns[:, WEIGHT]

    @property
    def state_columns(self) -> Array:
        """Columns for checkpoints. Arrays of another shape are refused."""
        return self.columns

    @state_columns.setter
    def state_columns(self, columns: Array) -> None:
        self.columns[:] = columns

    def squared_norms(self) -> Array:
        """Return ‖(x_i)_ℓ‖² of each row."""
        norms = np.zeros(self.rows)
        add_up_squares(self.starts, self.data, norms)
        return norms

    def set_chances(self, chances: Array) -> None:
        """Compute from the row probabilities how rarely each column is touched."""
        shares = np.zeros(len(self.columns))
        if not self._dense:
            column_shares(self.starts, self.indices, chances, shares)
        self.set_shares(shares)

    def set_shares(self, shares: Array) -> None:
        """Set the share of drawn rows that touch each column. A column without entries is never touched."""
        self.columns[:, RARITY] = 1.0 if self._dense else 1.0 / np.where(shares > 0, shares, 1.0)

    def set_step(self, step: float) -> None:
        """Set KEEP of each column for `row_update`."""
        keep = self.columns[:, KEEP]
        keep[:] = 0.0
        np.multiply(self.columns[self._regularised, RARITY], step * self._ridge, out=keep[self._regularised])
        if self._is_ridge and not self._dense:
            keep += 1.0
            np.reciprocal(keep, out=keep)

    def scores(self) -> Array:
        scores = np.empty(self.rows)
        _scores(self.starts, self.indices, self.data, self.columns, largest(1, FRACTION_BITS), scores)
        return scores

    def loss_gradient(self, nu: Array) -> Array:
        """Return Σ_i ν_i (x_i)_ℓ."""
        gradient = np.zeros(len(self.columns))
        _gradient(self.starts, self.indices, self.data, nu, gradient)
        return gradient

    def set_drift(self, loss_gradient: Array) -> None:
        np.multiply(loss_gradient, self.columns[:, RARITY], out=self.columns[:, DRIFT])

    def squared_gradient(self, loss_gradient: Array) -> float:
        """Return ‖∇_ℓ‖² including the regulariser."""
        weights = self.weights[self._regularised]
        slope = weights if self._is_ridge else weights / (1.0 + weights**2) ** 2
        gradient = loss_gradient.copy()
        gradient[self._regularised] += self._ridge * slope
        return float(gradient @ gradient)

    def penalty(self) -> float:
        """Return Σ w², or Σ w²/(1+w²), over the regularised columns.

        Times λ/2 it is the party's part of the objective.
        """
        squares = self.weights[self._regularised] ** 2
        return float((squares if self._is_ridge else squares / (1.0 + squares)).sum())


@compiled
def _append(starts: Any, indices: Any, data: Any, last: int, wider_indices: Any, wider_data: Any) -> None:
    target = 0
    for row in range(len(starts) - 1):
        for place in range(starts[row], starts[row + 1]):
            wider_indices[target] = indices[place]
            wider_data[target] = data[place]
            target += 1
        wider_indices[target] = last
        wider_data[target] = 1.0
        target += 1


@compiled
def _sort(starts: Any, indices: Any, data: Any, order: Any, new_starts: Any, new_indices: Any, new_data: Any) -> None:
    for place in range(len(order)):
        target = new_starts[place]
        for source in range(starts[order[place]], starts[order[place] + 1]):
            new_indices[target] = indices[source]
            new_data[target] = data[source]
            target += np.uint64(1)


@compiled
def add_up_squares(starts: Any, data: Any, norms: Any) -> None:
    """Compute ‖x_i‖² of consecutive rows."""
    for row in range(len(norms)):
        total = 0.0
        for place in range(starts[row], starts[row + 1]):
            total += data[place] * data[place]
        norms[row] = total


@compiled
def column_shares(starts: Any, indices: Any, chances: Any, shares: Any) -> None:
    """Add up the probability that a drawn row touches each column."""
    for row in range(len(chances)):
        for place in range(starts[row], starts[row + 1]):
            shares[indices[place]] += chances[row]


@compiled
def _scores(starts: Any, indices: Any, data: Any, columns: Any, limit: float, scores: Any) -> None:
    for row in range(len(scores)):
        total, size = row_score(indices, data, starts[row], starts[row + 1], columns)
        # Scores beyond the range of fixed point are refused where they are masked.
        scores[row] = decode_scalar(total, SCALE) if size <= limit else size


@compiled
def _gradient(starts: Any, indices: Any, data: Any, nu: Any, gradient: Any) -> None:
    for row in range(len(nu)):
        for place in range(starts[row], starts[row + 1]):
            gradient[indices[place]] += nu[row] * data[place]


class BlockWork(Task):
    """Updates of a party's block, followed by scorings. Several tasks may work on one block at once, without a lock.

    Parameters
    ----------
    update, score
        Functions to call for each. Both return the number of multiplications.
    updates
        Steps with their ϑ.
    scorings
        Steps with the masks for their rows.

    Attributes
    ----------
    scored
        Steps with their masks and masked scores.
    """

    def __init__(
        self,
        update: Callable[[int, Array], float],
        score: Callable[[int, Sums], float],
        sends: Sends,
        updates: list[tuple[int, Array]],
        scorings: list[tuple[int, Sums]],
    ) -> None:
        self.sends = sends
        self.updates = updates
        self.scorings = scorings
        self.scored: list[tuple[int, Sums, Sums]] = []
        self.effort = 0.0
        self._update = update
        self._score = score

    def run(self) -> None:
        for step, theta in self.updates:
            self.effort += self._update(step, theta)
        for step, masks in self.scorings:
            sums = masks.copy()
            self.effort += self._score(step, sums)
            self.scored.append((step, masks, sums))
