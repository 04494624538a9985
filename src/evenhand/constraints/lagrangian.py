"""The Lagrangian of constrained training as a function of the scores alone.

    f(z, λ) = mean loss + Σ_rows λ⁺ (value − upper) + λ⁻ (lower − value)

Its derivative in the score of row i is the ν_i that vertical parties need (FairVFL Eq. 12, for every constraint and
measure at once). Each party adds its own regulariser; the Lagrangian has none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeAlias

import numpy as np

from evenhand.arrays import ALL, Array, Integers, Rows
from evenhand.constraints.binding import BoundConstraints
from evenhand.constraints.evaluation import EvaluatedScores, SliceEvaluator
from evenhand.constraints.losses import Loss

TiltedSums: TypeAlias = Callable[[Array, Integers, Array], Array]
"""From weights by stratum, (R, strata), each row's stratum and its slope: sums over rows of weight times slope, in each
variable that the scores depend on."""


class Lagrangian(SliceEvaluator):
    """Labels, a loss and bound constraints; `shares` as in `SliceEvaluator`."""

    def __init__(
        self,
        labels: Array,
        constraints: BoundConstraints,
        loss: Loss | None = None,
        shares: Array | float | None = None,
    ) -> None:
        super().__init__(labels, constraints, loss, shares)
        self.constraints = constraints

    def with_constraints(self, constraints: BoundConstraints) -> Lagrangian:
        """Replace the inequalities by rows over the same slices with other bounds or temperatures."""
        return Lagrangian(self.labels, constraints, self.loss, self.shares)

    def at(self, scores: Array) -> Point:
        return Point(self, scores)

    def curvature_limit(self, multipliers: Array) -> float:
        """Bound n · |∂²f/∂z_i²| over all scores and rows of data, at these multipliers."""
        size = len(self.labels)
        base = self.loss.curvature_bound * float(self.shared(np.ones(size)).max())
        total = np.full(self.constraints.weights.shape[1], base)
        for measure, rows in self.constraints.measures.items():
            net = np.abs(net_multipliers(multipliers)[rows] @ self.constraints.of_measure(measure))
            total += net * self.constraints.largest_sample_weight * measure.curvature_bound(self.loss)
        return float(size * total.max())

    def coupling_limit(self) -> float:
        """Bound the spectral norm of the derivative, in the scores, of both sides' values together.

        Times the spectral norm of the data it is L₁₂ of FairVFL Assumption 2.
        """
        counts = self.constraints.stratum_sums(self.constraints.weighted(np.ones(len(self.labels))))
        total = 0.0
        for measure in self.constraints.measures:
            squares = (self.constraints.of_measure(measure) ** 2 @ counts).sum()
            total += 2.0 * measure.derivative_bound(self.loss) ** 2 * float(squares)
        return float(np.sqrt(total))


class Point(EvaluatedScores):
    """The Lagrangian at given scores."""

    def __init__(self, lagrangian: Lagrangian, scores: Array) -> None:
        super().__init__(lagrangian, scores)
        self.lagrangian = lagrangian

    @cached_property
    def violation(self) -> float:
        return self.lagrangian.constraints.bounds.violation(self.values)

    def complementarity(self, multipliers: Array) -> float:
        return self.lagrangian.constraints.bounds.complementarity(self.values, multipliers)

    def dual_gradient(self) -> Array:
        """Return ∂f/∂λ: how far each side of each inequality is exceeded."""
        return self.lagrangian.constraints.bounds.excess(self.values)

    def derivative(self, multipliers: Array) -> Array:
        """Return ν = ∂f/∂z (FairVFL Eq. 12)."""
        return self.first_derivative(net_multipliers(multipliers))

    def jacobian(self, sums: TiltedSums, width: int) -> Array:
        """Return (R, width): the derivative of every inequality's value in what the scores depend on."""
        rows = self.lagrangian.constraints
        found = np.zeros((len(rows), width))
        for measure, indices in rows.measures.items():
            found[indices] = sums(rows.of_measure(measure), rows.stratum, rows.weighted(self.slope(measure)))
        return found

    def loss_curvature(self) -> Array:
        """Return the part of ∂²f/∂z² that the mean loss has."""
        return self.lagrangian.shared(self._loss_curvature())

    def curvature(self, multipliers: Array, some: Rows = ALL) -> Array:
        """Return ∂²f/∂z² of some rows of data; it is negative where the tilt outweighs the row's own loss."""
        return self.second_derivative(net_multipliers(multipliers), some)


def net_multipliers(multipliers: Array) -> Array:
    """Return λ⁺ − λ⁻ of each inequality."""
    return multipliers[0] - multipliers[1]
