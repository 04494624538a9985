"""The problem a subspace server works on, where rows bound rates.

Rates are sigmoids of the score, and sharp ones trap the search in poor local optima: their temperature falls over the
first rounds. Asked for exact rates, the server tightens the smooth bounds until the exact rates of the training rows
hold. Both happen at the server alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.lagrangian import Lagrangian
from evenhand.errors import InputError

LADDER = (8.0, 4.0, 2.0)
"""Factors on the temperature of rates in the first rounds; `benchmarks/subspace_choices.py` shows what they bring."""


class RateSchedule:
    """The problem the server works on: the rows asked for, with bounds tightened, and temperatures raised at first."""

    FIRST_TIGHTENING = len(LADDER) + 1
    MARGIN = 0.05
    """Share of a row's half-width by which the exact rate shall end inside its bound."""

    def __init__(self, wanted: Lagrangian, exact_rates: bool) -> None:
        self.wanted = wanted
        self.lower = wanted.constraints.bounds.lower.copy()
        self.upper = wanted.constraints.bounds.upper.copy()
        self._rates = np.array([row.measure.name != "loss" for row in wanted.constraints.rows], dtype=bool)
        self.exact_rates = exact_rates and bool(self._rates.any())
        if self.exact_rates and (wanted.constraints.bounds.upper <= wanted.constraints.bounds.lower).any():
            raise InputError(
                "exact_rates needs an epsilon above zero: counts of rows cannot be equal to the last digit"
            )

    def at_round(self, number: int) -> Lagrangian:
        factor = LADDER[number - 1] if 0 < number <= len(LADDER) else 1.0
        if not self._rates.any() or (factor == 1.0 and not self.exact_rates):
            return self.wanted
        rows = tuple(
            replace(
                row,
                lower=lower,
                upper=upper,
                measure=replace(row.measure, temperature=factor * row.measure.temperature),
            )
            for row, lower, upper in zip(self.wanted.constraints.rows, self.lower, self.upper, strict=True)
        )
        return Lagrangian(self.wanted.labels, self.wanted.constraints.with_rows(rows), self.wanted.loss)

    def misses(self, exact: Array) -> bool:
        """Whether exact rates were asked for and a row misses its bound."""
        excess = self.wanted.constraints.bounds.excess(exact)[:, self._rates]
        return self.exact_rates and bool((excess > 1e-12).any())

    def settling(self, number: int) -> bool:
        """Whether rounds up to this one still change the problem by the ladder."""
        return bool(self._rates.any()) and number < self.FIRST_TIGHTENING

    def tighten(self, exact: Array) -> None:
        """Move the smooth bound of each row whose exact rate misses, by as much as it misses and a little more.

        A bound is not moved back once its rate holds: that makes the rates of small slices swing from round to round.
        """
        lower, upper = self.wanted.constraints.bounds.lower, self.wanted.constraints.bounds.upper
        with np.errstate(invalid="ignore"):
            margin = np.where(np.isfinite(upper - lower), self.MARGIN * (upper - lower) / 2, 1e-3)
        over = np.where(self._rates & (exact > upper), exact - upper + margin, 0.0)
        under = np.where(self._rates & (exact < lower), lower - exact + margin, 0.0)
        self.upper -= over
        self.lower += under
        # Where the two cross, the side just moved has its way.
        self.lower = np.where(over > 0, np.minimum(self.lower, self.upper), self.lower)
        self.upper = np.where(under > 0, np.maximum(self.lower, self.upper), self.upper)
