"""Solving with a bound on a linear block's curvature, κ XᵀX + μI: the local half of a subspace round.

The bound needs only the party's own columns, so it is formed and factored once. Narrow blocks are factored as they
are, short ones (fewer rows than columns) through their rows, and those too large either way are solved by conjugate
gradients, which cost passes over the party's own data but no messages.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.linalg import LinearOperator, cg

from evenhand.arrays import Array, Matrix

LARGEST_FACTOR = 3000
"""Largest matrix to factor: 70 MB and about a second."""
RIDGE = 1e-10
"""Share of the mean diagonal added where μ is too small to make a singular block definite."""


class Preconditioner(Protocol):
    effort: float
    """Multiplications of one solve."""

    def solve(self, gradient: Array) -> Array: ...


def make_preconditioner(matrix: Matrix, curvature: float, regulariser: float) -> Preconditioner:
    """(κ XᵀX + μI)⁻¹ for a block X (n × m), with κ = `curvature` and μ = `regulariser`."""
    rows, columns = matrix.shape
    squares = np.asarray(
        matrix.multiply(matrix).sum(axis=0) if sp.issparse(matrix) else (matrix**2).sum(axis=0)
    ).ravel()
    diagonal = curvature * squares
    floor = max(regulariser, RIDGE * float(diagonal.mean()) if columns else 0.0, np.finfo(float).tiny)
    if columns <= LARGEST_FACTOR:
        return _Factored(matrix, curvature, floor)
    if rows <= LARGEST_FACTOR:
        return _FactoredByRows(matrix, curvature, floor)
    return _Iterated(matrix, curvature, floor, diagonal)


class _Factored:
    """Cholesky, in units that make the diagonal one: ill-scaled columns then cost no digits."""

    def __init__(self, matrix: Matrix, curvature: float, floor: float) -> None:
        square = matrix.T @ matrix
        dense = curvature * (square.toarray() if sp.issparse(square) else square)
        dense[np.diag_indices_from(dense)] += floor
        self._units = 1.0 / np.sqrt(dense.diagonal())
        dense *= self._units * self._units[:, None]
        # Dependent columns leave it semi-definite up to rounding; this much keeps the factor real.
        dense[np.diag_indices_from(dense)] += 1e-13
        self._factor = cho_factor(dense, lower=True, overwrite_a=True, check_finite=False)
        self.effort = float(dense.size)

    def solve(self, gradient: Array) -> Array:
        return self._units * cho_solve(self._factor, self._units * gradient, check_finite=False)


class _FactoredByRows:
    """By the matrix inversion lemma: (κXᵀX + μI)⁻¹ = (I − Xᵀ (XXᵀ + (μ/κ) I)⁻¹ X) / μ."""

    def __init__(self, matrix: Matrix, curvature: float, floor: float) -> None:
        outer = matrix @ matrix.T
        dense = outer.toarray() if sp.issparse(outer) else outer
        dense[np.diag_indices_from(dense)] += floor / curvature
        self._matrix, self._floor = matrix, floor
        self._factor = cho_factor(dense, lower=True, overwrite_a=True, check_finite=False)
        self.effort = float(dense.size)

    def solve(self, gradient: Array) -> Array:
        inner = cho_solve(self._factor, self._matrix @ gradient, check_finite=False)
        return (gradient - self._matrix.T @ inner) / self._floor


class _Iterated:
    """Conjugate gradients with a diagonal preconditioner, a fixed number of steps: a direction, not a solution.

    However few the steps, the result is a descent direction, and the server's search over directions and history does
    the rest.
    """

    STEPS = 20

    def __init__(self, matrix: Matrix, curvature: float, floor: float, diagonal: Array) -> None:
        columns = matrix.shape[1]
        inverse = 1.0 / (diagonal + floor)
        self._operator = LinearOperator(
            (columns, columns),
            matvec=lambda v: curvature * (matrix.T @ (matrix @ v)) + floor * v,
            dtype=np.float64,
        )
        self._diagonal = LinearOperator((columns, columns), matvec=lambda v: inverse * v, dtype=np.float64)
        entries = matrix.nnz if sp.issparse(matrix) else matrix.size
        self.effort = float(2 * self.STEPS * entries)

    def solve(self, gradient: Array) -> Array:
        solution, _ = cg(self._operator, gradient, rtol=1e-3, maxiter=self.STEPS, M=self._diagonal)
        return np.asarray(solution, dtype=np.float64)
