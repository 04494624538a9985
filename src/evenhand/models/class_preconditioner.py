"""Solve with the curvature of a linear block where each row has a score for each class.

The curvature of the softmax loss couples the classes: row i contributes diag(p_i) − p_i p_iᵀ, with the probabilities
p_i of its classes. Blocks of moderate size are solved for all classes together; the others class by class, with
p(1 − p), which takes more rounds.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh

from evenhand.arrays import Array, Matrix
from evenhand.models.preconditioner import (
    LARGEST_AGAIN,
    LARGEST_SPECTRUM,
    RIDGE,
    make_preconditioner,
    middle,
    weighted_square,
)

LARGEST_TOGETHER: Final = 1200
"""Largest number of columns times classes to solve together."""
LEAST_SHARE: Final = 0.1
"""Share of equal probabilities that is mixed into those of a row: a row with little curvature may still move."""


class ClassPreconditioner:
    """Xᵀ W X + μI over the weights of all classes, where W follows from ν in each round.

    Parameters
    ----------
    matrix
        X, (n, m).
    classes
        Number of classes.
    regulariser
        μ.
    """

    def __init__(self, matrix: Matrix, classes: int, regulariser: float) -> None:
        rows, columns = matrix.shape
        self._n, self._classes, self._regulariser = rows, classes, regulariser
        self._square = weighted_square(matrix)
        unknowns, pairs = classes * columns, classes * (classes + 1) // 2
        effort = self._square.products * pairs + float(unknowns) ** 3 / 3.0
        self._apart = None
        if unknowns > LARGEST_TOGETHER or effort > LARGEST_AGAIN:
            self._apart = make_preconditioner(matrix, 0.25 / rows, regulariser)
        self.rows = self._square.rows if self._apart is None else self._apart.rows
        self.effort = effort if self._apart is None else classes * self._apart.effort

    def solve(self, gradients: Array, nu: Array, bands: int = 1) -> Array:
        """Return (classes, bands, m): the curvature's inverse times the gradients (classes, m).

        Parameters
        ----------
        nu
            ν of the rows that the preconditioner asks for, (classes, rows).
        """
        shares = _shares(self._n * nu)
        if self._apart is not None:
            weights = shares * (1.0 - shares) / self._n
            return np.array([self._apart.solve(*one, bands) for one in zip(gradients, weights, strict=True)])
        columns = gradients.shape[1]
        if not columns:
            return np.zeros((len(gradients), bands, 0))
        dense, units, floor = self._scaled(shares, columns)
        scaled = units * gradients.ravel()
        found = np.zeros((bands, len(scaled)))
        if bands == 1 or len(scaled) > LARGEST_SPECTRUM:
            factor = cho_factor(dense, lower=True, overwrite_a=True, check_finite=False)
            found[0] = cho_solve(factor, scaled, check_finite=False)
        else:
            values, vectors = eigh(dense, check_finite=False)
            along = vectors.T @ scaled / np.maximum(values, 1e-13)
            half = middle(values - floor * (units**2 @ vectors**2))
            found[0], found[1] = vectors[:, :half] @ along[:half], vectors[:, half:] @ along[half:]
        return (found * units).reshape(bands, len(gradients), columns).transpose(1, 0, 2)

    def _scaled(self, shares: Array, columns: int) -> tuple[Array, Array, float]:
        """Return the matrix with a unit diagonal, the units of its rows and columns, and what was added before."""
        size = self._classes * columns
        dense = np.zeros((size, size))
        for first in range(self._classes):
            here = slice(first * columns, (first + 1) * columns)
            dense[here, here] = self._square(shares[first] * (1.0 - shares[first]) / self._n)
            for second in range(first):
                there = slice(second * columns, (second + 1) * columns)
                both = self._square(shares[first] * shares[second] / self._n)
                dense[here, there], dense[there, here] = -both, -both.T
        diagonal = np.diag_indices(size)
        floor = max(self._regulariser, RIDGE * float(dense[diagonal].mean()), np.finfo(float).tiny)
        dense[diagonal] += floor
        units = 1.0 / np.sqrt(dense[diagonal])
        dense *= units * units[:, None]
        # Dependent columns make it semi-definite up to rounding; this keeps the factor real.
        dense[diagonal] += 1e-12
        return dense, units, floor


def _shares(slopes: Array) -> Array:
    """Return probabilities from derivatives of the loss, p − 1 at a row's label and p elsewhere.

    The estimate treats the tilt of the slices as part of the loss's slope.
    """
    shares = np.clip(slopes, 0.0, 1.0)
    labels, rows = slopes.argmin(axis=0), np.arange(slopes.shape[1])
    shares[labels, rows] = np.clip(1.0 + slopes[labels, rows], 0.0, 1.0)
    total = shares.sum(axis=0)
    shares = np.where(total > 0.0, shares / np.where(total > 0.0, total, 1.0), 1.0 / len(shares))
    return np.asarray((1.0 - LEAST_SHARE) * shares + LEAST_SHARE / len(shares))
