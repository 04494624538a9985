"""The problem of each subspace round, where constraints bound rates.

Rates are sigmoids of the score. Sharp sigmoids trap the search in poor local optima, so their temperature falls over
the first rounds.

After those, the bounds are moved so that the exact rates meet the requested bounds (`constraints/exact_rates.py`). This
takes a few passes over the tiny problem of a round, each from the solution of the one before. The bounds of constraints
with a confidence level move likewise (`constraints/proving.py`). All of it happens at the server alone, and costs no
message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import numpy as np

from evenhand.arrays import Array, Booleans
from evenhand.constraints.exact_rates import ShiftedBounds
from evenhand.constraints.lagrangian import Lagrangian, Point
from evenhand.constraints.proving import Proving
from evenhand.programs.combining.reduced import ReducedSolution

LADDER = (8.0, 4.0, 2.0)
"""Factors on the temperature of rates in the first rounds; `benchmarks/subspace_choices.py` measures their effect."""
PASSES = 6
"""Maximum number of solutions of a round's tiny problem. In hard cases one is not enough."""

Solve = Callable[[Lagrangian, Array | None], ReducedSolution]
"""Solves the tiny problem under the constraints of a Lagrangian, from these coefficients (None: from zero)."""
Measure = Callable[[ReducedSolution], tuple[Array, Array]]
"""Returns standard errors and optimism of the constraints at a solution."""


class RateSchedule:
    """The requested constraints, with moved bounds, and with raised temperatures in the first rounds.

    Parameters
    ----------
    wanted
        Lagrangian with the requested constraints.
    exact_rates
        See `ShiftedBounds`.

    Attributes
    ----------
    errors, optimism
        Standard errors and optimism of the constraints at the last solution, where some have a confidence level.
    """

    state_fields: ClassVar = {"shifted": ShiftedBounds, "proving": Proving, "errors": Array, "optimism": Array}

    def __init__(self, wanted: Lagrangian, exact_rates: bool | None = None) -> None:
        self.wanted = wanted
        rows = wanted.constraints
        self._rates: Booleans = np.array([row.measure.name != "loss" for row in rows.rows], dtype=bool)
        self.shifted = ShiftedBounds(rows.bounds, self._rates, rows.grain, exact_rates)
        self.proving = Proving(rows.rows, rows.bounds)
        self.errors, self.optimism = np.zeros((2, len(rows)))
        self._made: tuple[float, Array, Lagrangian] | None = None

    def at_round(self, number: int) -> Lagrangian:
        """Return the round's problem, with its temperature and the present bounds."""
        factor = LADDER[number - 1] if 0 < number <= len(LADDER) else 1.0
        if not self.moves and (factor == 1.0 or not self._rates.any()):
            return self.wanted
        bounds = self.shifted.bounds
        sides = np.stack([bounds.lower, bounds.upper])
        if self._made is not None and self._made[0] == factor and np.array_equal(self._made[1], sides):
            return self._made[2]
        rows = tuple(
            replace(
                row,
                lower=lower,
                upper=upper,
                measure=replace(row.measure, temperature=factor * row.measure.temperature),
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

    def settling(self, number: int) -> bool:
        """Return whether this round is one of the first, in which temperatures still fall."""
        return bool(self._rates.any()) and number <= len(LADDER)

    def solve(self, number: int, solve: Solve, measure: Measure, far: bool) -> ReducedSolution:
        """Solve a round's problem; move bounds and solve again until the exact rates are right.

        While the optimum is far, one pass is enough. If the exact rates are never right, return the pass with the
        smallest excess of exact rates, then with the smallest objective.
        """
        found = solve(self.at_round(number), None)
        # In the first rounds the bounds would follow other temperatures. More passes there brought no gain.
        if not self.moves or self.settling(number):
            return found
        best, shift = found, self.shifted.shift
        self.shifted.begin()
        if far and not self.proving.asks:
            # The columns will change before this matters, so δ is updated only once a round.
            if not self.shifted.right(found.point.exact, found.multipliers):
                self.shifted.follow(found.point.exact, found.point.values)
            return found
        for _ in range(PASSES - 1):
            aimed = self._aim(found, measure)
            if not aimed and self.shifted.right(found.point.exact, found.multipliers):
                break
            self.shifted.follow(found.point.exact, found.point.values)
            found = solve(self.at_round(number), found.coefficients)
            # Solutions for different target bounds cannot be compared.
            if aimed or self._rank(found) < self._rank(best):
                best, shift = found, self.shifted.shift
        self.shifted.shift = shift
        return best

    def _aim(self, found: ReducedSolution, measure: Measure) -> bool:
        """Move the bounds of constraints with a confidence level, if they do not fit this solution."""
        if not self.proving.asks:
            return False
        self.errors, self.optimism = measure(found)
        if not self.proving.update(self.errors, self.optimism):
            return False
        self.shifted.take(self.proving.aim)
        return True

    def _rank(self, found: ReducedSolution) -> tuple[float, float]:
        return self.shifted.excess(found.point.exact), found.objective

    def values(self, point: Point) -> Array:
        """Return the constraints' values, exact or smooth as each bound asks, at the requested temperatures."""
        return self.shifted.meant(point.exact, self.wanted.at(point.scores).values)

    def restored(self) -> None:
        self.shifted.take(self.proving.aim)
