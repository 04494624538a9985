"""Linear models: over one party's columns (dense or sparse, with an optional intercept), and shared by all clients."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from evenhand.arrays import Array, Matrix
from evenhand.errors import InputError

SPARSE_BELOW = 0.15
"""Share of non-zeros below which sparse products are the faster ones, for blocks stored by column."""


def column_major(matrix: Matrix) -> Matrix:
    """Store a block column by column, sparse or dense by its share of non-zeros."""
    size = max(1, matrix.shape[0] * matrix.shape[1])
    filled = (matrix.nnz if sp.issparse(matrix) else np.count_nonzero(matrix)) / size
    if filled < SPARSE_BELOW:
        return sp.csc_array(matrix, dtype=np.float64)
    return np.asfortranarray(matrix.toarray() if sp.issparse(matrix) else matrix, dtype=np.float64)


class LinearModel:
    """scores = X w + b, with (μ/2)‖w‖² as regulariser; the intercept b is not regularised.

    With several outputs each has its own w and b, one after the other in `weights`; scores, and derivatives in them,
    are then (outputs, n).

    Columns are kept one after the other in memory (CSC, or Fortran order): on tall narrow blocks both products, with X
    and with Xᵀ, are then two to four times as fast as row by row (measured on Adult's six blocks).
    """

    def __init__(self, matrix: Matrix, regulariser: float, intercept: bool = False, outputs: int = 1) -> None:
        self._given = matrix
        self.rows, self.columns = matrix.shape
        self.regulariser = regulariser
        self.intercept = intercept
        self.outputs = outputs
        self.uncertainty: Callable[[], Array | None] | None = None
        """Returns the covariance of the slopes; set at the end of a training that can estimate it."""
        self.weights: Array = np.zeros(outputs * (self.columns + intercept))

    @property
    def table(self) -> Array:
        """(outputs, columns + intercept): the weights of each output."""
        return self.weights.reshape(self.outputs, self.columns + self.intercept)

    @property
    def slopes(self) -> Array:
        """(outputs, columns): the weights of the columns."""
        return self.table[:, : self.columns]

    @cached_property
    def matrix(self) -> Matrix:
        """The party's columns, stored when first needed: a solver may have its own copy."""
        matrix, self._given = column_major(self._given), None
        return matrix

    @cached_property
    def _transposed(self) -> Matrix:
        return self.matrix.T

    @cached_property
    def effort(self) -> float:
        return float(self.matrix.nnz if sp.issparse(self.matrix) else self.matrix.size)

    def scores(self) -> Array:
        return self.predict(self.matrix)

    def predict(self, matrix: Matrix) -> Array:
        if self.outputs > 1:
            several: Array = np.ascontiguousarray((matrix @ self.slopes.T).T)
            return several + self.table[:, -1:] if self.intercept else several
        scores: Array = matrix @ self.weights[: self.columns]
        if self.intercept:
            scores += self.weights[-1]
        return scores

    def gradient(self, nu: Array) -> Array:
        if self.outputs > 1:
            table = np.empty_like(self.table)
            table[:, : self.columns] = (self._transposed @ nu.T).T + self.regulariser * self.slopes
            if self.intercept:
                table[:, -1] = nu.sum(axis=1)
            return table.ravel()
        gradient = np.empty_like(self.weights)
        gradient[: self.columns] = self._transposed @ nu
        gradient[: self.columns] += self.regulariser * self.weights[: self.columns]
        if self.intercept:
            gradient[-1] = nu.sum()
        return gradient

    def move(self, change: Array) -> None:
        self.weights = self.weights + change

    def squared_norm(self) -> float:
        inner = self.slopes.ravel()
        return float(inner @ inner)

    def spectral_bound(self) -> float:
        """Return the squared spectral norm of [X, 1], from the Gram matrix or, for many columns, by power iteration.

        A power iteration approaches from below, with a margin for its error. Its start must be in general position:
        a vector of ones is orthogonal to the largest direction as soon as two columns are each other's opposite.
        """
        size = self.weights.size
        if size == 0:
            return 0.0
        if size <= 512:
            gram = np.zeros((size, size))
            inner = self._transposed @ self.matrix
            gram[: self.columns, : self.columns] = inner.toarray() if sp.issparse(inner) else inner
            if self.intercept:
                gram[-1, :-1] = gram[:-1, -1] = self._transposed @ np.ones(self.rows)
                gram[-1, -1] = self.rows
            return (1.0 + 1e-9) * max(0.0, float(np.linalg.eigvalsh(gram)[-1]))
        vector = np.random.default_rng(0).standard_normal(size)
        for _ in range(30):
            length = float(np.linalg.norm(vector))
            if length == 0.0:
                return 0.0
            vector /= length
            image = self.matrix @ vector[: self.columns] + (vector[-1] if self.intercept else 0.0)
            vector[: self.columns] = self._transposed @ image
            if self.intercept:
                vector[-1] = image.sum()
        return 1.05 * float(np.linalg.norm(vector))


class SharedLinear:
    """scores = X w + b, the model of all clients; w and b as one vector.

    With several classes the vector holds the weights of all classes, class by class, and then their intercepts.
    """

    def __init__(self, weights: Array, classes: int | None = None) -> None:
        self.weights = weights
        self.classes = classes

    def predict(self, features: Matrix) -> Array:
        """Return one score a row, positive for label +1, or (rows, classes)."""
        rows: Matrix = features if sp.issparse(features) else np.asarray(features, dtype=np.float64)
        outputs = self.classes or 1
        columns = len(self.weights) // outputs - 1
        if rows.ndim != 2 or rows.shape[1] != columns:
            raise InputError(f"rows have the shape {rows.shape[1:]}; the model was trained on {columns} columns")
        if self.classes is None:
            found: Array = rows @ self.weights[:-1] + self.weights[-1]
            return found
        scores: Array = rows @ self.weights[:-outputs].reshape(outputs, columns).T + self.weights[-outputs:]
        return scores
