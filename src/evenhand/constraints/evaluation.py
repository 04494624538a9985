"""Evaluate the mean loss and the slice means that constraints bound, as functions of the scores.

    f(z) = Σ_i o_i l(z_i, y_i),      c_r(z) = Σ_i a_ri φ_r(z_i, y_i)

over rows of data i. With several classes, scores are an array (classes, n).

Every solver uses this evaluator: the Lagrangian of vertical training and the programs of linear clients
(`evenhand.programs.slices`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeAlias

import numpy as np

from evenhand.arrays import ALL, Array, Integers, Rows
from evenhand.constraints.binding import BoundConstraints, SliceWeights
from evenhand.constraints.losses import Logistic, Loss, Measure


class SliceEvaluator:
    """Labels, a loss and slice weights: all that is needed to evaluate scores.

    Parameters
    ----------
    shares
        o, what each row of data weighs in the mean loss. None means 1/n, or the row's share of all sample weights.
    """

    def __init__(
        self, labels: Array, slices: SliceWeights, loss: Loss | None = None, shares: Array | float | None = None
    ) -> None:
        self.labels, self.slices = labels, slices
        self.loss: Loss = Logistic() if loss is None else loss
        sample_weight = slices.sample_weight
        self.shares = sample_weight / sample_weight.sum() if shares is None and sample_weight is not None else shares

    def shared(self, values: Array, some: Rows = ALL) -> Array:
        """Multiply values of these rows of data by the rows' shares in the mean loss."""
        if self.shares is None:
            return values / len(self.labels)
        return values * (self.shares[some] if isinstance(self.shares, np.ndarray) else self.shares)

    def mean(self, values: Array) -> float:
        """Average values as the mean loss averages losses."""
        if self.shares is None:
            return float(values.mean())
        return float(self.shares @ values if isinstance(self.shares, np.ndarray) else self.shares * values.sum())

    def losses(self, scores: Array, some: Rows = ALL) -> Array:
        """Return what each of these rows of data adds to the mean loss."""
        return self.shared(self.loss.value(scores[..., some], self.labels[some]), some)


class EvaluatedScores:
    """An evaluator at given scores; each quantity is computed once, when first asked for."""

    def __init__(self, evaluator: SliceEvaluator, scores: Array) -> None:
        self.evaluator = evaluator
        self.scores = scores

    @cached_property
    def _of_loss(self) -> tuple[float, dict[Measure, Array]]:
        """The mean loss, and the values of the inequalities that average losses.

        Losses of single rows are not kept: with a million rows they would double the memory of a point.
        """
        of = self.evaluator
        losses, slopes = of.loss.value_and_derivative(self.scores, of.labels)
        # Replaces slopes computed earlier, so that results do not depend on the order of questions.
        self.__dict__["_loss_derivative"] = slopes
        means = {one: of.slices.means(one, losses) for one in of.slices.measures if one.name == "loss"}
        return of.mean(losses), means

    @cached_property
    def _loss_derivative(self) -> Array:
        # Local steps need slopes only, and these cost no logarithms.
        return self.evaluator.loss.derivative(self.scores, self.evaluator.labels)

    @cached_property
    def _other_measures(self) -> dict[Measure, tuple[Array, Array]]:
        of = self.evaluator
        return {
            measure: measure.value_and_derivative(of.loss, self.scores, of.labels)
            for measure in of.slices.measures
            if measure.name != "loss"
        }

    @property
    def loss(self) -> float:
        """The mean loss over all rows of data."""
        return self._of_loss[0]

    @cached_property
    def values(self) -> Array:
        """The value of each inequality, with smooth rates."""
        slices = self.evaluator.slices
        values = np.zeros(len(slices))
        for measure, rows in slices.measures.items():
            if measure.name == "loss":
                values[rows] = self._of_loss[1][measure]
            else:
                values[rows] = slices.means(measure, self._other_measures[measure][0])
        return values

    @cached_property
    def exact(self) -> Array:
        """The value of each inequality with exact rates: error rates, or selection rates for ``positive``.

        Means of numbers are exact already.
        """
        of = self.evaluator
        values = np.zeros(len(of.slices))
        for measure, rows in of.slices.measures.items():
            if measure.is_rate or (of.loss.classifies and measure.name == "loss"):
                indicator = measure.exact(self.scores, of.labels).astype(np.float64)
                values[rows] = of.slices.means(measure, indicator)
            else:
                values[rows] = self.values[rows]
        return values

    def slope(self, measure: Measure) -> Array:
        """Return ∂φ/∂z of a measure on each row of data."""
        return self._loss_derivative if measure.name == "loss" else self._other_measures[measure][1]

    def first_derivative(self, net: Array) -> Array:
        """Return the derivative of f + Σ_r net_r c_r in each score."""
        of = self.evaluator
        found = of.shared(self._loss_derivative)
        for measure, rows in of.slices.measures.items():
            if net[rows].any():
                found += of.slices.tilt(net, measure) * self.slope(measure)
        return found

    def second_derivative(self, net: Array, some: Rows = ALL) -> Array:
        """Return the second derivative of f + Σ_r net_r c_r in these rows' scores; tilts can make it negative."""
        of = self.evaluator
        of_loss = self._loss_curvature(some)
        found = of.shared(of_loss, some)
        for measure, rows in of.slices.measures.items():
            if net[rows].any():
                is_loss = measure.name == "loss"
                own = of_loss if is_loss else measure.curvature(of.loss, self.scores[..., some], of.labels[some])
                found += of.slices.tilt(net, measure, some) * own
        return found

    def _loss_curvature(self, some: Rows = ALL) -> Array:
        return self.evaluator.loss.curvature(self.scores[..., some], self.evaluator.labels[some])


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

    def loss_curvature(self, some: Rows = ALL) -> Array:
        """Return the part of ∂²f/∂z² that the mean loss has."""
        return self.lagrangian.shared(self._loss_curvature(some), some)

    def curvature(self, multipliers: Array, some: Rows = ALL) -> Array:
        """Return ∂²f/∂z² of some rows of data; it is negative where the tilt outweighs the row's own loss."""
        return self.second_derivative(net_multipliers(multipliers), some)


def net_multipliers(multipliers: Array) -> Array:
    """Return λ⁺ − λ⁻ of each inequality."""
    return multipliers[0] - multipliers[1]
