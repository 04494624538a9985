"""The values of all new leaves of a round, solved jointly under the constraint rows.

    min over α:   mean loss(z + C α) + ½ Σ_l ((1/η − 1) H_l + μ/η) α_l²     subject to the rows at z + C α

C has a column for each leaf of each party's new trees, H_l is the leaf's curvature at z. Of one tree alone, after one
Newton step and without rows, α_l = −η G_l / (H_l + μ): what boosting does with shrinkage η.

Trees exploit the smooth stand-ins of rates, and fit the training rows closer than others: rows that hold there miss by
far on new people. So rows are *judged* on exact rates (or the loss, where they bound that) at leave-one-out scores,
where nobody has a say in the values of their own leaves. Bounds are moved by what lies between the two
(`constraints/exact_rates.py`), and the problem is solved again, a few times, each time from where it ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from evenhand.arrays import Array, Booleans
from evenhand.constraints.exact_rates import ShiftedBounds
from evenhand.constraints.lagrangian import Lagrangian, Point
from evenhand.programs.combining.leaves import LeafColumns, TiedColumns
from evenhand.programs.combining.reduced import Quadratic, ReducedSolution, solve_reduced

CURVATURE_FLOOR = 0.3
"""Least share of the loss's own curvature that is left where a tilt makes the Lagrangian concave."""
PASSES = 6
"""Most solutions of a round's problem."""
LARGEST_FIRST_PENALTY = 100.0
"""As in `subspace`: where rows cannot hold, a penalty made from λ would grow without end."""


@dataclass(frozen=True, eq=False)
class LeafFit:
    """Leaf values, what they give, and leave-one-out scores.

    Attributes
    ----------
    violation
        Worst excess of a row as it is judged.
    responses
        By how much each leaf's value answers a change of its slope: the leverage of whoever is in no other new leaf.
    """

    solution: ReducedSolution
    held_out: Array
    violation: float
    responses: Array

    @property
    def values(self) -> Array:
        return self.solution.coefficients

    @property
    def scores(self) -> Array:
        return self.solution.point.scores


class LeafProblem:
    """The rows asked for, and how leaves are fitted under them.

    Parameters
    ----------
    shrinkage, regulariser
        η and μ.
    judged
        Whether rows are judged on exact rates and at leave-one-out scores, rather than as they are solved; rows without
        any room are not.
    grain
        What one person at most weighs in each row; None finds out.

    Attributes
    ----------
    wanted
        Where rows of data stand for others in each round, it is set anew before each fit.
    """

    state_fields: ClassVar = {"shifted": ShiftedBounds}

    def __init__(
        self, wanted: Lagrangian, shrinkage: float, regulariser: float, judged: bool, grain: Array | None = None
    ) -> None:
        self.wanted = wanted
        self.shrinkage = shrinkage
        self.regulariser = regulariser
        rows = wanted.constraints
        self._rates: Booleans = np.array([row.measure.name != "loss" for row in rows.rows], dtype=bool)
        grain = rows.grain if grain is None else grain
        # Rows on the loss are shifted like rates: they too are judged at other scores than those they are solved at.
        self.shifted = ShiftedBounds(rows.bounds, np.ones(len(rows), dtype=bool), grain, None if judged else False)

    def derivatives(self, point: Point, multipliers: Array) -> tuple[Array, Array]:
        """n ∂f/∂z and n ∂²f/∂z², the latter with a floor: what trees are grown from."""
        rows = len(point.scores)
        return rows * point.derivative(multipliers), rows * floored_curvature(point, multipliers)

    def judged(self, held_out: Array) -> Array:
        """What rows are judged on at leave-one-out scores."""
        point = self.wanted.at(held_out)
        return np.where(self._rates, point.exact, point.values)

    def violation(self, point: Point, held_out: Array) -> float:
        """Worst excess of a row as it is judged."""
        if not self.shifted.exact.any():
            return point.violation
        return self.wanted.constraints.bounds.violation(self.shifted.meant(self.judged(held_out), point.values))

    def fit(
        self,
        columns: LeafColumns | TiedColumns,
        scores: Array,
        held_out: Array,
        multipliers: Array,
        limit: int = 30,
        people: Array | float = 1.0,
    ) -> LeafFit:
        """Solve for the values of new leaves, from scores and leave-one-out scores without them.

        If no solution's rows hold as they are judged, it is the one that misses least.

        Parameters
        ----------
        people
            How many each row of data stands for.
        """
        curvature = floored_curvature(self.wanted.at(scores), multipliers)
        ridge = columns.ridge(1.0 / self.shrinkage - 1.0, self.regulariser / self.shrinkage, curvature)
        nothing = Quadratic(ridge, np.zeros(columns.width))
        penalty = min(max(1.0, 2.0 * float(np.max(multipliers, initial=0.0))), LARGEST_FIRST_PENALTY)
        start: Array | None = None
        best: LeafFit | None = None
        shift = self.shifted.shift
        self.shifted.begin()
        for _ in range(PASSES):
            solution = solve_reduced(
                self._moved(),
                scores,
                columns,
                nothing,
                multipliers,
                start=start,
                penalty=penalty,
                tolerance=1e-7,
                feasibility=1e-6,
                limit=limit,
            )
            start, multipliers = solution.coefficients, solution.multipliers
            inverse = self._inverse(columns, ridge, solution)
            leverage = columns.quadratic_forms(inverse)
            change = left_out(solution.point, multipliers, leverage, people)
            left = held_out + solution.point.scores - scores + change
            violation = self.violation(solution.point, left)
            if best is None or violation < best.violation:
                best, shift = LeafFit(solution, left, violation, inverse.diagonal()), self.shifted.shift
            if not self.shifted.exact.any():
                break
            judged = self.judged(left)
            if self.shifted.right(judged, multipliers):
                break
            self.shifted.follow(judged, solution.point.values)
        self.shifted.shift = shift
        assert best is not None
        return best

    def _moved(self) -> Lagrangian:
        """The problem with bounds where they are by now."""
        if not self.shifted.exact.any():
            return self.wanted
        bound, bounds = self.wanted.constraints, self.shifted.bounds
        rows = tuple(
            replace(row, lower=lower, upper=upper)
            for row, lower, upper in zip(bound.rows, bounds.lower, bounds.upper, strict=True)
        )
        return self.wanted.with_constraints(bound.with_rows(rows))

    def _inverse(self, columns: LeafColumns | TiedColumns, ridge: Array, solution: ReducedSolution) -> Array:
        weights = floored_curvature(solution.point, solution.multipliers)
        return np.asarray(cho_solve(cho_factor(columns.add_gram(ridge, weights)), np.eye(columns.width)))


def floored_curvature(point: Point, multipliers: Array) -> Array:
    """∂²f/∂z² with a floor."""
    return np.maximum(point.curvature(multipliers), CURVATURE_FLOOR * point.loss_curvature())


def left_out(point: Point, multipliers: Array, leverage: Array, people: Array | float = 1.0) -> Array:
    """What each row's score would change by if the leaves were fitted without it, or without one of its people.

    One Newton step from the solution: with c the row's columns, w its curvature, ν its slope and h = cᵀH⁻¹c its
    leverage, that is h ν / (1 − h w).
    """
    weights = floored_curvature(point, multipliers) / people
    return leverage * (point.derivative(multipliers) / people) / (1.0 - np.minimum(leverage * weights, 0.9))


def is_better(missed: float, loss: float, least: float, best_loss: float, tol: float) -> tuple[bool, bool]:
    """Whether a model is better than the best so far, and whether by enough to count as progress.

    Models that miss their rows less come first, and among those that miss as much the one with less loss.
    """
    nearer = missed < (1.0 - 1e-3) * least
    better = nearer or (missed <= least and loss < best_loss)
    return better, nearer or (missed <= least and loss < (1.0 - tol) * best_loss)
