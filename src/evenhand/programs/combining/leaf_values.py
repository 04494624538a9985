"""Solve the values of all new leaves of a round jointly under the inequalities.

    min over α:   mean loss(z + C α) + ½ Σ_l ((1/η − 1) H_l + μ/η) α_l²     subject to the rows at z + C α

C has a column for each leaf of each party's new trees, H_l is the leaf's curvature at z. Of one tree alone, after one
Newton step and without rows, α_l = −η G_l / (H_l + μ): what boosting does with shrinkage η.

Trees exploit smooth rates and fit the training rows closely: constraints that hold there can fail for new people. So
inequalities are *judged* by exact rates (or by the loss, if they bound it) at leave-one-out scores, where no row
influences its own leaf values, or at cross-fitted ones (`cross_fitting.py`). Bounds are shifted by the difference of
the two (`constraints/proving.py`), and the problem is solved again, a few times, each time from the last solution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, pinvh

from evenhand.arrays import Array, Booleans
from evenhand.constraints.evaluation import Lagrangian, Point
from evenhand.constraints.proving import ShiftedBounds
from evenhand.programs.combining.columns import Columns
from evenhand.programs.combining.reduced import Quadratic, ReducedSolution, solve_reduced


class ModelColumns(Columns, Protocol):
    """Columns of a model: leaves of trees, or outputs of other learners."""

    def quadratic_forms(self, matrix: Array) -> Array:
        """Return c_iᵀ M c_i of each row c_i; M is symmetric."""
        ...

    def ridge(self, share: float, constant: float, curvature: Array) -> Array:
        """Return (p, p): the curvature in the coefficients that restrains the model."""
        ...


CURVATURE_FLOOR = 0.3
"""Least share of the loss's own curvature that is left where a tilt makes the Lagrangian concave."""
PASSES = 6
"""Most solutions of a round's problem, by default."""
TOLERANCE = 1e-7
"""Precision of a round's problem, unless a run asks for more."""
DEPENDENT = 1e-10
"""Smallest relative eigenvalue of columns that are told apart."""
HOLDS = 1e-5
"""Largest violation of a model that counts as feasible, where constraints are judged by the values solved for."""
LARGEST_FIRST_PENALTY = 100.0
"""As in `subspace`: where rows cannot hold, a penalty made from λ would grow without end."""


@dataclass(frozen=True, eq=False)
class LeafFit:
    """Leaf values, what they give, and leave-one-out scores.

    Attributes
    ----------
    violation
        Largest violation of an inequality, as judged.
    responses
        Response of each leaf's value to a change of its slope: the leverage of rows that are in no other new leaf.
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
    """Fit leaves under the requested inequalities.

    Parameters
    ----------
    shrinkage, regulariser
        η and μ.
    judged
        Whether inequalities are judged by exact rates at leave-one-out scores; equalities are not.
    grain
        The most that one row of data weighs in each inequality; None computes it.

    Attributes
    ----------
    tolerance
        Relative precision of the objective in a solution.
    passes
        Most solutions of a problem, each under bounds moved further.
    wanted
        The requested problem. If rows of data change between rounds, it is set before each fit.
    """

    state_fields: ClassVar = {"shifted": ShiftedBounds}
    tolerance = TOLERANCE
    passes = PASSES

    def __init__(
        self, wanted: Lagrangian, shrinkage: float, regulariser: float, judged: bool, grain: Array | None = None
    ) -> None:
        self.wanted = wanted
        self.shrinkage = shrinkage
        self.regulariser = regulariser
        rows = wanted.constraints
        self._rates: Booleans = np.array([row.measure.is_rate for row in rows.rows], dtype=bool)
        grain = rows.grain if grain is None else grain
        # Rows on the loss are shifted like rates: they are judged at other scores as well.
        self.shifted = ShiftedBounds(rows.bounds, np.ones(len(rows), dtype=bool), grain, None if judged else False)

    def derivatives(self, point: Point, multipliers: Array) -> tuple[Array, Array]:
        """Return n ∂f/∂z and n ∂²f/∂z², the latter with a floor, to grow trees from."""
        rows = len(point.scores)
        return rows * point.derivative(multipliers), rows * floored_curvature(point, multipliers)

    def values(self, point: Point) -> Array:
        """Return the values of inequalities at these scores: exact rates, and means of losses."""
        return np.where(self._rates, point.exact, point.values)

    def judged(self, held_out: Array) -> Array:
        """Return the values that inequalities are judged by, at leave-one-out scores."""
        return self.values(self.wanted.at(held_out))

    def violation(self, point: Point, held_out: Array) -> float:
        """Return the largest violation of an inequality, as judged."""
        return self.violation_of(point, self.judged(held_out))

    def violation_of(self, point: Point, values: Array) -> float:
        """Return the largest violation of an inequality with these values, where inequalities are judged at all."""
        if not self.shifted.exact.any():
            return point.violation
        return self.wanted.constraints.bounds.violation(self.shifted.meant(values, point.values))

    def fit(
        self,
        columns: ModelColumns,
        scores: Array,
        held_out: Array,
        multipliers: Array,
        limit: int = 30,
        sample_weight: Array | float = 1.0,
        start: Array | None = None,
    ) -> LeafFit:
        """Solve for the values of new leaves, from scores and leave-one-out scores without them.

        Among solutions that hold as judged, return the one with the smallest loss at leave-one-out scores; if none
        holds, the one with the smallest violation.

        Parameters
        ----------
        sample_weight
            How many rows each row of data stands for.
        start
            Coefficients to start from; None is zero.
        """
        ridge, penalty = self.ridge(self.wanted, columns, scores, multipliers), first_penalty(multipliers)
        best: LeafFit | None = None
        least, shift, first = (np.inf, np.inf), self.shifted.shift, (multipliers, start)
        without = self.wanted.at(scores).loss
        self.shifted.begin()
        for _ in range(self.passes):
            solution = self.solve(self.wanted, columns, scores, ridge, multipliers, penalty, start, limit)
            multipliers, start = solution.multipliers, solution.coefficients
            inverse = self._inverse(columns, ridge, solution)
            leverage = columns.quadratic_forms(inverse)
            change = left_out(solution.point, multipliers, leverage, sample_weight)
            left = held_out + solution.point.scores - scores + change
            violation = self.violation(solution.point, left)
            rank = max(violation, HOLDS), self.wanted.at(left).loss
            if best is None or rank < least:
                best, shift = LeafFit(solution, left, violation, inverse.diagonal()), self.shifted.shift
                least = rank
            if not self.shifted.exact.any():
                break
            if solution.point.loss > without:
                # Bounds that were moved too far lead to models that are worse than none, and far from all others.
                multipliers, start = first
            judged = self.judged(left)
            if self.shifted.right(judged, multipliers):
                break
            self.shifted.follow(judged, solution.point.values)
        self.shifted.shift = shift
        assert best is not None
        return best

    def ridge(self, of: Lagrangian, columns: ModelColumns, scores: Array, multipliers: Array) -> Array:
        """Return the curvature that shrinkage and regulariser add."""
        curvature = floored_curvature(of.at(scores), multipliers)
        return columns.ridge(1.0 / self.shrinkage - 1.0, self.regulariser / self.shrinkage, curvature)

    def solve(
        self,
        of: Lagrangian,
        columns: ModelColumns,
        scores: Array,
        ridge: Array,
        multipliers: Array,
        penalty: float,
        start: Array | None = None,
        limit: int = 30,
    ) -> ReducedSolution:
        """Solve for leaf values under the present bounds, from these coefficients; None is zero."""
        return solve_reduced(
            self._moved(of),
            scores,
            columns,
            Quadratic(ridge, np.zeros(columns.width)),
            multipliers,
            start=start,
            penalty=penalty,
            tolerance=self.tolerance,
            feasibility=10.0 * self.tolerance,
            limit=limit,
        )

    def _moved(self, of: Lagrangian) -> Lagrangian:
        """Return the problem with its present bounds."""
        if not self.shifted.exact.any():
            return of
        bound, bounds = of.constraints, self.shifted.bounds
        rows = tuple(
            replace(row, lower=lower, upper=upper)
            for row, lower, upper in zip(bound.rows, bounds.lower, bounds.upper, strict=True)
        )
        return of.with_constraints(bound.with_inequalities(rows))

    def _inverse(self, columns: ModelColumns, ridge: Array, solution: ReducedSolution) -> Array:
        weights = floored_curvature(solution.point, solution.multipliers)
        gram = columns.add_gram(ridge, weights)
        try:
            return np.asarray(cho_solve(cho_factor(gram), np.eye(columns.width)))
        except LinAlgError:
            # Columns that depend on each other, without a ridge.
            return np.asarray(pinvh(gram, rtol=DEPENDENT))


def first_penalty(multipliers: Array) -> float:
    """Return the penalty that the solution of a round's problem starts from."""
    return min(max(1.0, 2.0 * float(np.max(multipliers, initial=0.0))), LARGEST_FIRST_PENALTY)


def floored_curvature(point: Point, multipliers: Array) -> Array:
    """Return ∂²f/∂z² with a floor."""
    return np.maximum(point.curvature(multipliers), CURVATURE_FLOOR * point.loss_curvature())


def left_out(point: Point, multipliers: Array, leverage: Array, sample_weight: Array | float = 1.0) -> Array:
    """Return each row's change of score if the leaves were fitted without it, or without one of the rows it stands for.

    One Newton step from the solution: with c the row's columns, w its curvature, ν its slope and h = cᵀH⁻¹c its
    leverage, that is h ν / (1 − h w).
    """
    weights = floored_curvature(point, multipliers) / sample_weight
    return leverage * (point.derivative(multipliers) / sample_weight) / (1.0 - np.minimum(leverage * weights, 0.9))


def is_better(missed: float, loss: float, least: float, best_loss: float, tol: float) -> tuple[bool, bool]:
    """Return whether a model is better than the best so far, and whether by enough to count as progress.

    A smaller violation wins; for equal violations the smaller loss does.
    """
    nearer = missed < (1.0 - 1e-3) * least
    better = nearer or (missed <= least and loss < best_loss)
    return better, nearer or (missed <= least and loss < (1.0 - tol) * best_loss)
