"""Evaluate the mean loss and the slice means that constraints bound, as functions of the scores.

    f(z) = Σ_i o_i l(z_i, y_i),      c_r(z) = Σ_i a_ri φ_r(z_i, y_i)

over rows of data i. Every solver uses this evaluator: the Lagrangian of vertical training (`lagrangian.py`) and the
programs of linear clients (`evenhand.programs.slices`).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from evenhand.arrays import ALL, Array, Integers, Rows
from evenhand.constraints.losses import Logistic, Loss, Measure
from evenhand.constraints.proving import mean_variance, rate_variance


class SliceWeights:
    """What each row of data weighs in each inequality.

    Parameters
    ----------
    weights
        (R, strata): the weight of one row of data of each stratum in each of the R inequalities.
    measures
        Which inequalities average which measure.
    stratum
        The stratum of each row of data. None makes each row of data a stratum of its own, so that `weights` is (R, n).
    sample_weight
        How many people each row of data stands for; None means one.
    """

    def __init__(
        self,
        weights: Array,
        measures: dict[Measure, Integers],
        stratum: Integers | None = None,
        sample_weight: Array | None = None,
    ) -> None:
        self.weights, self.measures, self.sample_weight = weights, measures, sample_weight
        self._stratum = stratum

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def stratum(self) -> Integers:
        return np.arange(self.weights.shape[1]) if self._stratum is None else self._stratum

    @cached_property
    def _of_measure(self) -> dict[Measure, Array]:
        # A measure of all inequalities needs no copy of their weights.
        every = len(self.weights)
        return {one: self.weights if len(rows) == every else self.weights[rows] for one, rows in self.measures.items()}

    def of_measure(self, measure: Measure) -> Array:
        """Return the weights of the inequalities that average this measure."""
        return self._of_measure[measure]

    def means(self, measure: Measure, measured: Array) -> Array:
        """Return the values of a measure's inequalities, from the measure on each row of data."""
        return self.of_measure(measure) @ self.stratum_sums(measured)

    def stratum_sums(self, values: Array) -> Array:
        """Sum weighted values over each stratum."""
        if self._stratum is None:
            return self.weighted(values)
        sums = np.bincount(self._stratum, weights=self.weighted(values), minlength=self.weights.shape[1])
        return sums.astype(np.float64, copy=False)

    def weighted(self, values: Array, some: Rows = ALL) -> Array:
        """Multiply values of these rows of data by the rows' sample weights."""
        return values if self.sample_weight is None else values * self.sample_weight[some]

    @cached_property
    def largest_sample_weight(self) -> Array:
        """The largest sample weight in each stratum."""
        if self.sample_weight is None:
            return np.ones(self.weights.shape[1])
        most = np.zeros(self.weights.shape[1])
        np.maximum.at(most, self.stratum, self.sample_weight)
        return most

    @property
    def grain(self) -> Array:
        """The most that one row of data weighs in each inequality."""
        return (np.abs(self.weights) * self.largest_sample_weight).max(axis=1, initial=0.0)

    def tilt(self, net: Array, measure: Measure, some: Rows = ALL) -> Array:
        """Return Σ_r net_r a_ri over the measure's inequalities: what multipliers add to each row's weight."""
        by_stratum: Array = net[self.measures[measure]] @ self.of_measure(measure)
        return self.weighted(by_stratum[some if self._stratum is None else self._stratum[some]], some)

    def reported(self, labels: Array, scores: Array, loss: Loss | None = None) -> tuple[Array, Array]:
        """Return each inequality's value as one would report it, and its standard error.

        Rates are exact, not smooth; a mean loss is itself. Standard errors are for given sizes of the slices.
        """
        values, errors = np.zeros((2, len(self)))
        for measure, places in self.measures.items():
            is_loss = measure.name == "loss"
            measured: Array = (
                (loss or Logistic()).value(scores, labels)
                if is_loss
                else measure.exact(scores, labels).astype(np.float64)
            )
            values[places] = self.means(measure, measured)
            one = np.ones_like(measured)
            sums = [self.stratum_sums(values) for values in (one, measured, measured**2, self.weighted(one))]
            for place in places:
                # Rows of equal weight form a part. Parts are disjoint even where the slices are not.
                weight, part = np.unique(self.weights[place], return_inverse=True)
                size, hits, squared, squared_size = (np.bincount(part, weights=one) for one in sums)
                # Sample weights add no evidence: use Kish's effective number of rows.
                effective = np.divide(size, squared_size, out=np.ones_like(size), where=squared_size > 0.0)
                rows, hits, squared = size * effective, hits * effective, squared * effective
                variance = mean_variance(hits, squared, rows) if is_loss else rate_variance(hits, rows)
                inside = weight != 0
                errors[place] = np.sqrt(np.sum((weight * size)[inside] ** 2 * variance[inside]))
        return values, errors


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
        return self.shared(self.loss.value(scores[some], self.labels[some]), some)


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
        """The value of each inequality with exact rates: error rates, or selection rates for ``positive``."""
        of = self.evaluator
        values = np.zeros(len(of.slices))
        for measure, rows in of.slices.measures.items():
            indicator = measure.exact(self.scores, of.labels).astype(np.float64)
            values[rows] = of.slices.means(measure, indicator)
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
                own = of_loss if is_loss else measure.curvature(of.loss, self.scores[some], of.labels[some])
                found += of.slices.tilt(net, measure, some) * own
        return found

    def _loss_curvature(self, some: Rows = ALL) -> Array:
        return self.evaluator.loss.curvature(self.scores[some], self.evaluator.labels[some])
