"""The Lagrangian of constrained training as a function of the scores alone.

    f(z, λ) = mean loss + Σ_rows λ⁺ (value − upper) + λ⁻ (lower − value)

Its derivative in the score of row i is the ν_i that vertical parties need (FairVFL Eq. 12, for every constraint and
measure at once). Regularisers are the parties' own business and are not part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeAlias

import numpy as np

from evenhand.arrays import ALL, Array, Integers, Rows
from evenhand.constraints.binding import BoundConstraints
from evenhand.constraints.losses import Logistic, Loss
from evenhand.constraints.measures import Measure

TiltedSums: TypeAlias = Callable[[Array, Integers, Array], Array]
"""From weights by cell, (R, cells), each row's cell and its slope: sums over rows of weight times slope, in whatever
the scores are a function of."""


class Lagrangian:
    """Labels, bound constraint rows and a loss: all that is needed to judge scores.

    Parameters
    ----------
    shares
        What each row of data counts in the mean loss; None is 1/n, or its share of the people that the constraint rows
        are bound to.
    """

    def __init__(
        self,
        labels: Array,
        constraints: BoundConstraints,
        loss: Loss | None = None,
        shares: Array | float | None = None,
    ) -> None:
        self.labels = labels
        self.constraints = constraints
        self.loss: Loss = Logistic() if loss is None else loss
        people = constraints.people
        self.shares = people / people.sum() if shares is None and people is not None else shares

    def shared(self, values: Array, some: Rows = ALL) -> Array:
        """What each row of data, or each of some, gives to a mean like that of the loss."""
        if self.shares is None:
            return values / len(self.labels)
        return values * (self.shares[some] if isinstance(self.shares, np.ndarray) else self.shares)

    def losses(self, scores: Array, some: Rows = ALL) -> Array:
        """What each row of data, or each of some, adds to the mean loss at these scores."""
        return self.shared(self.loss.value(scores[some], self.labels[some]), some)

    def with_constraints(self, constraints: BoundConstraints) -> Lagrangian:
        """The same with rows whose bounds or temperatures differ."""
        return Lagrangian(self.labels, constraints, self.loss, self.shares)

    def at(self, scores: Array) -> Point:
        return Point(self, scores)

    def curvature_limit(self, multipliers: Array) -> float:
        """A bound on n · |∂²f/∂z_i²| over all scores and rows of data, at these multipliers."""
        size = len(self.labels)
        base = self.loss.curvature_bound * float(self.shared(np.ones(size)).max())
        total = np.full(self.constraints.weights.shape[1], base)
        for measure, rows in self.constraints.measures.items():
            net = np.abs((multipliers[0, rows] - multipliers[1, rows]) @ self.constraints.weights[rows])
            total += net * self.constraints.most_people * measure.curvature_bound(self.loss)
        return float(size * total.max())

    def coupling_limit(self) -> float:
        """A bound on the spectral norm of the derivative, in the scores, of both sides' values together.

        Times the spectral norm of the data it is L₁₂ of FairVFL Assumption 2.
        """
        counts = self.constraints.cell_sums(self.constraints.counted(np.ones(len(self.labels))))
        total = 0.0
        for measure, rows in self.constraints.measures.items():
            squares = (self.constraints.weights[rows] ** 2 @ counts).sum()
            total += 2.0 * measure.derivative_bound(self.loss) ** 2 * float(squares)
        return float(np.sqrt(total))


class Point:
    """The Lagrangian at given scores; each quantity is computed once, when first asked for."""

    def __init__(self, lagrangian: Lagrangian, scores: Array) -> None:
        self.lagrangian = lagrangian
        self.scores = scores

    @cached_property
    def _of_loss(self) -> tuple[float, dict[Measure, Array]]:
        """The mean loss, and the values of the rows that bound losses.

        What each row of data loses is let go of: a point of a million rows is not to have it beside its slopes.
        """
        of = self.lagrangian
        losses, slopes = of.loss.value_and_derivative(self.scores, of.labels)
        # Also where slopes were asked for before: from here on they are these, whatever the order of questions was.
        self.__dict__["_loss_derivative"] = slopes
        mean = float(losses.mean() if of.shares is None else of.shared(losses).sum())
        rows = {one: places for one, places in of.constraints.measures.items() if one.name == "loss"}
        return mean, {measure: of.constraints.row_values(losses, places) for measure, places in rows.items()}

    @cached_property
    def _loss_derivative(self) -> Array:
        # An active party's local steps need no loss values: it spares their logarithms unless they were asked for.
        return self.lagrangian.loss.derivative(self.scores, self.lagrangian.labels)

    @cached_property
    def _other_measures(self) -> dict[Measure, tuple[Array, Array]]:
        of = self.lagrangian
        return {
            measure: measure.value_and_derivative(of.loss, self.scores, of.labels)
            for measure in of.constraints.measures
            if measure.name != "loss"
        }

    @property
    def loss(self) -> float:
        """Mean loss over all rows of data."""
        return self._of_loss[0]

    @cached_property
    def values(self) -> Array:
        """The value a·g of each constraint row."""
        rows = self.lagrangian.constraints
        values = np.zeros(len(rows))
        for measure, indices in rows.measures.items():
            if measure.name == "loss":
                values[indices] = self._of_loss[1][measure]
            else:
                values[indices] = rows.row_values(self._other_measures[measure][0], indices)
        return values

    @cached_property
    def exact(self) -> Array:
        """The same with exact rates in place of the measures: error rates, or selection rates for ``positive``."""
        of = self.lagrangian
        values = np.zeros(len(of.constraints))
        for measure, indices in of.constraints.measures.items():
            indicator = measure.exact(self.scores, of.labels).astype(np.float64)
            values[indices] = of.constraints.row_values(indicator, indices)
        return values

    @cached_property
    def violation(self) -> float:
        return self.lagrangian.constraints.bounds.violation(self.values)

    def complementarity(self, multipliers: Array) -> float:
        return self.lagrangian.constraints.bounds.complementarity(self.values, multipliers)

    def dual_gradient(self) -> Array:
        """∂f/∂λ: how far each side of each row is exceeded."""
        return self.lagrangian.constraints.bounds.excess(self.values)

    def slope(self, measure: Measure) -> Array:
        """∂φ/∂z of a measure, on each row of data."""
        return self._loss_derivative if measure.name == "loss" else self._other_measures[measure][1]

    def derivative(self, multipliers: Array) -> Array:
        """ν = ∂f/∂z (FairVFL Eq. 12)."""
        of = self.lagrangian
        nu = of.shared(self._loss_derivative)
        for measure, rows in of.constraints.measures.items():
            if multipliers[:, rows].any():
                nu += of.constraints.tilt(multipliers, rows) * self.slope(measure)
        return nu

    def jacobian(self, sums: TiltedSums, width: int) -> Array:
        """(R, width): the derivative of every row's value in whatever the scores are a function of."""
        rows = self.lagrangian.constraints
        found = np.zeros((len(rows), width))
        for measure, indices in rows.measures.items():
            found[indices] = sums(rows.weights[indices], rows.cell, rows.counted(self.slope(measure)))
        return found

    def loss_curvature(self) -> Array:
        """What the mean loss alone has of ∂²f/∂z²."""
        of = self.lagrangian
        return of.shared(of.loss.curvature(self.scores, of.labels))

    def curvature(self, multipliers: Array, some: Rows = ALL) -> Array:
        """∂²f/∂z² of some rows of data; negative where the tilt outweighs the row's own loss."""
        of = self.lagrangian
        scores, labels = self.scores[some], of.labels[some]
        curvature = of.shared(of.loss.curvature(scores, labels), some)
        for measure, rows in of.constraints.measures.items():
            if multipliers[:, rows].any():
                tilt = of.constraints.tilt(multipliers, rows, some)
                curvature += tilt * measure.curvature(of.loss, scores, labels)
        return curvature
