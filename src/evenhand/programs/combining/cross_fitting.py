"""Fit several models of leaves, each without one fold of the rows, so that each row has a score that never saw it.

Leave-one-out scores correct for the values of leaves, but not for where trees split. Here a row's *cross-fitted* score
is that of the model whose trees and leaf values both come from the other folds. Inequalities are judged by exact rates
at these scores: all models share the shift of the bounds, and each is solved under them on its own rows. For new people
the scores of all models are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.constraints.evaluation import Lagrangian
from evenhand.programs.combining.leaf_values import PASSES, Columns, LeafFit, LeafProblem, first_penalty
from evenhand.programs.combining.reduced import ReducedSolution


def assign_folds(stratum: Integers, folds: int) -> Integers:
    """Return the fold of each row: every stratum is spread over all folds, and a single row is in none (−1)."""
    random, found = np.random.default_rng(0), np.full(len(stratum), -1)
    for one in range(int(stratum.max(initial=-1)) + 1):
        rows = random.permutation(np.flatnonzero(stratum == one))
        if len(rows) > 1:
            found[rows] = (np.arange(len(rows)) + random.integers(folds)) % folds
    return found


@dataclass(frozen=True, eq=False)
class FoldsFit:
    """New leaves of all models.

    Attributes
    ----------
    values
        Coefficients of each model.
    scores
        (K, n): scores of each model, also of the rows that it has not seen.
    held_out
        The score that each row is judged by.
    multipliers
        (K, 2, R).
    violation
        Largest violation of an inequality, as judged.
    """

    values: list[Array]
    scores: Array
    held_out: Array
    multipliers: Array
    violation: float
    stationarity: float
    complementarity: float
    iterations: int

    @classmethod
    def of_one(cls, fit: LeafFit) -> FoldsFit:
        """Return the fit of a single model, which is judged by leave-one-out scores."""
        return cls([fit.values], fit.scores[None], fit.held_out, *_summary([fit.solution], fit.violation))


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
    wanted, shrinkage, regulariser, judged
        See `LeafProblem`; `wanted` has all rows.
    parts
        The problem without the rows of each fold.
    fold
        Each row's fold, or −1.
    """

    def __init__(
        self,
        wanted: Lagrangian,
        parts: Sequence[Lagrangian],
        fold: Integers,
        shrinkage: float,
        regulariser: float,
        judged: bool,
    ) -> None:
        super().__init__(wanted, shrinkage, regulariser, judged)
        self.parts = parts
        self.unseen = [fold == place for place in range(len(parts))]
        self.seen_by_all = fold < 0

    def fit_folds(self, columns: Sequence[Columns], scores: Array, held_out: Array, multipliers: Array) -> FoldsFit:
        """Solve for the leaf values of all models; parameters as in `LeafProblem.fit`, with one entry a model."""
        ridges = [
            self.ridge(part, columns[place], scores[place], multipliers[place]) for place, part in enumerate(self.parts)
        ]
        penalties = [first_penalty(one) for one in multipliers]
        solutions: list[ReducedSolution | None] = [None] * len(self.parts)
        best: FoldsFit | None = None
        shift = self.shifted.shift
        self.shifted.begin()
        for _ in range(PASSES):
            found = [
                self.solve(part, columns[place], scores[place], ridges[place], *rest)
                for place, (part, *rest) in enumerate(zip(self.parts, multipliers, penalties, solutions, strict=True))
            ]
            solutions = list(found)
            multipliers = np.array([one.multipliers for one in found])
            changes = np.array([one.point.scores for one in found]) - scores
            left = held_out + np.where(self.seen_by_all, changes.mean(axis=0), 0.0)
            for unseen, change in zip(self.unseen, changes, strict=True):
                left[unseen] += change[unseen]
            violation = self.violation(self.wanted.at(left), left)
            if best is None or violation < best.violation:
                values = [one.coefficients for one in found]
                best, shift = FoldsFit(values, scores + changes, left, *_summary(found, violation)), self.shifted.shift
            if not self.shifted.exact.any():
                break
            judged = self.judged(left)
            if self.shifted.right(judged, multipliers.max(axis=0)):
                break
            self.shifted.follow(judged, np.mean([one.point.values for one in found], axis=0))
        self.shifted.shift = shift
        assert best is not None
        return best
