"""Move the bounds of an SQP server, for constraints on exact rates or on new people.

Whenever the program under the current bounds is solved, its solution is evaluated. Either it is accepted, or the bounds
move by what it shows (`constraints/proving.py`), or it is the last attempt. The best solution so far is kept. Where its
exact rates are far inside their bounds, a search for wider bounds follows (`constraints/widening.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.inequality_parts import PartSums
from evenhand.constraints.leave_one_out import optimism
from evenhand.constraints.proving import Proof, Proving, ShiftedBounds
from evenhand.constraints.slices import Bounds
from evenhand.constraints.widening import UNBOUNDED, WidthSearch
from evenhand.horizontal.sqp.counting import CountedParts
from evenhand.horizontal.sqp.search import Evaluation
from evenhand.horizontal.sqp.sharpening import PATIENCE
from evenhand.programs.optimality import SHARED, Residual
from evenhand.protocol.asking import Body
from evenhand.protocol.roles import SERVER

PASSES = 8
"""Most moves of the bounds without a better model; most runs need two or three."""

MUCH = 1.03
"""Objective, in multiples of that without bounds on rates, above which other cuts are tried."""
ALMOST = 1.01
"""Objective of a solved problem, in multiples of that of a cut, up to which it is preferred."""
LOOKS = 3
"""Measurements at left-out rows that bounds without a confidence are tightened by; then they stay."""
WIDTHS = 5
"""Problems that the search for wider bounds solves; each takes two to four rounds."""
MANY = 4
"""Bounds on rates above which the model without them is compared: with many slices equal rates can cost much."""
UNUSED = 0.5
"""Share of every active bound that must be unused for a search: it costs a dozen rounds."""
FINEST = 1e-8
"""Accuracy that is not exceeded for a narrow bound, because quadratic programs are solved to about as much."""
SMALLEST_GAIN = 1e-3
"""Smallest relative decrease of the objective that the search for wider bounds looks for."""


class Verdict(Enum):
    """Result of evaluating a solution."""

    RIGHT = "accepted"
    MOVED = "rejected, and the bounds have moved"
    UNKNOWN = "leave-one-out measurements are needed"
    LAST = "rejected, and no attempt is left"


@dataclass(frozen=True, eq=False)
class Seen:
    """Best solution while bounds move.

    Solutions are ordered by the violation of the worst exact rate, then by the objective.

    Attributes
    ----------
    factor
        Factor on the temperature of rates in the problem that it solves.
    drift
        By how much its inequalities differ on left-out rows, by the last measurement before it or of it.
    solved
        Whether it solves a problem; a cut of another model does not.
    """

    excess: float
    weights: Array
    rows: Array
    exact: Array
    errors: Array
    net: Array
    residual: Residual
    factor: float
    drift: Array
    solved: bool

    @property
    def rank(self) -> tuple[float, float]:
        return self.excess, self.residual.objective


class MovingBounds:
    """Bounds, and how the clients' counts move them.

    Parameters
    ----------
    asked
        Bounds of all inequalities, numbered as by a server of programs.
    counted
        Slices in which people are counted; None if no bounds move.
    leaves_out
        Whether clients can compute leave-one-out changes, which need second derivatives.
    judged
        Whether bounds on exact rates are tightened by these changes.

    Attributes
    ----------
    shifted, proving
        The moved bounds, for exact rates and for new people.
    optimism, drift
        How much worse inequalities are at leave-one-out scores, and by how much their values differ there, at the last
        solution that was measured.
    shared_smooth
        Smooth sums over the shared parts, at the last model that was counted.
    seen, earlier
        The best solution under the present aims, and that under earlier ones.
    search
        The search for wider bounds, if there is or was one.
    free, least
        Weights of the model without bounds on rates, if that search has solved for it, and its objective.
    factor
        Factor on the temperature of rates in the present problem. Aims stay as they are where it is not one.
    """

    state_fields: ClassVar = {
        "grain": Array,
        "own_counts": Array,
        "shared_smooth": Array,
        "optimism": Array,
        "drift": Array,
        "caution": Array,
        "looks": int,
        "patience": int,
        "measured": bool,
        "proving": Proving,
        "shifted": ShiftedBounds,
        "seen": Seen | None,
        "earlier": Seen | None,
        "search": WidthSearch | None,
        "free": Array | None,
        "least": float,
        "factor": float,
    }

    def __init__(
        self,
        asked: Bounds,
        counted: CountedParts | None,
        exact_rates: bool | None,
        *,
        leaves_out: bool,
        judged: bool = False,
    ) -> None:
        self.asked, self.counted = asked, counted
        self._exact_rates, self._leaves_out, self._judged = exact_rates, leaves_out, judged and leaves_out
        self.grain, self.optimism, self.drift, self.caution = np.zeros((4, asked.n_rows))
        self.own_counts: Array = np.zeros(0)
        self.shared_smooth: Array = np.zeros(0 if counted is None else len(counted.shared.parts))
        self.patience, self.measured, self.looks = PASSES, False, 0
        self.seen: Seen | None = None
        self.earlier: Seen | None = None
        self.search: WidthSearch | None = None
        self.free: Array | None = None
        self.least = np.inf
        self.factor = 1.0
        self._begin()

    def _begin(self) -> None:
        """Start from the given bounds, with margins for the weight of one person."""
        rates = np.zeros(self.asked.n_rows, dtype=bool) if self.counted is None else self.counted.rates
        self.shifted = ShiftedBounds(self.asked, rates, self.grain, self._exact_rates)
        if self.counted is None:
            self.proving = Proving((), self.asked)
            return
        left_out = self.shifted.exact & np.isfinite(self.asked.upper) & self._judged
        self.proving = Proving(self.counted.rows, self.asked, left_out, self.grain)

    @property
    def bounds(self) -> Bounds:
        search = self.search
        return search.bounds(self.shifted) if search is not None and search.open else self.shifted.bounds

    @property
    def _searches(self) -> bool:
        return self.search is not None and self.search.open

    def finest(self, feasibility: float) -> float:
        """Return the accuracy to which constraints must hold for margins to have an effect."""
        return min(feasibility, 0.5 * float(np.min(self.shifted.margin[self.shifted.exact], initial=np.inf)))

    def most_beyond(self, feasibility: float) -> float:
        """Return the largest violation to end with: of a narrow bound on a difference, a share of its width.

        A difference of means has the unit of the target, so that an absolute tolerance could be most of a bound.
        """
        width = 0.5 * (self.asked.upper - self.asked.lower)
        narrow = float(np.min(width[~self.shifted.exact & (width > 0.0)], initial=1.0))
        return min(self.finest(feasibility), max(feasibility * narrow, FINEST))

    # -- counts

    def count(
        self, bodies: Mapping[str, Body], at_server: PartSums | None, smooth: Array, *, first: bool
    ) -> tuple[Array, Array]:
        """Return exact values of all inequalities at a model, and their standard errors, from all counts."""
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
        """Update the optimism from leave-one-out sums."""
        assert self.counted is not None
        without = self.counted.of_sums(self.own_counts, own, shared)
        self.optimism, self.measured = optimism(self.asked, exact, without), True
        self.drift = without - exact
        # It changes in steps, and aims that follow it might not converge. A proof takes the largest value so far.
        mean = np.where(self.looks > 0, (self.caution + self.optimism) / 2.0, self.optimism)
        self.caution = np.where(self.proving.sure, np.maximum(self.caution, self.optimism), mean)
        self.looks += 1

    # -- solutions

    def judge(self, solution: Evaluation, net: Array, residual: Residual) -> Verdict:
        """Evaluate a solution under the current bounds, and move the bounds if that helps."""
        if self._searches:
            return self._widen(solution, net, residual)
        if self._informs(solution) and self.proving.update(solution.errors, self.caution):
            self.shifted.take(self.proving.aim)
            # δ had been followed with ever smaller steps to the last aim.
            self.shifted.begin()
            # Solutions under other aims cannot be compared.
            self.earlier, self.seen, self.patience = self.seen or self.earlier, None, PASSES
        elif self._right(solution, net, residual):
            if self._unmeasured and self._informs(solution):
                return Verdict.UNKNOWN
            if self.measured and self.proving.asks:
                # The proof holds for this model only.
                self.seen = None
            return self._last(Verdict.RIGHT)
        if self.patience:
            self.follow(solution)
            return Verdict.MOVED
        return Verdict.UNKNOWN if self._unmeasured and self._informs(solution) else self._last(Verdict.LAST)

    def _last(self, verdict: Verdict) -> Verdict:
        """Return the verdict, or begin to search for wider bounds."""
        seen = self.seen
        if seen is None or self.search is not None or self.proving.asks or self.factor != 1.0:
            return verdict
        loose = self.shifted.loose(seen.exact, self._table(seen.net), UNUSED)
        if seen.excess == 0.0 and not loose and not self._many:
            return verdict
        self.begin_search(seen, steps=None if loose else 1)
        return Verdict.MOVED

    @property
    def _many(self) -> bool:
        return int(self.shifted.exact.sum()) > MANY

    def begin_search(self, seen: Seen, steps: int | None = None) -> None:
        """Search for wider bounds; the first problem has no bounds on rates.

        Parameters
        ----------
        steps
            Problems to solve. None solves one where no model is feasible: other cuts of the free model offer more.
        """
        gain = SMALLEST_GAIN * abs(seen.residual.objective)
        steps = steps or (WIDTHS if seen.excess == 0.0 else 1)
        self.search = WidthSearch(*seen.rank, self.shifted.width(seen.rows), gain, steps)

    def _widen(self, solution: Evaluation, net: Array, residual: Residual) -> Verdict:
        """Continue the search for wider bounds; at its end, the best solution so far is the answer."""
        assert self.search is not None
        if self.search.width == UNBOUNDED:
            self.free, self.least = solution.weights, residual.objective
        self._right(solution, net, residual)
        assert self.seen is not None
        self.search.take(self.shifted.excess(solution.exact), residual.objective, self.shifted.width(solution.rows))
        if self.search.open:
            return Verdict.MOVED
        return Verdict.RIGHT if self.holds(self.seen) else Verdict.LAST

    def _table(self, net: Array) -> Array:
        return self.asked.table(self.asked.of_net(net))

    @property
    def _unmeasured(self) -> bool:
        return self._aims and self._leaves_out and not self.measured

    @property
    def _aims(self) -> bool:
        """Whether bounds may still be tightened."""
        return self.factor == 1.0 and (self.proving.asks or (self.proving.tightens and self.looks < LOOKS))

    def _informs(self, solution: Evaluation) -> bool:
        """Return whether bounds may move by what this solution loses on left-out rows.

        Where its exact rates miss their bounds, tighter ones only lead further away from a feasible model.
        """
        return self._aims and (self.proving.asks or self.shifted.excess(solution.exact) == 0.0)

    def holds(self, seen: Seen) -> bool:
        """Return whether a solution is within the bounds to train under, or within the requested ones on both rows."""
        left_out = seen.exact + seen.drift
        if self.proving.missed(left_out, seen.errors).any():
            return False
        return seen.excess == 0.0 or self.proving.suffices(seen.exact, left_out)

    def _right(self, solution: Evaluation, net: Array, residual: Residual, *, solved: bool = True) -> bool:
        if not self.shifted.exact.any():
            return True
        excess = self.shifted.excess(solution.exact)
        apart = 0 if self.seen is None else int(solved) - int(self.seen.solved)
        room = ALMOST**apart
        if self.seen is None or (excess, residual.objective / room) < self.seen.rank:
            at = (solution.weights, solution.rows, solution.exact, solution.errors)
            self.seen = Seen(excess, *at, net, residual, self.factor, self.drift, solved)
            self.patience = PASSES if self.factor == 1.0 else PATIENCE
        return self.shifted.right(solution.exact, self._table(net))

    def follow(self, at: Evaluation) -> None:
        """Move bounds by the difference of exact and smooth rates here."""
        self.patience -= 1
        self.shifted.follow(at.exact, at.rows)

    @property
    def sharpens(self) -> bool:
        """Return whether sharper rates may lead to a better model: exact rates are missed, or bounds hardly used."""
        seen = self.seen
        if seen is None or self.proving.asks or not self.shifted.exact.any() or self.counted is None:
            return False
        smooth = self.counted.rates & ~self.shifted.exact
        unused = self._many and self.shifted.loose(seen.exact, self._table(seen.net))
        return not smooth.any() and (self.wasteful or unused)

    def sharpen(self, factor: float) -> None:
        """Begin a problem with other temperatures; `keep` then chooses its bounds."""
        self.factor = factor
        if self.search is not None:
            self.search.open = False

    def keep(self, start: Evaluation) -> None:
        """Choose bounds under which a start keeps its exact rates."""
        self.shifted.hold(start.exact, start.rows)
        self.shifted.begin()
        self.patience = PATIENCE

    def tighten(self) -> bool:
        """Tighten bounds by what the best model loses on left-out rows; return whether they were."""
        seen = self.seen
        assert seen is not None
        if self.looks >= LOOKS or self.proving.suffices(seen.exact, seen.exact + seen.drift):
            return False
        if not self.proving.update(seen.errors, self.optimism):
            return False
        self.shifted.take(self.proving.aim)
        self.earlier, self.seen = seen, None
        return True

    def rank_left_out(self, seen: Seen) -> tuple[float, float]:
        """Return the rank of a solution by its rates on left-out rows, if those of training rows hold."""
        missed = self.shifted.shortfall(seen.exact)
        return 1.0 + missed if missed > 0.0 else self.proving.beyond(seen.exact + seen.drift), seen.residual.objective

    def offer(self, at: Evaluation, net: Array, residual: Residual) -> None:
        """Keep a model that was found in another way, if it is the best so far."""
        self._right(at, net, residual, solved=False)

    @property
    def wasteful(self) -> bool:
        """Return whether no model has exact rates within their bounds, or all such models have lost much."""
        if self.seen is None or self.proving.asks or not self.shifted.exact.any():
            return False
        # Tightened bounds may be out of reach where the requested ones hold.
        missed = self.shifted.shortfall(self.seen.exact) if self.proving.tightens else self.seen.excess
        return missed > 0.0 or self.seen.residual.objective > MUCH * self.least

    # -- results

    def shortfall(self, exact: Array, errors: Array, row_names: tuple[str, ...]) -> str:
        missed = self.shifted.shortfall(exact)
        if missed == 0.0:
            return self.proving.told(self.proving.missed(exact + self.drift, errors))
        beyond = np.where(self.shifted.exact, self.asked.excess(exact).max(axis=0), -np.inf)
        return (
            "no model was found with exact rates on the training rows within their bounds: "
            f"{row_names[int(np.argmax(beyond))]} is missed by {missed:.2g} at best. Its slices may be too small for "
            "the bound; widen it or merge groups"
        )

    def proofs(self, exact: Array, errors: Array) -> list[Proof]:
        return self.proving.proofs(exact, errors, self.optimism) if self.proving.asks else []

    # -- state

    def restored(self) -> None:
        self.shifted.take(self.proving.aim)
