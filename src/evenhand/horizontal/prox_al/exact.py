"""Solve local problems with a constant Hessian: quadratic programs with equality constraints only.

A Newton step from the server's iterate is then the solution, and ∇P there is −λ^{t+1}. A step takes two products with a
d × d matrix: ∇P at the server's iterate, and the step itself. The rounding error of the gradient is measured once for
each inverse, on a separate vector, instead of after every step.
"""

from __future__ import annotations

from typing import TypeGuard

import numpy as np
from scipy.linalg import blas

from evenhand.arrays import Array
from evenhand.horizontal.prox_al.client import LocalStep, SteppingClient
from evenhand.programs.augmented import Augmented
from evenhand.programs.minimise import Pull, largest
from evenhand.programs.program import Program
from evenhand.programs.quadratic import QuadraticProgram

SAFETY = 100.0
"""Safety factor on the measured rounding error."""


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
