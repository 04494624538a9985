"""Clients of one process whose local problems have one shape, solved side by side.

A local solve of a few dozen rows of data costs less than the calls that make it up. Where many such clients live in one
process, their chord steps (Newton steps with a kept inverse) are taken in one set of stacked operations; whoever needs
more than that solves alone. Each client's numbers are the same, to the bit, whatever the company: numpy multiplies one
client's matrices after the other, and each begins on an even place in memory, which the oldest kernels round by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, TypeGuard

import numpy as np
import scipy.sparse as sp

from evenhand.arrays import Array, Booleans, Integers
from evenhand.constraints.losses import Logistic
from evenhand.horizontal.prox_al.exact import ExactSolve, is_quadratic
from evenhand.horizontal.prox_al.local_step import LocalStep, SteppingClient
from evenhand.horizontal.prox_al.stacked_slices import StackedSlices, bounded_rows
from evenhand.programs.augmented import AugmentedPoint
from evenhand.programs.minimise import KEEP
from evenhand.programs.program import Program
from evenhand.programs.slices import SliceProgram

CHORDS = 6
"""Most chord steps before a client is left to itself."""
MOST_ALONE = 1 << 20
"""Most features of a client here: they are kept a second time."""
MOST_TOGETHER = 1 << 20
"""About how many features clients have that are solved side by side: more are sooner fetched one after the other."""

Standing: TypeAlias = tuple[AugmentedPoint | None, Array | None, float, Array, Array, Array]
"""Where a client stands: u, the inverse, ρ, λ, μ and w^k, each as an object of its own."""


def can_join(program: Program) -> TypeGuard[SliceProgram]:
    """Whether a program is dense logistic losses with inequality rows on them, over not too many rows of data."""
    return (
        isinstance(program, SliceProgram)
        and program.all_loss
        and isinstance(program.loss, Logistic)
        and not sp.issparse(program.features)
        and not program.own.has_free
        and not program.shared
        and program.features.size <= MOST_ALONE
    )


class BatchedSolve:
    """Members with equally many rows of data, `bounded_rows`, weights and scalar constraints.

    Attributes
    ----------
    known
        Of each member what its numbers in the stacked arrays are those of; None where they are nobody's.
    asked_from
        Of each member where it was when its result was found.
    results
        Steps found, None for whoever has to solve alone; `waiting` says which have not been asked for yet.
    """

    def __init__(self, members: Sequence[SteppingClient]) -> None:
        self.members = list(members)
        self.place = {id(member): place for place, member in enumerate(self.members)}
        self.slices = StackedSlices([member.program for member in self.members if can_join(member.program)])
        self.size = self.members[0].program.weights
        self.known: list[Standing | None] = [None] * len(self.members)
        self.asked_from: list[Standing | None] = [None] * len(self.members)
        self.results: list[LocalStep | None] = [None] * len(self.members)
        self.waiting = [False] * len(self.members)
        self.weights: Array = np.zeros(0)
        self.tolerance = 0.0
        count, padded = len(self.members), self.slices.size
        self.points, self.pulls, self.gradients, self.centres = (np.zeros((count, padded)) for _ in range(4))
        self.multipliers = np.zeros((count, self.slices.sides))
        self.inverses = np.zeros((count, padded, padded))
        self.strengths = np.zeros((count, 1))

    def step(self, member: SteppingClient, weights: Array, tolerance: float) -> LocalStep | None:
        place = self.place[id(member)]
        same = weights is self.weights or np.array_equal(weights, self.weights)
        # It may have been restored since, or be asked out of turn.
        still = self.waiting[place] and _stands(self.asked_from[place], member)
        if not (same and still and tolerance == self.tolerance):
            self._solve(weights, tolerance)
        self.waiting[place] = False
        return self.results[place]

    def _take_in(self) -> None:
        """Bring the stacked arrays up to date with whoever has not gone on from the step that was found for it."""
        stale = [place for place, member in enumerate(self.members) if not _stands(self.known[place], member)]
        if not stale:
            return
        # Members hold parts of these three: their numbers must not change under them.
        self.points, self.pulls, self.gradients = self.points.copy(), self.pulls.copy(), self.gradients.copy()
        size = self.size
        for place in stale:
            member = self.members[place]
            self.known[place] = (
                *(member.here, member.minimiser.inverse, member.strength),
                *(member.consensus, member.multipliers, member.centre),
            )
            self.pulls[place, :size], self.centres[place, :size] = member.consensus, member.centre
            self.multipliers[place, : len(member.multipliers)] = member.multipliers
            self.strengths[place] = member.strength
            if member.here is not None and member.minimiser.inverse is not None:
                self.points[place, :size], self.gradients[place, :size] = member.here.weights, member.here.gradient
                self.inverses[place, :size, :size] = member.minimiser.inverse

    def _gradients(self, points: Array) -> Array:
        penalty, proximity = self.members[0].options.penalty, self.members[0].proximity
        return self.slices.gradients(points, self.multipliers, self.centres, penalty, proximity)

    def _solve(self, weights: Array, tolerance: float) -> None:
        self._take_in()
        self.weights, self.tolerance = weights, tolerance
        self.waiting, self.asked_from = [True] * len(self.members), list(self.known)
        self.results = [None] * len(self.members)
        ready = np.array([state is not None and state[0] is not None and state[1] is not None for state in self.known])
        if not ready.any():
            return
        starts, pulls, strengths = self.points, self.pulls, self.strengths
        there = np.zeros_like(starts)
        there[:, : self.size] = weights
        slope = self._gradients(there)
        pulled_there = slope + pulls
        apart = strengths * (there - starts)
        pulled = self.gradients + pulls
        pulled -= apart
        residuals = abs(pulled_there - apart).max(axis=1)
        # Both points are there; begin at the one that is nearer to the answer.
        sizes, sizes_there = abs(pulled).max(axis=1), abs(pulled_there).max(axis=1)
        nearer = (sizes_there < sizes)[:, None]
        points, gradients = np.where(nearer, there, starts), np.where(nearer, slope, self.gradients)
        pulled, sizes = np.where(nearer, pulled_there, pulled), np.minimum(sizes, sizes_there)
        passes, going = np.ones(len(self.members), dtype=int), ready & ~(sizes <= tolerance)
        for _ in range(CHORDS):
            if not going.any():
                break
            trial = points - (self.inverses @ pulled[:, :, None])[:, :, 0]
            gradient = self._gradients(trial)
            after = gradient + pulls
            after += strengths * (trial - there)
            largest = abs(after).max(axis=1)
            # A member whose inverse no longer serves keeps its point and solves alone.
            good = going & (largest <= np.maximum(KEEP * sizes, tolerance))
            ready &= good | ~going
            passes += good
            if good.all():
                points, gradients, pulled, sizes = trial, gradient, after, largest
            else:
                moved = good[:, None]
                points, gradients = np.where(moved, trial, points), np.where(moved, gradient, gradients)
                pulled, sizes = np.where(moved, after, pulled), np.where(good, largest, sizes)
            going = good & ~(sizes <= tolerance)
        ready &= ~going
        pulls = pulls + strengths * (points - there)
        self._hand_out(ready, points, gradients, pulls, residuals, passes)

    def _hand_out(
        self, ready: Booleans, points: Array, gradients: Array, pulls: Array, residuals: Array, passes: Integers
    ) -> None:
        """Steps for those who have arrived; the arrays stand for where these steps lead."""
        anchors, size = points + pulls / self.strengths, self.size
        arrived, sizes, counts = ready.tolist(), residuals.tolist(), passes.tolist()
        for place, member in enumerate(self.members):
            state = self.known[place]
            if not arrived[place] or state is None:
                self.known[place] = None
                continue
            here = member.augmented.at(points[place, :size]).with_gradient(gradients[place, :size])
            pull = pulls[place, :size]
            self.results[place] = LocalStep(here, pull, anchors[place, :size], sizes[place], counts[place])
            self.known[place] = (here, *state[1:3], pull, *state[4:])
        self.points, self.gradients, self.pulls = points, gradients, pulls


def _stands(standing: Standing | None, member: SteppingClient) -> bool:
    """Whether a member is where it was, all of it: what it stands on is replaced, never changed."""
    if standing is None:
        return False
    here, inverse, strength, consensus, multipliers, centre = standing
    return (
        member.here is here
        and member.minimiser.inverse is inverse
        and member.strength == strength
        and member.consensus is consensus
        and member.multipliers is multipliers
        and member.centre is centre
    )


def solve_together(clients: Sequence[SteppingClient]) -> None:
    """Let those be solved side by side whose local problems have one shape; one alone comes out as among many."""
    shapes: dict[tuple[int, ...], list[SteppingClient]] = {}
    for client in clients:
        program = client.program
        if is_quadratic(program):
            client.steps = ExactSolve(program)
        elif can_join(program):
            shapes.setdefault((*program.features.shape, program.own.n_sides, bounded_rows(program)), []).append(client)
    for (rows, weights, *_), alike in shapes.items():
        count = max(1, MOST_TOGETHER // (rows * weights))
        for first in range(0, len(alike), count):
            together = BatchedSolve(alike[first : first + count])
            for client in together.members:
                client.steps = together
