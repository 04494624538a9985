"""The problem a subspace server works on, where rows bound rates.

Rates are sigmoids of the score, and sharp ones trap the search in poor local optima: their temperature falls over the
first rounds.

After those, the bounds are moved so that the exact rates meet the ones asked for (`constraints/exact_rates.py`), by a
few passes over the tiny problem of a round, each from where the one before ended. All of it happens at the server
alone, and costs no message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from evenhand.arrays import Array, Booleans
from evenhand.constraints.exact_rates import ShiftedBounds
from evenhand.constraints.lagrangian import Lagrangian, Point
from evenhand.vertical.subspace.reduced import ReducedSolution

LADDER = (8.0, 4.0, 2.0)
"""Factors on the temperature of rates in the first rounds; `benchmarks/subspace_choices.py` shows what they bring."""
PASSES = 6
"""Most solutions of a round's tiny problem; on hard cases one is not enough."""

Solve = Callable[[Lagrangian, Array | None], ReducedSolution]
"""Solves the tiny problem under the rows of a Lagrangian, from these coefficients (None: from zero)."""


class RateSchedule:
    """The rows asked for, with bounds moved, and temperatures raised at first.

    Parameters
    ----------
    wanted
        With the rows as they were asked for.
    exact_rates
        See `ShiftedBounds`.
    """

    def __init__(self, wanted: Lagrangian, exact_rates: bool | None = None) -> None:
        self.wanted = wanted
        rows = wanted.constraints
        self._rates: Booleans = np.array([row.measure.name != "loss" for row in rows.rows], dtype=bool)
        grain = np.abs(rows.weights).max(axis=1, initial=0.0)
        self.shifted = ShiftedBounds(rows.bounds, self._rates, grain, exact_rates)

    def at_round(self, number: int) -> Lagrangian:
        """The round's problem: its temperature, and bounds where they are by now."""
        factor = LADDER[number - 1] if 0 < number <= len(LADDER) else 1.0
        if not self._rates.any() or (factor == 1.0 and not self.shifted.exact.any()):
            return self.wanted
        bounds = self.shifted.bounds
        rows = tuple(
            replace(
                row,
                lower=lower,
                upper=upper,
                measure=replace(row.measure, temperature=factor * row.measure.temperature),
            )
            for row, lower, upper in zip(self.wanted.constraints.rows, bounds.lower, bounds.upper, strict=True)
        )
        return Lagrangian(self.wanted.labels, self.wanted.constraints.with_rows(rows), self.wanted.loss)

    def settling(self, number: int) -> bool:
        """Whether rounds up to this one still change the problem by the ladder."""
        return bool(self._rates.any()) and number <= len(LADDER)

    def solve(self, number: int, solve: Solve) -> ReducedSolution:
        """The round's solution: bounds are moved and it is solved again, until the exact rates are right.

        If they never are, it is that of the pass whose exact rates miss least, then the one with the least objective.
        """
        found = solve(self.at_round(number), None)
        # On the ladder the bounds would follow other temperatures: tried, and no better for more passes.
        if not self.shifted.exact.any() or self.settling(number):
            return found
        best, shift = found, self.shifted.shift
        self.shifted.begin()
        for _ in range(PASSES - 1):
            if self.shifted.right(found.point.exact, found.multipliers):
                break
            self.shifted.follow(found.point.exact, found.point.values)
            found = solve(self.at_round(number), found.coefficients)
            if self._rank(found) < self._rank(best):
                best, shift = found, self.shifted.shift
        self.shifted.shift = shift
        return best

    def _rank(self, found: ReducedSolution) -> tuple[float, float]:
        return self.shifted.excess(found.point.exact), found.objective

    def values(self, point: Point) -> Array:
        """The rows' values as their bounds are meant, at the temperatures that were asked for."""
        return self.shifted.meant(point.exact, self.wanted.at(point.scores).values)
