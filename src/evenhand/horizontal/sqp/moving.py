"""The bounds that an SQP server works under, where they move: exact rates are meant, or what holds among new people.

Whenever the program under the present bounds is solved, its solution is judged: it is right, or the bounds move by what
it shows (`constraints/exact_rates.py`, `constraints/proving.py`), or it is the last that is tried. The best solution
seen is remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.bounds import Bounds
from evenhand.constraints.exact_rates import ShiftedBounds
from evenhand.constraints.leave_one_out import optimism
from evenhand.constraints.proving import Proof, Proving
from evenhand.constraints.row_parts import PartSums
from evenhand.horizontal.sqp.counting import CountedParts
from evenhand.horizontal.sqp.search import Evaluation
from evenhand.programs.optimality import SHARED, Residual
from evenhand.protocol.answers import Body
from evenhand.protocol.roles import SERVER

PASSES = 8
"""Most times that bounds move without a better model; most runs need two or three."""


class Verdict(Enum):
    """What a solution is."""

    RIGHT = "all that was asked for"
    MOVED = "not that, and the bounds have moved"
    UNKNOWN = "to be measured on rows left out first"
    LAST = "not that, and no more is tried"


@dataclass(frozen=True, eq=False)
class Seen:
    """The best solution seen while bounds move.

    By how much its worst exact rate misses, then its objective, say which of two is the better.
    """

    excess: float
    weights: Array
    rows: Array
    exact: Array
    errors: Array
    net: Array
    residual: Residual

    @classmethod
    def of(cls, at: Evaluation, excess: float, net: Array, residual: Residual) -> Seen:
        return cls(excess, at.weights, at.rows, at.exact, at.errors, net, residual)

    @property
    def rank(self) -> tuple[float, float]:
        return self.excess, self.residual.objective


class MovingBounds:
    """Bounds, and what clients' counts say about them.

    Parameters
    ----------
    asked
        Of all constraint rows, as a server of programs numbers them.
    counted
        Where people are counted; None where nothing moves.
    leaves_out
        Whether clients can tell what rows left out would change, which takes second derivatives.

    Attributes
    ----------
    shifted, proving
        Where bounds are moved to, and why.
    optimism
        How much worse rows are with everybody left out in turn, at the last solution that was measured.
    shared_smooth
        Smooth sums over the shared parts, at the last model that was counted.
    """

    state_fields: ClassVar = {
        "grain": Array,
        "own_counts": Array,
        "shared_smooth": Array,
        "optimism": Array,
        "caution": Array,
        "patience": int,
        "measured": bool,
        "proving": Proving,
        "shifted": ShiftedBounds,
        "seen": Seen | None,
    }

    def __init__(
        self, asked: Bounds, counted: CountedParts | None, exact_rates: bool | None, *, leaves_out: bool
    ) -> None:
        self.asked, self.counted = asked, counted
        self._exact_rates, self._leaves_out = exact_rates, leaves_out
        self.grain, self.optimism, self.caution = np.zeros((3, asked.n_rows))
        self.own_counts: Array = np.zeros(0)
        self.shared_smooth: Array = np.zeros(0 if counted is None else len(counted.shared.parts))
        self.patience, self.measured = PASSES, False
        self.seen: Seen | None = None
        self._begin()

    def _begin(self) -> None:
        """Bounds as they were asked for, with margins for what one person weighs."""
        rates = np.zeros(self.asked.n_rows, dtype=bool) if self.counted is None else self.counted.rates
        self.shifted = ShiftedBounds(self.asked, rates, self.grain, self._exact_rates)
        self.proving = Proving([] if self.counted is None else self.counted.rows, self.asked)

    @property
    def bounds(self) -> Bounds:
        return self.shifted.bounds

    def finest(self, feasibility: float) -> float:
        """How exactly rows must hold for margins to mean anything."""
        return min(feasibility, 0.5 * float(np.min(self.shifted.margin[self.shifted.exact], initial=np.inf)))

    # -- counts

    def count(
        self, bodies: Mapping[str, Body], at_server: PartSums | None, smooth: Array, *, first: bool
    ) -> tuple[Array, Array]:
        """Exact values of all rows at a model, and their standard errors, from what everybody has counted."""
        self.measured = False
        if self.counted is None:
            return smooth, np.zeros_like(smooth)
        told = {
            name: PartSums(body["own_counts"], body["own_sums"], body["own_squares"], np.zeros(0))
            for name, body in bodies.items()
        }
        sums, squares, self.shared_smooth = (
            np.sum([body[f"shared_{name}"] for body in bodies.values()], axis=0)
            for name in ("sums", "squares", "smooth")
        )
        told[SHARED] = PartSums(self.counted.shared_counts, sums, squares, self.shared_smooth)
        if at_server is not None:
            told[SERVER] = at_server
        if first:
            self.own_counts = np.concatenate([np.zeros(0), *(told[name].counts for name in self.counted.own)])
            self.grain = self.counted.grain(told)
            self._begin()
        return self.counted.values(told), self.counted.errors(told)

    def compare(self, exact: Array, own: Mapping[str, Array], shared: Array) -> None:
        """Take in what has been counted with everybody left out in turn."""
        assert self.counted is not None
        without = self.counted.of_sums(self.own_counts, own, shared)
        self.optimism, self.measured = optimism(self.asked, exact, without), True
        # The most that was seen: it moves in steps, and aims that follow it might not settle.
        self.caution = np.maximum(self.caution, self.optimism)

    # -- solutions

    def judge(self, solution: Evaluation, net: Array, residual: Residual) -> Verdict:
        """Say what a solution under the present bounds is, and move them if that helps."""
        if self.proving.asks and self.proving.update(solution.errors, self.caution):
            self.shifted.take(self.proving.aim)
            # What was seen under other aims is not to be compared.
            self.seen, self.patience = None, PASSES
        elif self._right(solution, net, residual):
            if self._unmeasured:
                return Verdict.UNKNOWN
            if self.measured:
                # What is proven is proven of this model.
                self.seen = None
            return Verdict.RIGHT
        if self.patience:
            self.follow(solution)
            return Verdict.MOVED
        return Verdict.UNKNOWN if self._unmeasured else Verdict.LAST

    @property
    def _unmeasured(self) -> bool:
        return self.proving.asks and self._leaves_out and not self.measured

    def _right(self, solution: Evaluation, net: Array, residual: Residual) -> bool:
        if not self.shifted.exact.any():
            return True
        excess = self.shifted.excess(solution.exact)
        if self.seen is None or (excess, residual.objective) < self.seen.rank:
            self.seen = Seen.of(solution, excess, net, residual)
            self.patience = PASSES
        return self.shifted.right(solution.exact, self.asked.table(self.asked.of_net(net)))

    def follow(self, at: Evaluation) -> None:
        """Move bounds by the difference of exact and smooth rates here."""
        self.patience -= 1
        self.shifted.follow(at.exact, at.rows)

    # -- what is said in the end

    def shortfall(self, exact: Array, row_names: tuple[str, ...]) -> str:
        missed = self.shifted.shortfall(exact)
        if missed == 0.0:
            return ""
        beyond = np.where(self.shifted.exact, self.asked.excess(exact).max(axis=0), -np.inf)
        return (
            "no model was found whose exact rates on the training rows meet their bounds: "
            f"{row_names[int(np.argmax(beyond))]} is missed by {missed:.2g} at best. Its slices may be too small for "
            "the bound; widen it or merge groups"
        )

    def proofs(self, exact: Array, errors: Array) -> list[Proof]:
        return self.proving.proofs(exact, errors, self.optimism) if self.proving.asks else []

    # -- state

    def restored(self) -> None:
        self.shifted.take(self.proving.aim)
