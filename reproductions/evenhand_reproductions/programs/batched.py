"""Solve the local problems of one process side by side, if they have the same shape.

A local solve of a few dozen rows of data costs less than its calls. If many such clients run in one process, their
chord steps (Newton steps with a kept inverse) are stacked. A client that needs more than that solves alone. Each
client's numbers are the same bit for bit, whatever the other clients: numpy multiplies client after client, and each
matrix begins at an even offset in memory, on which rounding in the oldest kernels depends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, TypeGuard

import numpy as np
import scipy.sparse as sp

from evenhand.arrays import Array, Booleans, Integers
from evenhand.constraints.losses import Logistic
from evenhand.horizontal.prox_al.client import LocalStep, SteppingClient
from evenhand.programs.augmented import AugmentedPoint
from evenhand.programs.minimise import KEEP
from evenhand.programs.program import Program
from evenhand.programs.slices import SliceProgram

LARGEST = 700.0
"""Above this, the logistic loss equals its argument, and exp would overflow."""


class StackedSlices:
    """Programs with equal numbers of rows of data, `bounded_rows`, weights and scalar constraints.

    The first axis of all arrays is that of the programs. Rows of data are multiplied by −y, so losses are functions of
    one number. Rows of data in constraints come first, because only they need the loss itself.

    Attributes
    ----------
    size, sides, most
        Numbers of weights, scalar constraints and rows of data in constraints, padded to be even.
    """

    def __init__(self, programs: Sequence[SliceProgram]) -> None:
        orders = [np.argsort(~program.combinations.any(axis=0), kind="stable") for program in programs]
        both, most = list(zip(programs, orders, strict=True)), bounded_rows(programs[0])
        self.features = stacked([-p.labels[order, None] * p.features[order] for p, order in both])
        self.objective = stacked([p.objective[order] for p, order in both])
        self.regulariser = stacked([p.regulariser for p in programs])
        self.scalar = stacked([p.own.sign[:, None] * p.combinations[p.own.row][:, order[:most]] for p, order in both])
        self.bound = stacked([p.own.sign * p.own.bound for p in programs])
        self.size = self.features.shape[2]
        self.sides, self.most = self.scalar.shape[1:]

    def gradients(self, points: Array, multipliers: Array, centres: Array, penalty: float, proximity: float) -> Array:
        """Return ∇P_i (proximal AL Eq. 14) of each client."""
        scores = (self.features @ points[:, :, None])[:, :, 0]
        far = float(scores.max()) > LARGEST
        tail = np.exp(np.minimum(scores, LARGEST) if far else scores)
        losses = np.log1p(tail[:, : self.most])
        if far:
            losses += np.maximum(scores[:, : self.most] - LARGEST, 0.0)
        excess = (self.scalar @ losses[:, :, None])[:, :, 0] - self.bound
        pushed = np.maximum(multipliers + penalty * excess, 0.0)
        slopes = np.add(tail, 1.0, out=scores)
        np.divide(tail, slopes, out=slopes)
        tilt = (pushed[:, None, :] @ self.scalar)[:, 0]
        tilt *= slopes[:, : self.most]
        slopes *= self.objective
        slopes[:, : self.most] += tilt
        found: Array = (slopes[:, None, :] @ self.features)[:, 0]
        found += self.regulariser * points
        found += proximity * (points - centres)
        return found


def bounded_rows(program: SliceProgram) -> int:
    """Return the number of rows of data in constraints, rounded up to a quarter of all, so that few clients differ."""
    rows, bounded = len(program.labels), int(program.combinations.any(axis=0).sum())
    return -(-rows * -(-4 * bounded // max(rows, 1)) // 4)


def stacked(arrays: Sequence[Array]) -> Array:
    """Stack arrays, zero-padded to even sizes along each axis, so that each begins at a multiple of 16 bytes."""
    shape = np.shape(arrays[0])
    found: Array = np.zeros((len(arrays), *(size + size % 2 for size in shape)))
    found[:, *(slice(size) for size in shape)] = arrays
    return found


CHORDS = 6
"""Most chord steps before a client solves alone."""
MOST_ALONE = 1 << 20
"""Most features of a client here, because they are stored a second time."""
MOST_TOGETHER = 1 << 20
"""Approximate number of features of clients that are solved together; more are faster one after the other."""

Standing: TypeAlias = tuple[AugmentedPoint | None, Array | None, float, Array, Array, Array]
"""State of a client: u, the inverse, ρ, λ, μ and w^k, each compared by identity."""


def can_join(program: Program) -> TypeGuard[SliceProgram]:
    """Return whether a program has dense logistic losses with inequalities on them, over not too many rows of data."""
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
    """Members with equal numbers of rows of data, `bounded_rows`, weights and scalar constraints.

    Attributes
    ----------
    known
        State of each member that its numbers in the stacked arrays belong to; None if they are stale.
    asked_from
        State of each member when its result was computed.
    results
        Computed steps, None for members that must solve alone; `waiting` marks those not yet collected.
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
        # The member may have been restored since, or be asked out of order.
        still = self.waiting[place] and _stands(self.asked_from[place], member)
        if not (same and still and tolerance == self.tolerance):
            self._solve(weights, tolerance)
        self.waiting[place] = False
        return self.results[place]

    def _take_in(self) -> None:
        """Update the stacked arrays for members that did not continue from the step that was computed for them."""
        stale = [place for place, member in enumerate(self.members) if not _stands(self.known[place], member)]
        if not stale:
            return
        # Members hold views of these three, so their numbers must not change in place.
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
        # Start from whichever of the two points is nearer to the solution.
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
            # A member with an inverse that no longer converges keeps its point and solves alone.
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
        """Store the steps of members that have converged, and update the arrays to these steps."""
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
    """Return whether a member's state is unchanged; its parts are replaced, never modified in place."""
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
    """Let clients with local problems of the same shape be solved together; a single client gets the same numbers."""
    shapes: dict[tuple[int, ...], list[SteppingClient]] = {}
    for client in clients:
        program = client.program
        if can_join(program):
            shapes.setdefault((*program.features.shape, program.own.n_sides, bounded_rows(program)), []).append(client)
    for (rows, weights, *_), alike in shapes.items():
        count = max(1, MOST_TOGETHER // (rows * weights))
        for first in range(0, len(alike), count):
            together = BatchedSolve(alike[first : first + count])
            for client in together.members:
                client.steps = together
