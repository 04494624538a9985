"""Linear models under constraints on slice means, as programs.

    f(w) = Σ_j o_j l(x_jᵀw, y_j) + (μ/2)‖w‖²,      c_r(w) = Σ_j a_rj φ_r(x_jᵀw, y_j)

over the rows of data j that a client holds. Both need one pass for x_jᵀw and one for the transpose; second derivatives
are the data's Gram matrix with weights o_j l″ + Σ_r y_r a_rj φ_r″, which tilts and sigmoids can make negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from evenhand.arrays import Array, Integers, Matrix
from evenhand.constraints.bounds import NO_BOUNDS, Bounds
from evenhand.constraints.losses import PART, Logistic, Loss
from evenhand.constraints.measures import Measure, by_measure
from evenhand.errors import InputError
from evenhand.programs.program import Curvature


class SliceProgram:
    """One client's rows of data under weighted losses.

    Parameters
    ----------
    features
        X, (n, d), dense or sparse; a constant column is the intercept.
    labels
        y, ±1.
    objective
        o, (n,): what each row of data weighs in the objective.
    combinations
        a, (rows, n): what each row of data weighs in each constraint row. The program's own rows come first.
    measures
        φ of each constraint row.
    own
        Bounds of the program's own rows.
    regulariser
        μ, a number or one a weight (zero for an intercept).
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
        self.labels, self.objective, self.combinations = labels, objective, combinations
        self.measures = tuple(measures)
        self.own = own
        self.shared = len(measures) - own.n_rows
        self.weights = int(features.shape[1])
        self.regulariser: Array = np.broadcast_to(np.asarray(regulariser, dtype=np.float64), (self.weights,))
        self.regularised = bool(self.regulariser.any())
        self.loss: Loss = Logistic() if loss is None else loss
        # Where every row measures the loss, as in the papers, objective and rows are one product away from it.
        all_loss = all(measure.name == "loss" for measure in self.measures)
        self.stack: Array | None = np.vstack([objective, combinations]) if all_loss else None
        self.effort = 2.0 * float(features.nnz if sparse else self.features.size)

    def sampled(self, rows: int, rng: np.random.Generator) -> SliceProgram:
        """The same program on some of the rows of data, drawn without replacement and weighted up to stand for all."""
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
            regulariser=self.regulariser,
            loss=self.loss,
        )

    @cached_property
    def by_measure(self) -> dict[Measure, Integers]:
        return by_measure(self.measures)

    def at(self, weights: Array) -> SlicePoint:
        return SlicePoint(self, weights)

    def judged(self, trials: Array) -> tuple[Array, Array]:
        """f (T,) and the rows of c (T, rows) at several w, without derivatives."""
        if self.stack is None or len(self.labels) > PART:
            points = [self.at(trial) for trial in trials]
            return np.array([point.value for point in points]), np.array([point.constraints for point in points])
        scores = (self.features @ trials.T).T if sp.issparse(self.features) else trials @ self.transposed
        found = self.loss.value(scores, self.labels) @ self.stack.T
        values = found[:, 0] + 0.5 * (trials**2 @ self.regulariser) if self.regularised else found[:, 0]
        return values, found[:, 1:]


class SlicePoint:
    """A slice program at one w; what needs a pass over the data is computed once, when first asked for."""

    def __init__(self, program: SliceProgram, weights: Array) -> None:
        self._of = program
        self._weights = weights
        self._scores: Array = program.features @ weights

    @property
    def scores(self) -> Array:
        """x_jᵀw of each row of data."""
        return self._scores

    def in_scores(self, net: Array) -> tuple[Array, Array]:
        """First and second derivative of f + Σ net · c in each row of data's score, regularisers aside."""
        slopes = self._slopes
        return slopes[0] + net @ slopes[1:], self._bends(net)

    def measured(self) -> Array:
        """(rows, n): φ of each constraint row on each row of data."""
        found = np.empty((len(self._of.measures), len(self._of.labels)))
        for measure, rows in self._of.by_measure.items():
            found[rows] = self._measured(measure)[0]
        return found

    @cached_property
    def _loss(self) -> tuple[Array, Array]:
        return self._of.loss.value_and_derivative(self._scores, self._of.labels)

    def _measured(self, measure: Measure) -> tuple[Array, Array]:
        if measure.name == "loss":
            return self._loss
        return measure.value_and_derivative(self._of.loss, self._scores, self._of.labels)

    @cached_property
    def _stacked(self) -> Array:
        assert self._of.stack is not None
        return self._of.stack @ self._loss[0]

    @cached_property
    def value(self) -> float:
        found = float(self._of.objective @ self._loss[0] if self._of.stack is None else self._stacked[0])
        if self._of.regularised:
            found += 0.5 * float(self._of.regulariser @ self._weights**2)
        return found

    @cached_property
    def _slopes(self) -> Array:
        """(1 + rows, n): derivatives in each row of data's score of the objective and of the constraint rows."""
        of = self._of
        if of.stack is not None:
            return of.stack * self._loss[1]
        slopes = np.empty((1 + len(of.measures), len(of.labels)))
        np.multiply(of.objective, self._loss[1], out=slopes[0])
        for measure, rows in of.by_measure.items():
            slopes[1 + rows] = of.combinations[rows] * self._measured(measure)[1]
        return slopes

    @cached_property
    def _derivatives(self) -> Array:
        """(1 + rows, d): gradient and Jacobian from one product."""
        slopes = self._slopes
        found: Array = (
            (self._of.transposed @ slopes.T).T if sp.issparse(self._of.features) else slopes @ self._of.features
        )
        if self._of.regularised:
            found[0] += self._of.regulariser * self._weights
        return found

    @property
    def gradient(self) -> Array:
        return self._derivatives[0]

    @property
    def jacobian(self) -> Array:
        return self._derivatives[1:]

    @cached_property
    def constraints(self) -> Array:
        of = self._of
        if of.stack is not None:
            return self._stacked[1:]
        values = np.zeros(len(of.measures))
        for measure, rows in of.by_measure.items():
            values[rows] = of.combinations[rows] @ self._measured(measure)[0]
        return values

    def _bends(self, net: Array) -> Array:
        """Second derivative of f + Σ net · c in each row of data's score."""
        of = self._of
        bends = of.objective * self._curvature
        for measure, rows in of.by_measure.items():
            if net[rows].any():
                whole = measure.name == "loss"
                each = self._curvature if whole else measure.curvature(of.loss, self._scores, of.labels)
                bends += (net[rows] @ of.combinations[rows]) * each
        return bends

    @cached_property
    def _curvature(self) -> Array:
        """l″ of each row of data."""
        return self._of.loss.curvature(self._scores, self._of.labels)

    def hessian(self, net: Array) -> Array:
        of, bends = self._of, self._bends(net)
        if sp.issparse(of.features):
            total: Array = (of.transposed.multiply(bends).tocsr() @ of.features).toarray()
        else:
            total = of.transposed @ (of.features * bends[:, None])
        if of.regularised:
            total[np.diag_indices(of.weights)] += of.regulariser
        return total

    def hessian_product(self, net: Array, direction: Array) -> Array:
        of = self._of
        found: Array = of.transposed @ (self._bends(net) * (of.features @ direction))
        return found + of.regulariser * direction
