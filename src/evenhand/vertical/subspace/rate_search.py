"""The search of a subspace round under bounds on rates: temperatures, moved bounds, aims and other cuts.

Each round's tiny problem is solved for sharper and sharper smooth rates, until the exact ones are right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from evenhand.arrays import Array, Booleans
from evenhand.constraints.evaluation import Lagrangian, Point
from evenhand.constraints.leave_one_out import LeftOutValues, optimism
from evenhand.constraints.proving import Proving, ShiftedBounds
from evenhand.constraints.slices import Bounds
from evenhand.constraints.widening import UNBOUNDED
from evenhand.programs.combining.cuts import CutModel
from evenhand.programs.combining.reduced import ReducedSolution, Status
from evenhand.vertical.problem import narrowness

LADDER = (8.0, 4.0, 2.0)
"""Factors on the temperature of rates in the first rounds; `benchmarks/subspace_choices.py` measures their effect."""
PASSES = 6
"""Maximum number of solutions of a round's tiny problem. In hard cases one is not enough."""

STEPS_OF_A_FIT = 600
"""Maximum number of steps of a fit, after which a round's problem is solved once only."""
SEARCHES = 3
"""Maximum number of rounds that search for better models among sharper rates and other cuts."""
SHARPER = (0.4, 0.16, 0.064)
"""Factors on the temperature in a search from the model at hand: a sharp rate is nearly the exact one."""
OF_A_CUT = (0.1, 0.2, 0.4)
"""The same in a search from another cut, where a rate must be sharp from the start to keep the cut."""
SMOOTHER = (2.0, 4.0)
"""Factors in a search for models that lose less on left-out rows: a smooth rate rests on more rows than a sharp one."""
TIGHTER = 0.8
"""Share of a bound below which its aim is so tight that smoother rates are tried."""
Solve = Callable[[Lagrangian, Array | None], ReducedSolution]
"""Solves the tiny problem under the constraints of a Lagrangian, from these coefficients (None: from zero)."""
Cuts = Callable[[ReducedSolution, ShiftedBounds], list[CutModel]]
"""Returns models near a solution that meet the bounds on exact rates."""
Measure = Callable[[ReducedSolution], LeftOutValues]
"""Measures the constraints at a solution, on training rows and on left-out ones."""


@dataclass(frozen=True, eq=False)
class Aimed:
    """The problem that a model solves, and what it was measured at; see `RateSchedule`.

    Attributes
    ----------
    place
        δ and the factor on the temperature.
    aim
        Bounds that were aimed at.
    """

    place: tuple[Array, float]
    aim: Bounds
    errors: Array
    optimism: Array
    drift: Array
    judged: bool


class RateSchedule:
    """The requested constraints, with moved bounds, and with raised temperatures in the first rounds.

    Parameters
    ----------
    wanted
        Lagrangian with the requested constraints.
    exact_rates
        See `ShiftedBounds`.
    judged
        Whether bounds on exact rates are judged on left-out rows.

    Attributes
    ----------
    errors, optimism, drift
        Standard errors and optimism of the constraints at the last solution, and by how much their values on left-out
        rows differ from those on training rows. Zero where no bound is tightened.
    judged
        Whether the last solution was measured on left-out rows, or need not be.
    factor
        Factor on the temperature of rates after the first rounds; a search may lower it.
    searches, steps
        Number of rounds left that may search for better models, and of steps left for more than one solution a round.
    """

    state_fields: ClassVar = {
        "shifted": ShiftedBounds,
        "proving": Proving,
        "errors": Array,
        "optimism": Array,
        "drift": Array,
        "judged": bool,
        "factor": float,
        "searches": int,
        "steps": int,
    }

    def __init__(self, wanted: Lagrangian, exact_rates: bool | None = None, *, judged: bool = False) -> None:
        self.wanted = wanted
        rows = wanted.constraints
        self._rates: Booleans = np.array([row.measure.is_rate for row in rows.rows], dtype=bool)
        self.shifted = ShiftedBounds(rows.bounds, self._rates, rows.grain, exact_rates)
        left_out = self.shifted.exact & np.isfinite(rows.bounds.upper) & judged
        self.proving = Proving(rows.rows, rows.bounds, left_out, rows.grain)
        self.errors, self.optimism, self.drift = np.zeros((3, len(rows)))
        self.judged = not self.proving.tightens
        self.factor, self.searches, self.steps = 1.0, SEARCHES, STEPS_OF_A_FIT
        self._made: tuple[float, Array, Lagrangian] | None = None

    def at_round(self, number: int) -> Lagrangian:
        """Return the round's problem, with its temperature and the present bounds."""
        factor = LADDER[number - 1] if 0 < number <= len(LADDER) else self.factor
        if not self.moves and (factor == 1.0 or not self._rates.any()):
            return self.wanted
        return self._under(self.shifted.bounds, factor)

    def _under(self, bounds: Bounds, factor: float | None = None) -> Lagrangian:
        """Return the problem under these bounds, with temperatures times a factor; None takes the present one."""
        factor = self.factor if factor is None else factor
        sides = np.stack([bounds.lower, bounds.upper])
        if self._made is not None and self._made[0] == factor and np.array_equal(self._made[1], sides):
            return self._made[2]
        rows = tuple(
            replace(
                row,
                lower=lower,
                upper=upper,
                measure=row.measure.tempered(factor),
            )
            for row, lower, upper in zip(self.wanted.constraints.rows, bounds.lower, bounds.upper, strict=True)
        )
        made = self.wanted.with_constraints(self.wanted.constraints.with_inequalities(rows))
        self._made = factor, sides, made
        return made

    @property
    def moves(self) -> bool:
        """Whether bounds move at all."""
        return self.proving.asks or bool(self.shifted.exact.any())

    @property
    def unsearched(self) -> bool:
        """Whether the tiny problem of the next round may gain more than the last round did."""
        return not self.moves or (self.searches == SEARCHES and not self.proving.asks)

    def settling(self, number: int) -> bool:
        """Return whether this round is one of the first, in which temperatures still fall."""
        return bool(self._rates.any()) and number <= len(LADDER)

    def solve(
        self,
        number: int,
        solve: Solve,
        measure: Measure,
        cuts: Cuts | None = None,
        far: bool = False,
        least_gain: float = 0.0,
    ) -> ReducedSolution:
        """Solve a round's problem; move bounds and solve again until the exact rates are right.

        While the optimum is far, one pass is enough. If the exact rates are never right, return the pass with the
        smallest excess of exact rates, then with the smallest objective. A decrease of the objective by less than
        `least_gain` is not searched for.
        """
        found = solve(self.at_round(number), None)
        self.judged = not self.proving.tightens
        # In the first rounds the bounds would follow other temperatures. More passes there brought no gain.
        if not self.moves or self.settling(number):
            return found
        self.shifted.begin()
        self.steps -= found.iterations
        if (far and not self.proving.asks) or self.steps <= 0:
            # The columns will change before this matters, so δ is updated only once a round.
            if not self.shifted.right(found.point.exact, found.multipliers):
                self.shifted.follow(found.point.exact, found.point.values)
            elif not far:
                self._judge(found, measure)
            return found
        best = self._followed(found, solve, measure)
        if self._is_narrow(best):
            self.place = np.zeros_like(self.shifted.shift), 1.0
            best = self._followed(self._again(solve, None), solve, measure)
        # Proofs about new people hold for the solution that they were measured at.
        if self._overfits(best):
            return self._smoothed(best, solve, measure)
        if self._may_gain(best) and not self.proving.asks:
            best = self._searched(best, solve, measure, cuts, least_gain)
        if not self.proving.asks:
            self._aim(best, measure)
        return best

    def _overfits(self, best: ReducedSolution) -> bool:
        """Return whether limits hold so much worse on left-out rows that smoother rates may lead to a better model.

        Of gaps, smooth rates tell too little: models under them miss the exact gaps.
        """
        judged = self.proving.judged
        limits = not np.isfinite(self.proving.asked.lower[judged]).any()
        tight = bool((self.proving.tightness[judged] < TIGHTER).any())
        bounded = bool(best.multipliers[:, judged].any())
        return self.searches > 0 and limits and tight and bounded and not self.proving.asks

    def _smoothed(self, best: ReducedSolution, solve: Solve, measure: Measure) -> ReducedSolution:
        """Return the best model, on left-out rows, among those of smoother rates and the one at hand."""
        self.searches -= 1
        self._aim(best, measure)
        at, aimed, present = best, self._aimed, self.factor
        least = (self.excess(best.point) if self.judged else 2.0, best.objective)
        for factor in (one for one in SMOOTHER if one > present):
            self.factor = factor
            for _ in range(2):
                # Bounds under which the start keeps its exact rates; then the aim that fits the model.
                point = self._under(self.shifted.aim).at(at.point.scores)
                self.shifted.hold(point.exact, point.values)
                self.shifted.begin()
                at = self._followed(self._again(solve, at.coefficients), solve, measure)
                self._aim(at, measure)
            rank = (self.excess(at.point), at.objective)
            if self.judged and rank < least:
                best, least, aimed = at, rank, self._aimed
            if not is_solved(at):
                break
        self._aimed = aimed
        return best

    @property
    def _aimed(self) -> Aimed:
        return Aimed(self.place, self.proving.aim, self.errors, self.optimism, self.drift, self.judged)

    @_aimed.setter
    def _aimed(self, found: Aimed) -> None:
        self.place, self.proving.aim, self.judged = found.place, found.aim, found.judged
        self.errors, self.optimism, self.drift = found.errors, found.optimism, found.drift
        self.shifted.take(self.proving.aim)

    def _may_gain(self, best: ReducedSolution) -> bool:
        """Return whether to search for a better model: once in any case, and again while a rate could be nearer.

        Where bounds are judged on left-out rows, only if a bound is missed or hardly used: a model that is found among
        many by its training rates has worse ones on new rows.
        """
        exact = best.point.exact
        bounded = bool(best.multipliers[:, self.shifted.exact].any())
        tightens = self.proving.tightens
        missed = self.shifted.shortfall(exact) if tightens else self.shifted.excess(exact)
        unsure = (self.searches == SEARCHES and not tightens) or missed > 0.0
        return bounded and self.searches > 0 and (unsure or self.shifted.loose(exact, best.multipliers))

    def _followed(self, found: ReducedSolution, solve: Solve, measure: Measure) -> ReducedSolution:
        """Let δ follow the exact rates, and return the best solution with its δ."""
        best, shift = found, self.shifted.shift
        for number in range(PASSES - 1):
            # Aims that moved with every pass might not settle. A proof must fit the last one.
            aimed = (number == 0 or self.proving.asks) and self._aim(found, measure)
            if not aimed and self.shifted.right(found.point.exact, found.multipliers):
                break
            self.shifted.follow(found.point.exact, found.point.values)
            found = self._again(solve, found.coefficients)
            # Solutions for different target bounds cannot be compared.
            if aimed or self._rank(found) < self._rank(best):
                best, shift = found, self.shifted.shift
            if found.status is Status.LIMIT or self.steps <= 0:
                # Contradicting bounds, for example: more passes cost much and bring nothing.
                break
        self.shifted.shift = shift
        return best

    def _again(self, solve: Solve, start: Array | None) -> ReducedSolution:
        """Solve under the present bounds, at the fit's cost."""
        found = solve(self._under(self.shifted.bounds), start)
        self.steps -= found.iterations
        return found

    def _searched(
        self, best: ReducedSolution, solve: Solve, measure: Measure, cuts: Cuts | None, least_gain: float
    ) -> ReducedSolution:
        """Search for a better model with sharper rates: from the model at hand, and from other cuts."""
        self.searches -= 1
        starts: list[tuple[CutModel, tuple[float, ...]]] = []
        if cuts is not None:
            free = solve(self._under(self.shifted.widened(UNBOUNDED)), None)
            starts = [(model, OF_A_CUT) for model in cuts(free, self.shifted)[:1]]
        if self.shifted.excess(best.point.exact) == 0.0:
            starts.append((CutModel(best.coefficients, best.point.scores), SHARPER))
        kept, present = self.place, self.factor
        for model, factors in starts:
            at = model
            for self.factor in (one for one in factors if one < present):
                # Bounds under which the start keeps its exact rates.
                point = self._under(self.shifted.aim).at(at.scores)
                self.shifted.hold(point.exact, point.values)
                self.shifted.begin()
                found = self._followed(self._again(solve, at.coefficients), solve, measure)
                at = CutModel(found.coefficients, found.point.scores)
                if self._better(found, best, least_gain):
                    best, kept = found, self.place
                if not is_solved(found):
                    break
        self.place = kept
        return best

    def _better(self, found: ReducedSolution, best: ReducedSolution, least_gain: float) -> bool:
        """Return whether exact rates are nearer to their bounds, or the objective is lower by more than the gain."""
        (excess, objective), (before, least) = self._rank(found), self._rank(best)
        as_sound = is_solved(found) or not (is_solved(best) and self.proving.tightens)
        return excess < before or (excess == before and as_sound and objective < least - least_gain)

    def _is_narrow(self, found: ReducedSolution) -> bool:
        """Return whether sharp rates concentrate the derivatives on few rows, so that parties may not answer."""
        sharp = _temperature(found.point.lagrangian) < _temperature(self.wanted)
        return sharp and narrowness(found.point.derivative(found.multipliers))[1] > 0

    @property
    def place(self) -> tuple[Array, float]:
        """δ and the factor on the temperature: the problem that the present model solves."""
        return self.shifted.shift, self.factor

    @place.setter
    def place(self, place: tuple[Array, float]) -> None:
        self.shifted.shift, self.factor = place

    def _aim(self, found: ReducedSolution, measure: Measure) -> bool:
        """Move the bounds of constraints with a confidence level or judged ones, if they do not fit this solution."""
        if not (self._judge(found, measure) and self.proving.update(self.errors, self.optimism)):
            return False
        self.shifted.take(self.proving.aim)
        return True

    def _judge(self, found: ReducedSolution, measure: Measure) -> bool:
        """Measure a solution on left-out rows, if any bound is judged there; return whether it was."""
        if not self.proving.tightens:
            return False
        # What rows lose if they are left out follows from the conditions of an optimum. Elsewhere it says nothing.
        self.judged = self.proving.asks or is_solved(found)
        if self.judged:
            values, self.errors, left_out = measure(found)
            self.drift, self.optimism = left_out - values, optimism(self.wanted.constraints.bounds, values, left_out)
        return self.judged

    def _rank(self, found: ReducedSolution) -> tuple[float, float]:
        # No excess of a rate is above one.
        return self.shifted.excess(found.point.exact) + self._is_narrow(found), found.objective

    def suffices(self, point: Point) -> bool:
        """Return whether rates are within the requested bounds, on training rows and on left-out ones."""
        return self.judged and self.proving.suffices(point.exact, point.exact + self.drift)

    def excess(self, point: Point) -> float:
        """Return by how much exact rates exceed their bounds; on left-out rows, if they hold on training rows.

        No excess is above one, so that a model whose training rates hold comes before all others.
        """
        if self.proving.asks or not self.proving.tightens:
            return self.shifted.excess(point.exact)
        missed = self.shifted.shortfall(point.exact)
        return 1.0 + missed if missed > 0.0 else self.proving.beyond(point.exact + self.drift)

    def missed(self, point: Point) -> Array:
        """Return by how much each inequality clearly exceeds its requested bound on left-out rows."""
        return self.proving.missed(point.exact + self.drift, self.errors)

    def values(self, point: Point) -> Array:
        """Return the constraints' values, exact or smooth as each bound asks, at the requested temperatures."""
        return self.shifted.meant(point.exact, self.wanted.at(point.scores).values)

    def restored(self) -> None:
        self.shifted.take(self.proving.aim)


def is_solved(found: ReducedSolution) -> bool:
    """Return whether a solution is an optimum under bounds that can hold."""
    return found.status in (Status.CONVERGED, Status.STALLED)


def _temperature(lagrangian: Lagrangian) -> float:
    """Return the smallest temperature of a rate."""
    return min((one.temperature for one in lagrangian.constraints.measures if one.name != "loss"), default=np.inf)
