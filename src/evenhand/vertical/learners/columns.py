"""Outputs of learners as columns of a tiny problem, with an intercept as the last column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evenhand.arrays import Array
from evenhand.programs.combining.columns import DenseColumns
from evenhand.programs.combining.reduced import independent


class OutputColumns(DenseColumns):
    """Columns of unit spread, each with the same ridge on its coefficient; the intercept has none.

    Parameters
    ----------
    rounds
        Columns (columns, rows) of each round.
    """

    def __init__(self, rounds: Sequence[Array], intercept: bool) -> None:
        own = [np.ones((1, rounds[0].shape[1]))] if intercept else []
        columns = np.concatenate([*rounds, *own])
        # Coefficients of nearly dependent columns would be large, and of either sign. Earlier columns stay.
        columns[~independent(columns @ columns.T)] = 0.0
        super().__init__(columns.T)
        self._restrained = np.arange(self.width) < self.width - intercept

    def quadratic_forms(self, matrix: Array) -> Array:
        """Return c_iᵀ M c_i of each row c_i."""
        found: Array = np.einsum("pn,pn->n", self._basis, matrix @ self._basis)
        return found

    def ridge(self, share: float, constant: float, curvature: Array) -> Array:
        """Return the ridge on coefficients, a constant times each one's square."""
        return np.diag(np.where(self._restrained, constant, 0.0))
