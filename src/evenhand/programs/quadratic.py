"""Quadratic programs: ½ wᵀAw + bᵀw subject to lower ≤ C w ≤ upper at each client (proximal AL Eq. 84)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array
from evenhand.constraints.slices import Bounds
from evenhand.errors import InputError
from evenhand.programs.program import Curvature


class QuadraticProgram:
    """One client's summand of a quadratic program.

    Parameters
    ----------
    matrix, linear
        A (symmetric, positive semidefinite) and b; None for a server that has rows only.
    rows
        C, (m, d).
    lower, upper
        Bounds of C w; equal for equalities. For the paper's C w + d = 0 both are −d.
    """

    curvature: Curvature = "matrix"
    shared = 0

    def __init__(
        self,
        matrix: Array | None,
        linear: Array | None,
        rows: npt.ArrayLike | None = None,
        lower: npt.ArrayLike = (),
        upper: npt.ArrayLike = (),
    ) -> None:
        sizes = [np.shape(part)[-1] for part in (matrix, linear, rows) if part is not None]
        if not sizes or len(set(sizes)) > 1:
            raise InputError(f"matrix, linear and rows are for {sizes} weights; they must agree")
        self.weights = int(sizes[0])
        self.curved = matrix is not None
        self.matrix = np.zeros((self.weights, self.weights)) if matrix is None else np.asarray(matrix, dtype=np.float64)
        self.linear = np.zeros(self.weights) if linear is None else np.asarray(linear, dtype=np.float64)
        self.rows: Array = np.zeros((0, self.weights)) if rows is None else np.array(rows, dtype=np.float64, ndmin=2)
        self.own = Bounds(lower, upper)
        if self.own.n_rows != len(self.rows):
            raise InputError(f"{len(self.rows)} rows and {self.own.n_rows} bounds; give one of each")
        self.effort = float(self.weights * (self.weights + len(self.rows)))

    def at(self, weights: Array) -> QuadraticPoint:
        return QuadraticPoint(self, weights)


class QuadraticPoint:
    """A quadratic program at one w."""

    def __init__(self, program: QuadraticProgram, weights: Array) -> None:
        self._of = program
        self._weights = weights
        self._image: Array = program.matrix @ weights if program.curved else np.zeros(program.weights)

    @property
    def value(self) -> float:
        return float(self._weights @ (0.5 * self._image + self._of.linear))

    @property
    def gradient(self) -> Array:
        return self._image + self._of.linear

    @property
    def constraints(self) -> Array:
        return self._of.rows @ self._weights

    @property
    def jacobian(self) -> Array:
        return self._of.rows

    def hessian(self, net: Array) -> Array:
        return self._of.matrix.copy()

    def hessian_product(self, net: Array, direction: Array) -> Array:
        return self._of.matrix @ direction
