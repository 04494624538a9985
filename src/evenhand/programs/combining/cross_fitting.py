"""Fit several models of leaves, each without one fold of the rows, so that each row has a score that never saw it.

Leave-one-out scores correct for the values of leaves, but not for where trees split. Here a row's *cross-fitted* score
is that of the model whose trees and leaf values both come from the other folds. Inequalities are judged by exact rates
at these scores: all models share the shift of the bounds, and each is solved under them on its own rows.

For new people the scores of all models are averaged, and the rates of an average are not the average of rates: where
few labels are positive, an average finds fewer of them than its models do. What averaging changes is measured on rows
that models were fitted to. It is added to the values that limits are judged by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.constraints.evaluation import Lagrangian, Point
from evenhand.programs.combining.leaf_values import PASSES, LeafFit, LeafProblem, ModelColumns, first_penalty
from evenhand.programs.combining.reduced import ReducedSolution

SLICE_ROWS_A_LEAF: Final = 3.0
"""Number of rows of a constraint's smallest slice that a leaf holds on average, at least."""
FEWEST_LEAVES: Final = 8
"""Number of leaves that a tree may have, whatever the slices are."""


def fewest_rows_a_leaf(n_rows: int, grain: Array) -> int:
    """Return how many rows a leaf has at least, so that it holds a few rows of the smallest slice on average.

    Parameters
    ----------
    grain
        The most that one row of data weighs in each inequality.
    """
    floor = SLICE_ROWS_A_LEAF * n_rows * float(np.max(grain, initial=0.0))
    return int(min(floor, n_rows / FEWEST_LEAVES))


@dataclass(frozen=True, eq=False)
class FoldsFit:
    """New leaves of all models.

    Attributes
    ----------
    values
        Coefficients of each model.
    scores
        Scores of each model, also of the rows that it has not seen.
    held_out
        The score that each row is judged by.
    multipliers
        (K, 2, R).
    violation
        Largest violation of an inequality, as judged.
    responses
        Those of the leaves of a single model, see `LeafFit`.
    """

    values: list[Array]
    scores: list[Array]
    held_out: Array
    multipliers: Array
    violation: float
    stationarity: float
    complementarity: float
    iterations: int
    responses: Array | None = None

    @classmethod
    def of_one(cls, fit: LeafFit) -> FoldsFit:
        """Return the fit of a single model, which is judged by leave-one-out scores."""
        return cls([fit.values], [fit.scores], fit.held_out, *_summary([fit.solution], fit.violation), fit.responses)


class _Summary(NamedTuple):
    multipliers: Array
    violation: float
    stationarity: float
    complementarity: float
    iterations: int


def _summary(solutions: Sequence[ReducedSolution], violation: float) -> _Summary:
    return _Summary(
        np.array([one.multipliers for one in solutions]),
        violation,
        max(one.stationarity for one in solutions),
        max(one.complementarity for one in solutions),
        sum(one.iterations for one in solutions),
    )


class CrossFitting(LeafProblem):
    """Fit leaves of K models.

    Parameters
    ----------
    wanted, shrinkage, regulariser, judged, grain
        See `LeafProblem`; `wanted` has all rows.

    Attributes
    ----------
    parts
        The problem of each model. The rows of its own fold may be among its rows, with no weight.
    unseen
        For each model, which of its rows it has not seen, and their places among the rows of `wanted`.
    seen_by_all
        Places of rows in no fold, which are judged by the average of all models.
    same_rows
        Whether all models have scores for the same rows. If not, who has the rows tells `take_average` of the last
        models.
    averaging
        By how much the value of each limit at the average of the models exceeds the average of the models' values.
    seen
        The average of the models' values, each on the rows that it was fitted to.
    """

    state_fields: ClassVar[dict[str, Any]] = {"averaging": Array, "seen": Array}
    parts: Sequence[Lagrangian] = ()
    unseen: Sequence[tuple[Integers, Integers]] = ()
    seen_by_all: Integers = np.zeros(0, dtype=np.int64)
    same_rows = False

    def __init__(
        self, wanted: Lagrangian, shrinkage: float, regulariser: float, judged: bool, grain: Array | None = None
    ) -> None:
        super().__init__(wanted, shrinkage, regulariser, judged, grain)
        self.averaging, self.seen = np.zeros((2, len(self._rates)))

    def judged(self, held_out: Array) -> Array:
        """Return the values that inequalities are judged by: those at cross-fitted scores, and what averaging adds."""
        return super().judged(held_out) + self.averaging

    def take_models(self, scores: Sequence[Array]) -> None:
        """Measure what averaging models with these scores adds; each has all rows."""
        self._take_seen([part.at(own) for part, own in zip(self.parts, scores, strict=True)])
        self.take_average(self.values(self.wanted.at(np.mean(scores, axis=0))))

    def _take_seen(self, points: Sequence[Point]) -> None:
        self.seen = np.mean([self.values(point) for point in points], axis=0)

    def take_average(self, values: Array) -> None:
        """Take the values of inequalities at the average of the present models.

        Gaps between groups change both ways and little: following them would cost more loss than they are worth.
        """
        bounds = self.wanted.constraints.bounds
        gaps = np.isfinite(bounds.lower) & np.isfinite(bounds.upper)
        self.averaging = np.where(gaps, 0.0, values - self.seen)

    def take_folds(self, parts: Sequence[Lagrangian], fold: Integers) -> None:
        """Set the problem of each model over the same rows; `fold` is each row's fold, or −1."""
        self.parts, self.same_rows = parts, True
        rows = [np.flatnonzero(fold == place) for place in range(len(parts))]
        self.unseen = list(zip(rows, rows, strict=True))
        self.seen_by_all = np.flatnonzero(fold < 0)

    def fit_folds(
        self,
        columns: Sequence[ModelColumns],
        scores: Sequence[Array],
        held_out: Array,
        multipliers: Array,
        starts: Sequence[Array | None] | None = None,
    ) -> FoldsFit:
        """Solve for the leaf values of all models; parameters as in `LeafProblem.fit`, with one entry a model."""
        ridges = [
            self.ridge(part, columns[place], scores[place], multipliers[place]) for place, part in enumerate(self.parts)
        ]
        penalties = [first_penalty(one) for one in multipliers]
        starts = [None] * len(self.parts) if starts is None else starts
        best: FoldsFit | None = None
        shift, averaging, seen = self.shifted.shift, self.averaging, self.seen
        self.shifted.begin()
        for _ in range(PASSES):
            found = [
                self.solve(part, columns[place], scores[place], ridges[place], *rest)
                for place, (part, *rest) in enumerate(zip(self.parts, multipliers, penalties, starts, strict=True))
            ]
            starts = [one.coefficients for one in found]
            multipliers = np.array([one.multipliers for one in found])
            after = [one.point.scores for one in found]
            left = held_out.copy()
            for (own, places), new, old in zip(self.unseen, after, scores, strict=True):
                left[places] += new[own] - old[own]
            if len(some := self.seen_by_all):
                left[some] += np.mean([new[some] - old[some] for new, old in zip(after, scores, strict=True)], axis=0)
            self._take_seen([one.point for one in found])
            if self.same_rows:
                self.take_average(self.values(self.wanted.at(np.mean(after, axis=0))))
            violation = self.violation(self.wanted.at(left), left)
            if best is None or violation < best.violation:
                values = [one.coefficients for one in found]
                best = FoldsFit(values, after, left, *_summary(found, violation))
                shift, averaging, seen = self.shifted.shift, self.averaging, self.seen
            if not self.shifted.exact.any():
                break
            judged = self.judged(left)
            if self.shifted.right(judged, multipliers.max(axis=0)):
                break
            self.shifted.follow(judged, np.mean([one.point.values for one in found], axis=0))
        assert best is not None
        self.shifted.shift, self.averaging, self.seen = shift, averaging, seen
        return best
