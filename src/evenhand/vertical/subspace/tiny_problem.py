"""The tiny problem of a subspace round: the best combination of all parties' columns under the inequalities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.constraints.evaluation import Lagrangian, Point
from evenhand.constraints.leave_one_out import LeftOutValues, measured
from evenhand.constraints.proving import ShiftedBounds
from evenhand.programs.combining.columns import (
    ClassColumns,
    Columns,
    DenseColumns,
    ListedColumns,
    RowSample,
    draw_sample,
)
from evenhand.programs.combining.cuts import CutModel, cut_models
from evenhand.programs.combining.elastic import Box
from evenhand.programs.combining.reduced import Quadratic, ReducedSolution, Status, solve_reduced
from evenhand.vertical.subspace.blocks import PartyBlock
from evenhand.vertical.subspace.rate_search import RateSchedule
from evenhand.vertical.subspace.stopping import FEASIBLE

LARGEST_FIRST_PENALTY = 100.0
"""Limit on the first penalty. Where constraints cannot hold, λ and a penalty made from it would grow without end."""
DEARER = 10.0
"""Factor on the penalty of a search that starts again, because it ended at its limit of steps."""
FAR = 3.0
"""Promised gain, in multiples of tol, above which a round's tiny problem is not solved to exact rates."""
LOOSEST = 1e-3
"""Loosest tolerance of a tiny problem. Parties' promises can be arbitrarily large where multipliers are steep."""
MOST_STEPS = 150
"""Maximum number of steps in all solutions of a round's tiny problem, so that a round's time is bounded."""
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
    outputs
        Scores of a row. With several, blocks are those of the first output for every party, then of the next, and
        each output has an intercept.

    Attributes
    ----------
    effort
        Multiplications of the last solution.
    """

    def __init__(
        self, lagrangian: Lagrangian, regulariser: float, intercept: bool, tol: float, outputs: int = 1
    ) -> None:
        self._lagrangian, self._regulariser, self._tol = lagrangian, regulariser, tol
        self._outputs, self._intercept = outputs, outputs * intercept
        self._rows = self._most = 0
        self.effort = 0.0

    def best_intercept(self, schedule: RateSchedule, scores: Array, multipliers: Array) -> ReducedSolution:
        """Solve for the intercept alone."""
        count = self._outputs
        nothing = Quadratic(np.zeros((count, count)), np.zeros(count))
        one = DenseColumns(np.ones((scores.shape[-1], 1)))
        columns = one if count == 1 else ClassColumns([one] * count, list(np.arange(count)[:, None]))
        return solve_reduced(schedule.at_round(1), scores, columns, nothing, multipliers)

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
        follows: Array | None = None,
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
        follows
            See `measured`.
        """
        scores, self.effort = present().scores, 0.0
        self._rows, self._most = scores.shape[-1], sum(block.most for block in blocks) + self._intercept
        known, norms = self._parts(blocks, squared_norm)
        # Chosen anew each round: a penalty that one round needed would slow the next along the curve of a constraint.
        penalty = min(max(1.0, 2.0 * float(np.max(multipliers, initial=0.0))), LARGEST_FIRST_PENALTY)
        box = self._box(blocks)
        columns, cost = self._arranged(known, blocks), float(self._rows) * len(known) ** 2
        sample = None if self._sample is None else self._sample.of(columns)
        # A pass over the same columns starts from the factorisation of the one before.
        root, left = None, MOST_STEPS

        # The objective of amounts has their unit squared, and tolerances are relative to it.
        promised = decrement / max(1.0, abs(objective))

        def solve(lagrangian: Lagrangian, start: Array | None) -> ReducedSolution:
            solution = search(lagrangian, start, penalty)
            # From a feasible start the search went far beyond the bounds and did not find back: it needs them dearer.
            # Where bounds move, each pass has its own.
            dear = penalty
            while solution.status is Status.LIMIT and solution.violation <= FEASIBLE and not schedule.moves and left:
                dear *= DEARER
                solution = search(lagrangian, solution.coefficients, dear)
            return solution

        def search(lagrangian: Lagrangian, start: Array | None, penalty: float) -> ReducedSolution:
            nonlocal multipliers, root, left
            solution = solve_reduced(
                lagrangian,
                scores,
                columns,
                norms,
                multipliers,
                start=start,
                penalty=penalty,
                # A run that asks for the last digits must have them in the tiny problem, too.
                tolerance=max(1e-13, min(1e-10, 0.01 * self._tol), min(0.01 * promised, LOOSEST)),
                feasibility=max(1e-12, 0.1 * min(FEASIBLE, self._tol)),
                limit=min(30, left),
                sample=sample,
                root=root,
                known=present() if lagrangian is present().lagrangian else None,
                box=box,
            )
            self.effort += solution.iterations * cost
            left -= solution.iterations
            multipliers, root = solution.multipliers, solution.root
            return solution

        def measure(found: ReducedSolution) -> LeftOutValues:
            self.effort += cost
            own = np.array(known).T
            return measured(self._lagrangian, found.point.scores, found.multipliers, own, norms.gram, follows)

        far = decrement > FAR * self._tol * objective

        def cuts(found: ReducedSolution, shifted: ShiftedBounds) -> list[CutModel]:
            self.effort += cost
            return cut_models(found, columns, norms, shifted)

        others = cuts if self._intercept else None
        return schedule.solve(number, solve, measure, others, far=far, least_gain=self._tol * objective)

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
        # Single numbers, broadcast to all rows.
        known += [np.broadcast_to(1.0, self._rows)] * self._intercept
        return known, Quadratic(gram, linear, 0.5 * self._regulariser * squared_norm)

    def _box(self, blocks: Sequence[PartyBlock]) -> Box | None:
        """Return the bounds on all coefficients; None if there are none."""
        sides = [np.concatenate(one) for one in zip(*(block.box for block in blocks), strict=True)]
        free = [np.full(self._intercept, limit) for limit in (-np.inf, np.inf)]
        found = Box(*(np.append(side, own) for side, own in zip(sides, free, strict=True)))
        return found if found.bounded.any() else None

    def _arranged(self, known: list[Array], blocks: Sequence[PartyBlock]) -> Columns:
        """Copy columns side by side, into memory that is used again each round, unless they are too large."""
        copied = not too_large_to_copy(self._most, self._rows)
        if self._outputs > 1:
            places = self._places(blocks)
            parts = [[known[place] for place in own] for own in places]
            made = [DenseColumns(np.array(part).T) if copied else ListedColumns(part) for part in parts]
            return ClassColumns(made, places)
        if not copied:
            return ListedColumns(known)
        for row, column in zip(self._store, known, strict=False):
            row[:] = column
        return DenseColumns(self._store[: len(known)].T)

    def _places(self, blocks: Sequence[PartyBlock]) -> list[Integers]:
        """Return where the columns of each output are: those of its blocks, and its intercept at the end."""
        parties = len(blocks) // self._outputs
        ends = np.cumsum([block.width for block in blocks])[parties - 1 :: parties]
        found = [np.arange(first, end) for first, end in zip([0, *ends], ends, strict=False)]
        return [np.append(one, ends[-1] + place) for place, one in enumerate(found)] if self._intercept else found

    @cached_property
    def _store(self) -> Array:
        return np.empty((self._most, self._rows))

    @cached_property
    def _sample(self) -> RowSample | None:
        """Rows for curvature, enough for the most columns that there will be."""
        return draw_sample(self._lagrangian.constraints.stratum, self._most // self._outputs)
