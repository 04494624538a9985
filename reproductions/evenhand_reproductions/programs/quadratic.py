"""Quadratic programs: ½ wᵀAw + bᵀw subject to lower ≤ C w ≤ upper at each client (proximal AL Eq. 84).

Local problems with a constant Hessian, those with equality constraints only, are solved exactly. A Newton step from the
server's iterate is then the solution, and ∇P there is −λ^{t+1}. A step takes two products with a d × d matrix: ∇P at
the server's iterate, and the step itself. The rounding error of the gradient is measured once for each inverse, on a
separate vector, instead of after every step.
"""

from __future__ import annotations

from typing import TypeGuard

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas

from evenhand.arrays import Array
from evenhand.constraints.slices import Bounds
from evenhand.errors import InputError
from evenhand.horizontal.prox_al.client import LocalStep, SteppingClient
from evenhand.horizontal.prox_al.server import ProxALServer
from evenhand.programs.augmented import Augmented, AugmentedPoint
from evenhand.programs.minimise import Pull, largest
from evenhand.programs.program import Curvature, Program

SAFETY = 100.0
"""Safety factor on the measured rounding error."""


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


def is_quadratic(program: Program) -> TypeGuard[QuadraticProgram]:
    """Return whether P has a constant Hessian: no [·]₊ in it."""
    return isinstance(program, QuadraticProgram) and bool(program.own.free.all())


class ExactSolve:
    """Steps of one client."""

    def __init__(self, program: QuadraticProgram) -> None:
        self.program = program
        self.inverse: Array | None = None
        # Share of a gradient that remains after a step.
        self.rounding = np.inf

    def step(self, member: SteppingClient, weights: Array, tolerance: float) -> LocalStep | None:
        inverse, here, rho = member.minimiser.inverse, member.here, member.strength
        if inverse is None or here is None:
            return None
        if inverse is not self.inverse:
            self.inverse, self.rounding = inverse, self._measured(member, inverse)
        program, bounds = self.program, self.program.own
        pushed = member.multipliers + member.options.penalty * bounds.side_excess(program.rows @ weights)
        slope = product(program.matrix, weights) + program.linear + bounds.net(pushed) @ program.rows
        slope += member.consensus
        slope += member.proximity * (weights - member.centre)
        if not SAFETY * self.rounding * largest(slope) <= tolerance:
            return None
        move = product(inverse, slope)
        reached = weights - move
        consensus = member.consensus - rho * move
        residual = largest(slope - rho * (weights - here.weights))
        point = member.augmented.at(reached).with_gradient(-consensus)
        return LocalStep(point, consensus, reached + consensus / rho, residual, 2)

    def _measured(self, member: SteppingClient, inverse: Array) -> float:
        """Return ‖(∇²P + ρI)∘inverse − 1‖ on one vector, which is equal after a restore."""
        program = self.program
        probe = np.cos(np.arange(float(program.weights)))
        solved = product(inverse, probe)
        back = product(program.matrix, solved) + (member.proximity + member.strength) * solved
        back += member.options.penalty * ((program.rows @ solved) @ program.rows)
        return largest(back - probe) / largest(probe)


class QuadraticServer(ProxALServer):
    """Server that solves its problem exactly if its program has equality constraints and no objective."""

    def nearby(self, augmented: Augmented, pull: Pull) -> AugmentedPoint:
        exact = is_quadratic(self.head) and not self.head.curved
        return augmented.at(lowest(augmented, pull)) if exact else super().nearby(augmented, pull)


def lowest(augmented: Augmented, pull: Pull) -> Array:
    """Return argmin of P plus the squared distance, for a quadratic program without objective, by an m × m system."""
    program, beta, near = augmented.program, augmented.penalty, augmented.proximity
    assert isinstance(program, QuadraticProgram)
    rows, total = program.rows, near + pull.strength
    right = near * augmented.centre + pull.strength * pull.centre
    right -= (augmented.multipliers - beta * program.own.bound) @ rows
    small = beta * (rows @ rows.T)
    small[np.diag_indices(len(small))] += total
    return (right - beta * np.linalg.solve(small, rows @ right) @ rows) / total


def product(matrix: Array, vector: Array) -> Array:
    """Multiply a symmetric matrix with a vector, reading only one half: such products are limited by memory."""
    found: Array = blas.dsymv(1.0, matrix.T, vector, lower=1)
    return found
