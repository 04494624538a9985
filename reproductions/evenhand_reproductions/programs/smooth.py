"""A program of plain numpy functions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array
from evenhand.constraints.slices import Bounds
from evenhand.errors import InputError
from evenhand.programs.program import Curvature


class SmoothProgram:
    """A program of plain functions of w.

    Parameters
    ----------
    weights
        d.
    value, gradient
        f and ∇f; None for a server without an objective.
    hessian, hessian_product
        ∇²f(w), or (w, direction) → ∇²f(w) · direction. With neither, local problems are solved by L-BFGS.
    constraints, jacobian
        c(w), (m,), and its derivative, (m, d).
    constraint_hessian, constraint_hessian_product
        (w, y) → Σ y_j ∇²c_j(w), or (w, y, direction) → the same times a direction. Leave both out for linear rows.
    lower, upper
        Bounds of the rows of c, those of its first m − `shared` rows.
    shared
        How many of the last rows of c are summands of shared rows.
    """

    def __init__(
        self,
        weights: int,
        value: Callable[[Array], float] | None = None,
        gradient: Callable[[Array], Array] | None = None,
        *,
        hessian: Callable[[Array], Array] | None = None,
        hessian_product: Callable[[Array, Array], Array] | None = None,
        constraints: Callable[[Array], Array] | None = None,
        jacobian: Callable[[Array], Array] | None = None,
        constraint_hessian: Callable[[Array, Array], Array] | None = None,
        constraint_hessian_product: Callable[[Array, Array, Array], Array] | None = None,
        lower: npt.ArrayLike = (),
        upper: npt.ArrayLike = (),
        shared: int = 0,
    ) -> None:
        if (value is None) != (gradient is None):
            raise InputError("give value and gradient of the objective, or neither")
        if (constraints is None) != (jacobian is None):
            raise InputError("give constraints and their jacobian, or neither")
        self.weights = weights
        self.own = Bounds(lower, upper)
        self.shared = shared
        if constraints is None and (self.own.n_sides or shared):
            raise InputError("there are bounds, but no constraints they bound")
        self.value = value
        self.gradient = gradient
        self.hessian = hessian
        self.hessian_product = hessian_product
        self.constraints = constraints
        self.jacobian = jacobian
        self.constraint_hessian = constraint_hessian
        self.constraint_hessian_product = constraint_hessian_product
        self.effort = float(weights)
        known = value is None or hessian is not None
        self.curvature: Curvature = "none"
        if known and constraint_hessian_product is None:
            self.curvature = "matrix"
        elif known or hessian_product is not None:
            self.curvature = "product"

    @property
    def rows(self) -> int:
        return self.own.n_rows + self.shared

    def at(self, weights: Array) -> SmoothPoint:
        return SmoothPoint(self, np.asarray(weights, dtype=np.float64))


class SmoothPoint:
    """A `SmoothProgram` at one w; each function is called once, when first asked for."""

    def __init__(self, program: SmoothProgram, weights: Array) -> None:
        self._of = program
        self._weights = weights
        self._known: dict[str, Array] = {}

    def _once(self, name: str, function: Callable[[Array], Array], shape: tuple[int, ...]) -> Array:
        if name not in self._known:
            found = np.asarray(function(self._weights), dtype=np.float64)
            if found.shape != shape:
                raise InputError(f"{name} has shape {found.shape}; {shape} is needed")
            self._known[name] = found
        return self._known[name]

    @property
    def value(self) -> float:
        return 0.0 if self._of.value is None else float(self._of.value(self._weights))

    @property
    def gradient(self) -> Array:
        if self._of.gradient is None:
            return np.zeros(self._of.weights)
        return self._once("gradient", self._of.gradient, (self._of.weights,))

    @property
    def constraints(self) -> Array:
        if self._of.constraints is None:
            return np.zeros(0)
        return self._once("constraints", self._of.constraints, (self._of.rows,))

    @property
    def jacobian(self) -> Array:
        if self._of.jacobian is None:
            return np.zeros((0, self._of.weights))
        return self._once("jacobian", self._of.jacobian, (self._of.rows, self._of.weights))

    def hessian(self, net: Array) -> Array:
        of = self._of
        total = np.zeros((of.weights, of.weights))
        if of.hessian is not None:
            total += of.hessian(self._weights)
        if of.constraint_hessian is not None:
            total += of.constraint_hessian(self._weights, net)
        return total

    def hessian_product(self, net: Array, direction: Array) -> Array:
        of = self._of
        total = np.zeros(of.weights)
        if of.hessian_product is not None:
            total += of.hessian_product(self._weights, direction)
        elif of.hessian is not None:
            total += of.hessian(self._weights) @ direction
        if of.constraint_hessian_product is not None:
            total += of.constraint_hessian_product(self._weights, net, direction)
        elif of.constraint_hessian is not None:
            total += of.constraint_hessian(self._weights, net) @ direction
        return total
