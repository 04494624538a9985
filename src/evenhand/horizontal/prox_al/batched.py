"""Clients of one process whose local problems have one shape, solved side by side.

A local solve of a few dozen rows of data costs less than the calls that make it up. Where many such clients live in one
process, their chord steps (Newton steps with a kept inverse) are taken in one set of stacked operations; whoever needs
more than that solves alone. Each client's numbers are the same, to the bit, whatever the company: numpy multiplies one
client's matrices after the other, and each begins on an even place in memory, which the oldest kernels round by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeGuard

import numpy as np
import scipy.sparse as sp

from evenhand.arrays import Array
from evenhand.constraints.losses import Logistic
from evenhand.horizontal.prox_al.options import ProxALOptions
from evenhand.programs.augmented import AugmentedPoint
from evenhand.programs.minimise import KEEP, Minimiser
from evenhand.programs.program import Program
from evenhand.programs.slices import SliceProgram

CHORDS = 6
"""Most chord steps before a client is left to itself."""
FEW_ROWS = 2000
"""Clients with more rows of data spend their time in arithmetic: they gain nothing by company."""


class ChordClient(Protocol):
    """What is read of a client; see `ProxALClient`."""

    program: Program
    options: ProxALOptions
    multipliers: Array
    centre: Array
    consensus: Array
    strength: float
    proximity: float
    minimiser: Minimiser
    here: AugmentedPoint | None
    batched: BatchedSolve | None


class ChordStep(NamedTuple):
    """A step's outcome: ∇P at the server's iterate, and where the chord steps ended with ∇P there."""

    slope: Array
    weights: Array
    gradient: Array
    steps: int


def can_join(program: Program) -> TypeGuard[SliceProgram]:
    """Whether a program is dense logistic losses with inequality rows on them, over few rows of data."""
    return (
        isinstance(program, SliceProgram)
        and program.stack is not None
        and isinstance(program.loss, Logistic)
        and not sp.issparse(program.features)
        and not program.own.has_free
        and not program.shared
        and len(program.labels) <= FEW_ROWS
    )


class BatchedSolve:
    """Members with equally many rows of data, weights and scalar constraints."""

    def __init__(self, members: Sequence[ChordClient]) -> None:
        self.members = list(members)
        self.place = {id(member): place for place, member in enumerate(self.members)}
        programs = [member.program for member in self.members if can_join(member.program)]
        self.features = _stacked([program.features for program in programs])
        self.labels = _stacked([program.labels for program in programs])
        self.objective = _stacked([program.objective for program in programs])
        self.regulariser = _stacked([program.regulariser for program in programs])
        sides = [program.own for program in programs]
        self.scalar = _stacked([s.sign[:, None] * p.combinations[s.row] for s, p in zip(sides, programs, strict=True)])
        self.bound = _stacked([s.sign * s.bound for s in sides])
        self.loss = Logistic()
        self.key: tuple[bytes, float] | None = None
        self.starts: Array = np.zeros((len(self.members), self.features.shape[2]))
        self.pulls: Array = np.zeros_like(self.starts)
        self.results: list[ChordStep | None] = []
        # Whose result has not been asked for yet.
        self.waiting = [False] * len(self.members)

    def step(self, member: ChordClient, weights: Array, tolerance: float) -> ChordStep | None:
        """The member's step towards the server's iterate, or None if it has to solve alone."""
        key, place = (weights.tobytes(), tolerance), self.place[id(member)]
        if key != self.key or not self._still(member, place):
            self._solve(weights, tolerance)
            self.key = key
        self.waiting[place] = False
        return self.results[place]

    def _still(self, member: ChordClient, place: int) -> bool:
        """Whether the results at hand are for where the member is: it may have been restored, or asked out of turn."""
        here, size = member.here, len(member.consensus)
        return (
            self.waiting[place]
            and here is not None
            and bool((here.weights == self.starts[place, :size]).all())
            and bool((member.consensus == self.pulls[place, :size]).all())
        )

    def _gradients(self, points: Array) -> Array:
        """∇P of every member, each at its own point."""
        scores = (self.features @ points[:, :, None])[:, :, 0]
        losses, slopes = self.loss.value_and_derivative(scores, self.labels)
        excess = (self.scalar @ losses[:, :, None])[:, :, 0] - self.bound
        pushed = np.maximum(self.multipliers + self.penalty * excess, 0.0)
        weights = self.objective + (pushed[:, None, :] @ self.scalar)[:, 0]
        found: Array = ((weights * slopes)[:, None, :] @ self.features)[:, 0]
        return found + self.regulariser * points + self.proximity * (points - self.centres)

    def _solve(self, weights: Array, tolerance: float) -> None:
        members, size = self.members, weights.size
        ready = np.array([member.here is not None and member.minimiser.inverse is not None for member in members])
        points = _stacked([weights if member.here is None else member.here.weights for member in members])
        self.multipliers = _stacked([member.multipliers for member in members])
        self.centres = _stacked([member.centre for member in members])
        self.pulls = _stacked([member.consensus for member in members])
        self.starts = points
        self.penalty, self.proximity = members[0].options.penalty, members[0].proximity
        strengths = np.array([member.strength for member in members])[:, None]
        none = np.zeros((size, size))
        inverses = _stacked([none if m.minimiser.inverse is None else m.minimiser.inverse for m in members])
        there = _stacked([weights] * len(members))
        slope = self._gradients(there)
        known = _stacked(
            [
                own[:size] if member.here is None else member.here.gradient
                for own, member in zip(slope, members, strict=True)
            ]
        )
        pulled, pulled_there = known + self.pulls + strengths * (points - there), slope + self.pulls
        sizes, sizes_there = abs(pulled).max(axis=1), abs(pulled_there).max(axis=1)
        nearer = (sizes_there < sizes)[:, None]
        points, gradients = np.where(nearer, there, points), np.where(nearer, slope, known)
        pulled, sizes = np.where(nearer, pulled_there, pulled), np.minimum(sizes, sizes_there)
        steps, going = np.zeros(len(members), dtype=int), ready & (sizes > tolerance)
        for _ in range(CHORDS):
            if not going.any():
                break
            trial = points - (inverses @ pulled[:, :, None])[:, :, 0]
            gradient = self._gradients(trial)
            after = gradient + self.pulls + strengths * (trial - there)
            largest = abs(after).max(axis=1)
            # A member whose inverse no longer serves keeps its point and solves alone.
            good = going & (largest <= np.maximum(KEEP * sizes, tolerance))
            ready &= good | ~going
            moved = good[:, None]
            points, gradients = np.where(moved, trial, points), np.where(moved, gradient, gradients)
            pulled, sizes = np.where(moved, after, pulled), np.where(good, largest, sizes)
            steps += good
            going = good & (sizes > tolerance)
        ready &= ~going
        self.waiting = [True] * len(members)
        self.results = [
            ChordStep(slope[place, :size], points[place, :size], gradients[place, :size], int(steps[place]))
            if ready[place]
            else None
            for place in range(len(members))
        ]


def _stacked(arrays: Sequence[Array]) -> Array:
    """One under the other, with zeros up to an even number along each axis: each then begins 16 bytes after another."""
    shape = np.shape(arrays[0])
    found: Array = np.zeros((len(arrays), *(size + size % 2 for size in shape)))
    found[:, *(slice(size) for size in shape)] = arrays
    return found


def solve_together(clients: Sequence[ChordClient]) -> None:
    """Let those be solved side by side whose local problems have one shape; one alone comes out as among many."""
    shapes: dict[tuple[int, ...], list[ChordClient]] = {}
    for client in clients:
        program = client.program
        if can_join(program):
            shapes.setdefault((len(program.labels), program.weights, program.own.n_sides), []).append(client)
    for alike in shapes.values():
        together = BatchedSolve(alike)
        for client in alike:
            client.batched = together
