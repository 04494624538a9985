"""Linear models under constraints on slice means, as programs.

    f(w) = Σ_j o_j l(x_jᵀw, y_j) + (μ/2)‖w‖²,      c_r(w) = Σ_j a_rj φ_r(x_jᵀw, y_j)

over a client's rows of data j. With several classes a row has a score for each; w holds the weights of all classes,
class by class, and then their intercepts.

Both need one pass for the scores x_jᵀw and one for the transpose. The Hessian is the Gram matrix of the data with
weights o_j l″ + Σ_r y_r a_rj φ_r″, which tilts and sigmoids can make negative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Literal

import numpy as np
import scipy.sparse as sp

from evenhand.arrays import ALL, Array, Integers, Matrix, Rows
from evenhand.constraints.binding import SliceWeights
from evenhand.constraints.evaluation import EvaluatedScores, SliceEvaluator
from evenhand.constraints.labelled_rows import FeatureRows
from evenhand.constraints.losses import PART, SOFTMAX, Loss, Measure, by_measure
from evenhand.constraints.slices import NO_BOUNDS, Bounds, Inequality, Slice, bounds_of
from evenhand.errors import ConstraintError, DataError, InputError
from evenhand.programs.program import Curvature
from evenhand.programs.weighted_gram import WeightedGram

ObjectiveWeights = Literal["rows", "clients", "other-class"]
"""What the objective averages: all rows, each client's mean, or each client's mean over the class without a bound."""


class SliceProgram:
    """One client's rows of data under weighted losses.

    Parameters
    ----------
    features
        X, (n, d), dense or sparse; a constant column is the intercept.
    labels
        y, ±1, or class indices.
    objective
        o, (n,): weight of each row of data in the objective.
    combinations
        a, (rows, n): weight of each row of data in each inequality. The program's own rows come first.
    measures
        φ of each inequality.
    own
        Bounds of the program's own rows.
    regulariser
        μ: one number, or one for each feature (zero for an intercept).
    classes
        Number of classes; None for labels of ±1.
    """

    curvature: Curvature = "matrix"

    def __init__(
        self,
        features: Matrix,
        labels: Array,
        objective: Array,
        combinations: Array | None = None,
        measures: Sequence[Measure] = (),
        own: Bounds = NO_BOUNDS,
        *,
        regulariser: float | Array = 0.0,
        loss: Loss | None = None,
        classes: int | None = None,
    ) -> None:
        rows = features.shape[0]
        combinations = np.zeros((0, rows)) if combinations is None else combinations
        if labels.shape != (rows,) or objective.shape != (rows,) or combinations.shape != (len(measures), rows):
            raise InputError(
                f"features of {rows} rows, labels {labels.shape}, objective {objective.shape}, combinations "
                f"{combinations.shape} for {len(measures)} measures do not fit together"
            )
        if own.n_rows > len(measures):
            raise InputError(f"bounds for {own.n_rows} rows, but there are {len(measures)}")
        sparse = sp.issparse(features)
        self.features: Matrix = sp.csr_array(features) if sparse else np.ascontiguousarray(features, np.float64)
        self.transposed: Matrix = self.features.T
        if sparse:
            self.transposed = sp.csr_array(self.transposed)
        self.labels = labels
        self.own = own
        self.shared = len(measures) - own.n_rows
        width = int(features.shape[1])
        self.classes, self.weights = classes, width * (classes or 1)
        self.each: Array = np.broadcast_to(np.asarray(regulariser, dtype=np.float64), (width,))
        self.regulariser: Array = self.each if classes is None else np.tile(self.each, classes)[self.order]
        self.regularised = bool(self.regulariser.any())
        self.measures = tuple(measures)
        # Objective and inequalities in one matrix: where all average the loss, one product gives all derivatives.
        self.stack: Array = np.vstack([objective, combinations])
        self.all_loss = all(measure.name == "loss" for measure in self.measures)
        slices = SliceWeights(self.combinations, by_measure(self.measures))
        loss = SOFTMAX if classes is not None else loss
        self.evaluator = SliceEvaluator(labels, slices, loss, shares=self.objective)
        if self.loss.name == "logistic" and not np.isin(labels, (-1.0, 1.0)).all():
            raise DataError("labels must be -1 or +1 in a program without classes; give the number of classes")
        self.effort = 2.0 * float(features.nnz if sparse else self.features.size)

    @cached_property
    def gram(self) -> WeightedGram:
        """Xᵀ diag(w) X of the features."""
        return WeightedGram(self.features)

    @property
    def objective(self) -> Array:
        return self.stack[0]

    @property
    def combinations(self) -> Array:
        return self.stack[1:]

    @property
    def loss(self) -> Loss:
        return self.evaluator.loss

    @cached_property
    def order(self) -> Integers:
        """Where each weight is among weights that are sorted by class, each class with its intercept."""
        assert self.classes is not None
        places = np.arange(self.weights).reshape(self.classes, -1)
        return np.concatenate([places[:, :-1].ravel(), places[:, -1]])

    def scores(self, weights: Array) -> Array:
        """Return Xw, or (classes, n) of the scores of all classes."""
        if self.classes is None:
            found: Array = self.features @ weights
            return found
        table = np.empty(self.weights)
        table[self.order] = weights
        return np.ascontiguousarray((self.features @ table.reshape(self.classes, -1).T).T)

    def sampled(self, rows: int, rng: np.random.Generator) -> SliceProgram:
        """Return the program on a sample of rows, drawn without replacement and scaled up to all rows."""
        size = len(self.labels)
        if rows >= size:
            return self
        chosen = np.sort(rng.choice(size, rows, replace=False))
        return SliceProgram(
            self.features[chosen],
            self.labels[chosen],
            self.objective[chosen] * (size / rows),
            self.combinations[:, chosen] * (size / rows),
            self.measures,
            self.own,
            regulariser=self.each,
            loss=self.loss,
            classes=self.classes,
        )

    def tempered(self, factor: float) -> SliceProgram:
        """Return the program with temperatures of smooth rates times a factor; it shares its data with this one."""
        _ = self.gram
        found = copy(self)
        found.measures = tuple(measure.tempered(factor) for measure in self.measures)
        slices = SliceWeights(self.combinations, by_measure(found.measures))
        found.evaluator = SliceEvaluator(self.labels, slices, self.loss, shares=self.objective)
        return found

    def at(self, weights: Array) -> SlicePoint:
        return SlicePoint(self, weights)

    def judged(self, trials: Array) -> tuple[Array, Array]:
        """Return f (T,) and c (T, rows) at several w, without derivatives."""
        if not self.all_loss or len(self.labels) > PART or self.classes is not None:
            points = [self.at(trial) for trial in trials]
            return np.array([point.value for point in points]), np.array([point.constraints for point in points])
        scores = (self.features @ trials.T).T if sp.issparse(self.features) else trials @ self.transposed
        found = self.loss.value(scores, self.labels) @ self.stack.T
        values = found[:, 0] + 0.5 * (trials**2 @ self.regulariser) if self.regularised else found[:, 0]
        return values, found[:, 1:]


class SlicePoint(EvaluatedScores):
    """A slice program at one w: scores are Xw, and derivatives in them become derivatives in w."""

    def __init__(self, program: SliceProgram, weights: Array) -> None:
        super().__init__(program.evaluator, program.scores(weights))
        self._of = program
        self._weights = weights

    def measured(self) -> Array:
        """Return (rows, n): the measure of each inequality on each row of data."""
        of = self._of
        found = np.empty((len(of.measures), len(of.labels)))
        for measure, rows in of.evaluator.slices.measures.items():
            is_loss = measure.name == "loss"
            found[rows] = of.loss.value(self.scores, of.labels) if is_loss else self._other_measures[measure][0]
        return found

    @cached_property
    def value(self) -> float:
        if self._of.regularised:
            return self.loss + 0.5 * float(self._of.regulariser @ self._weights**2)
        return self.loss

    @property
    def constraints(self) -> Array:
        return self.values

    @cached_property
    def _derivatives(self) -> Array:
        """(1 + rows, d): gradient and Jacobian from one product."""
        of = self._of
        if of.classes is not None:
            slopes = self._class_slopes()
        elif of.all_loss:
            slopes = of.stack * self._loss_derivative
        else:
            slopes = np.empty_like(of.stack)
            np.multiply(of.objective, self._loss_derivative, out=slopes[0])
            for measure, rows in of.evaluator.slices.measures.items():
                slopes[1 + rows] = of.evaluator.slices.of_measure(measure) * self.slope(measure)
        found: Array = (of.transposed @ slopes.T).T if sp.issparse(of.features) else slopes @ of.features
        if of.classes is not None:
            found = found.reshape(len(of.stack), -1)[:, of.order]
        if of.regularised:
            found[0] += of.regulariser * self._weights
        return found

    def _class_slopes(self) -> Array:
        """Return derivatives of the objective and of each inequality in all scores, a line for each class of each."""
        of = self._of
        found = np.empty((len(of.stack), *self.scores.shape))
        np.multiply(of.objective, self._loss_derivative, out=found[0])
        for measure, rows in of.evaluator.slices.measures.items():
            found[1 + rows] = of.evaluator.slices.of_measure(measure)[:, None] * self.slope(measure)
        return found.reshape(-1, len(of.labels))

    @property
    def gradient(self) -> Array:
        return self._derivatives[0]

    @property
    def jacobian(self) -> Array:
        return self._derivatives[1:]

    @cached_property
    def _loss_derivative(self) -> Array:
        # Always computed with the values: a resumed run asks in another order and must find the same bits.
        _ = self._of_loss
        slopes: Array = self.__dict__["_loss_derivative"]
        return slopes

    def _loss_curvature(self, some: Rows = ALL) -> Array:
        # Cached: Newton steps ask for it repeatedly at one point.
        return self._all_curvatures[..., some]

    @cached_property
    def _all_curvatures(self) -> Array:
        return super()._loss_curvature()

    def hessian(self, net: Array) -> Array:
        return self.hessians(net[None])[0]

    def hessians(self, nets: Array) -> Array:
        """Return (k, d, d): second derivatives for several multipliers (k, rows)."""
        of, bends = self._of, np.array([self.second_derivative(net) for net in nets])
        if of.classes is None:
            total = of.gram(bends)
        else:
            # From (k, class, class, column, column) to matrices over the weights of all classes.
            grams = of.gram(bends.reshape(-1, len(of.labels)))
            grams = grams.reshape(*bends.shape[:3], *grams.shape[1:]).transpose(0, 1, 3, 2, 4)
            total = grams.reshape(len(nets), of.weights, of.weights)[:, of.order[:, None], of.order]
        if of.regularised:
            total[:, np.arange(of.weights), np.arange(of.weights)] += of.regulariser
        return total

    def hessian_product(self, net: Array, direction: Array) -> Array:
        of = self._of
        found: Array = of.transposed @ (self.second_derivative(net) * (of.features @ direction))
        return found + of.regulariser * direction


def sample_program(
    sample: FeatureRows,
    own: Sequence[Inequality],
    shared: Sequence[Inequality] = (),
    *,
    each: float | Array = 0.0,
    counts: Mapping[Slice, float] | None = None,
    regulariser: float | Array = 0.0,
    loss: Loss | None = None,
    classes: int | None = None,
) -> SliceProgram:
    """Build the program of one holder of data from its own rows and the inequalities.

    Parameters
    ----------
    own
        Inequalities over these rows of data alone.
    shared
        Inequalities over all clients' data; this program has its summands of them.
    each
        Weight of a row of data in the objective, for all rows or for each; zero for the server.
    counts
        Number of rows of data that all clients together have in each slice of the shared inequalities; their total
        weight if rows have weights.
    """
    size = len(sample.labels)
    combinations = [_combination(row, sample, None) for row in own]
    combinations += [_combination(row, sample, counts or {}) for row in shared]
    return SliceProgram(
        sample.features,
        sample.labels,
        np.array(np.broadcast_to(each, size), dtype=np.float64),
        np.array(combinations).reshape(-1, size),
        [row.measure for row in [*own, *shared]],
        bounds_of(own),
        regulariser=regulariser,
        loss=loss,
        classes=classes,
    )


def _combination(row: Inequality, sample: FeatureRows, counts: Mapping[Slice, float] | None) -> Array:
    """Return each row's weight in an inequality: a_s / |s|, with |s| counted here or over all clients."""
    weights, people = np.zeros(len(sample.labels)), sample.weight_of_rows
    for coefficient, part in row.terms:
        inside = sample.inside(part)
        count = people[inside].sum() if counts is None else counts[part]
        if count == 0:
            raise ConstraintError(f"slice [{part}] is empty at all clients; merge or drop that group")
        weights[inside] += coefficient * people[inside] / count
    return weights
