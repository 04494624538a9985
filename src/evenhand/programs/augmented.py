"""The proximal augmented Lagrangian of one program (proximal AL Eq. 13, proximal AL Eq. 14).

    P(w) = f(w) + (‖[μ + β c(w)]₊‖² − ‖μ‖²) / (2β) + ‖w − w^k‖² / (2 (n+1) β)

with scalar constraints c ≤ 0 (`Bounds`); for an equality [·]₊ is left out.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from evenhand.arrays import Array
from evenhand.programs.program import Curvature, Program, ProgramPoint


class Augmented:
    """P of one program at given multipliers.

    Parameters
    ----------
    multipliers
        μ, one for each scalar constraint of the program's own inequalities.
    penalty
        β.
    centre
        w^k.
    proximity
        1 / ((n+1) β); the pooled method has 1/β.
    sample
        Program that gives the second derivatives of f and c, for instance on a sample of the data. All other terms,
        such as the Jacobian in β ∇c ∇cᵀ, are the program's own.
    """

    def __init__(
        self,
        program: Program,
        multipliers: Array,
        penalty: float,
        centre: Array,
        proximity: float,
        sample: Program | None = None,
    ) -> None:
        self.program = program
        self.multipliers = multipliers
        self.penalty = penalty
        self.centre = centre
        self.proximity = proximity
        self.sample = sample

    @property
    def curvature(self) -> Curvature:
        return self.program.curvature

    @property
    def effort(self) -> float:
        return self.program.effort

    def at(self, weights: Array, point: ProgramPoint | None = None) -> AugmentedPoint:
        """Return P at w; a point of the program at w is reused."""
        return AugmentedPoint(self, weights, point)


class AugmentedPoint:
    """P at one w; `point` is the program's point there."""

    def __init__(self, augmented: Augmented, weights: Array, point: ProgramPoint | None) -> None:
        self._of = augmented
        self.weights = weights
        self._point = point
        self._away: Array = weights - augmented.centre

    @property
    def point(self) -> ProgramPoint:
        if self._point is None:
            self._point = self._of.program.at(self.weights)
        return self._point

    @cached_property
    def pushed(self) -> Array:
        """[μ + β c(w)]₊: the next multipliers of the method."""
        of = self._of
        sides = of.program.own
        return sides.project(of.multipliers + of.penalty * sides.side_excess(self.point.constraints))

    @cached_property
    def value(self) -> float:
        of = self._of
        squares = float(self.pushed @ self.pushed) - float(of.multipliers @ of.multipliers)
        near = 0.5 * of.proximity * float(self._away @ self._away)
        return self.point.value + squares / (2.0 * of.penalty) + near

    @cached_property
    def gradient(self) -> Array:
        of = self._of
        found = self.point.gradient + of.proximity * self._away
        if len(self.pushed):
            found += of.program.own.net(self.pushed) @ self.point.jacobian
        return found

    def with_gradient(self, gradient: Array) -> AugmentedPoint:
        """Return the same point with a known gradient."""
        self.__dict__["gradient"] = gradient
        return self

    @cached_property
    def _active(self) -> Array:
        """Return β for each scalar constraint that is positive in [·]₊, by inequality."""
        of = self._of
        sides = of.program.own
        through = sides.free | (self.pushed > 0.0)
        found: Array = of.penalty * (through.astype(np.float64) @ np.abs(sides.incidence))
        return found

    def hessian(self) -> Array:
        of = self._of
        bent = self.point if of.sample is None else of.sample.at(self.weights)
        total = bent.hessian(of.program.own.net(self.pushed))
        total[np.diag_indices(len(total))] += of.proximity
        if self._active.any():
            jacobian = self.point.jacobian
            total += jacobian.T @ (jacobian * self._active[:, None])
        return total

    def hessian_product(self, direction: Array) -> Array:
        of = self._of
        found = self.point.hessian_product(of.program.own.net(self.pushed), direction) + of.proximity * direction
        if self._active.any():
            jacobian = self.point.jacobian
            found = found + jacobian.T @ (self._active * (jacobian @ direction))
        return found
