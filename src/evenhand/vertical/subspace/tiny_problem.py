"""The tiny problem of a subspace round: the best combination of all parties' columns under the inequalities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.lagrangian import Lagrangian, Point
from evenhand.constraints.leave_one_out import measured
from evenhand.programs.combining.columns import Columns, DenseColumns, ListedColumns, RowSample, draw_sample
from evenhand.programs.combining.reduced import Quadratic, ReducedSolution, solve_reduced
from evenhand.vertical.subspace.blocks import PartyBlock
from evenhand.vertical.subspace.rates import RateSchedule
from evenhand.vertical.subspace.stopping import FEASIBLE

LARGEST_FIRST_PENALTY = 100.0
"""Limit on the first penalty. Where constraints cannot hold, λ and a penalty made from it would grow without end."""
FAR = 3.0
"""Promised gain, in multiples of tol, above which a round's tiny problem is not solved to exact rates."""
LOOSEST = 1e-3
"""Loosest tolerance of a tiny problem. Parties' promises can be arbitrarily large where multipliers are steep."""
MOST_COPIED = 1 << 23
"""Maximum number of values that are copied to have all columns side by side: 67 MB."""


def too_large_to_copy(columns: int, rows: int) -> bool:
    """Return whether so many columns are left where they are, rather than copied side by side."""
    return columns * rows > MOST_COPIED


class TinyProblem:
    """Combines the columns of all parties' blocks, and the intercept.

    Parameters
    ----------
    lagrangian
        The problem with the rows as they were asked for.
    regulariser
        μ.
    intercept
        Whether there is an intercept. It is the last column then.
    tol
        The tolerance of the whole run.

    Attributes
    ----------
    effort
        Multiplications of the last solution.
    """

    def __init__(self, lagrangian: Lagrangian, regulariser: float, intercept: bool, tol: float) -> None:
        self._lagrangian, self._regulariser, self._intercept, self._tol = lagrangian, regulariser, intercept, tol
        self._rows = self._most = 0
        self.effort = 0.0

    def best_intercept(self, schedule: RateSchedule, scores: Array, multipliers: Array) -> ReducedSolution:
        """Solve for the intercept alone."""
        column, nothing = np.ones((len(scores), 1)), Quadratic(np.zeros((1, 1)), np.zeros(1))
        return solve_reduced(schedule.at_round(1), scores, column, nothing, multipliers)

    def solve(
        self,
        schedule: RateSchedule,
        number: int,
        blocks: Sequence[PartyBlock],
        present: Callable[[], Point],
        multipliers: Array,
        *,
        squared_norm: float,
        decrement: float,
        objective: float,
    ) -> ReducedSolution:
        """Solve a round's problem.

        Parameters
        ----------
        schedule, number
            The problem of each round, and the number of this one.
        present
            Gives the point where the server is, in the round's problem: moved bounds make it another one.
        objective
            At that point.
        squared_norm
            Of all parties' weights.
        decrement
            What parties' own quadratic models promise.
        """
        scores, self.effort = present().scores, 0.0
        self._rows, self._most = len(scores), sum(block.most for block in blocks) + self._intercept
        known, norms = self._parts(blocks, squared_norm)
        # Chosen anew each round: a penalty that one round needed would slow the next along the curve of a constraint.
        penalty = min(max(1.0, 2.0 * float(np.max(multipliers, initial=0.0))), LARGEST_FIRST_PENALTY)
        columns, cost = self._arranged(known), float(len(scores)) * len(known) ** 2
        sample = None if self._sample is None else self._sample.of(columns)
        # A pass over the same columns starts from the factorisation of the one before.
        root = None

        def solve(lagrangian: Lagrangian, start: Array | None) -> ReducedSolution:
            nonlocal multipliers, root
            solution = solve_reduced(
                lagrangian,
                scores,
                columns,
                norms,
                multipliers,
                start=start,
                penalty=penalty,
                # A run that asks for the last digits must have them in the tiny problem, too.
                tolerance=max(1e-13, min(1e-10, 0.01 * self._tol), min(0.01 * decrement, LOOSEST)),
                feasibility=max(1e-12, 0.1 * min(FEASIBLE, self._tol)),
                limit=30,
                sample=sample,
                root=root,
                known=present() if lagrangian is present().lagrangian else None,
            )
            self.effort += solution.iterations * cost
            multipliers, root = solution.multipliers, solution.root
            return solution

        def measure(found: ReducedSolution) -> tuple[Array, Array]:
            self.effort += cost
            return measured(self._lagrangian, found.point.scores, found.multipliers, np.array(known).T, norms.gram)

        return schedule.solve(number, solve, measure, far=decrement > FAR * self._tol * objective)

    def _parts(self, blocks: Sequence[PartyBlock], squared_norm: float) -> tuple[list[Array], Quadratic]:
        """Return all columns, and the regulariser as a function of their coefficients."""
        size = sum(block.width for block in blocks) + self._intercept
        known: list[Array] = []
        gram, linear = np.zeros((size, size)), np.zeros(size)
        start = 0
        for block in blocks:
            here = slice(start, start + block.width)
            own, inner, along = block.parts()
            known += own
            gram[here, here], linear[here] = self._regulariser * inner, self._regulariser * along
            start += block.width
        if self._intercept:
            # A single number, broadcast to all rows.
            known.append(np.broadcast_to(1.0, self._rows))
        return known, Quadratic(gram, linear, 0.5 * self._regulariser * squared_norm)

    def _arranged(self, known: list[Array]) -> Columns:
        """Copy columns side by side, into memory that is used again each round, unless they are too large."""
        if too_large_to_copy(self._most, self._rows):
            return ListedColumns(known)
        for row, column in zip(self._store, known, strict=False):
            row[:] = column
        return DenseColumns(self._store[: len(known)].T)

    @cached_property
    def _store(self) -> Array:
        return np.empty((self._most, self._rows))

    @cached_property
    def _sample(self) -> RowSample | None:
        """Rows for curvature, enough for the most columns that there will be."""
        return draw_sample(self._lagrangian.constraints.stratum, self._most)
