"""Make exact rates meet their bounds: shift the bounds of the smooth rates by the difference of the two.

Exact rates count rows, so they have no gradient. Solvers bound smooth rates instead. To make the *exact* rates on the
training rows meet the bounds, the bounds of the smooth rates are shifted by δ, which may tighten or widen them:

    lower + m − δ ≤ smooth rate ≤ upper − m − δ,    δ ← δ + 0.6 (exact − smooth − δ)    after each solution,

with a margin m of a twentieth of the bound, or of one row of the smallest slice if that is more. Exact rates move in
steps, so δ can oscillate; the step of that inequality is then halved.

A solver reports the rates it reached, solves again under `bounds`, and keeps the best solution.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from evenhand.arrays import Array, Booleans
from evenhand.constraints.bounds import Bounds
from evenhand.errors import InputError

PACE: Final = 0.6
"""Share of the difference by which δ follows it at first."""
MARGIN: Final = 0.05
"""Share of a bound by which the exact rate shall end inside it, where one person is less than that."""
NOTHING: Final = 1e-12
"""Rounding of a rate: what misses by less does not miss."""


class ShiftedBounds:
    """Bounds for smooth rates under which the exact rates meet the requested bounds.

    Parameters
    ----------
    asked
        The requested bounds.
    rates
        Which rows bound rates; all others keep their bounds.
    grain
        The most that one row of data weighs in each inequality.
    exact_rates
        Whether bounds on rates apply to the exact rates. None applies them to all but equalities, which counts of rows
        cannot meet exactly.

    Attributes
    ----------
    exact
        Which inequalities bound exact rates.
    aim
        The bounds that exact rates must meet: the requested ones, or tighter ones.
    margin
        m of each row.
    shift
        δ of each row.
    """

    state_fields: ClassVar = {"_grain": Array, "shift": Array, "pace": Array, "apart": Array}

    def __init__(self, asked: Bounds, rates: Booleans, grain: Array, exact_rates: bool | None = None) -> None:
        if exact_rates and (rates & asked.equal).any():
            raise InputError(
                "exact_rates needs an epsilon above zero: counts of rows cannot be equal to the last digit"
            )
        self.asked = asked
        self.exact: Booleans = rates & ~asked.equal & (exact_rates is not False)
        self._grain = grain
        self.take(asked)
        self.shift: Array = np.zeros(asked.n_rows)
        self.begin()

    def take(self, aim: Bounds) -> None:
        """Make exact rates meet these tighter bounds from now on."""
        self.aim = aim
        self.margin: Array = np.where(self.exact, _margin(aim, self._grain), 0.0)

    def begin(self) -> None:
        """Restore the full step, from the present δ."""
        self.pace: Array = np.full(self.asked.n_rows, PACE)
        self.apart: Array = np.zeros(self.asked.n_rows)

    @property
    def bounds(self) -> Bounds:
        """The bounds to solve under."""
        return Bounds(self.aim.lower + self.margin - self.shift, self.aim.upper - self.margin - self.shift)

    def follow(self, exact: Array, smooth: Array) -> None:
        """Move δ towards the difference of exact and smooth values at a solution."""
        apart = np.where(self.exact, exact - smooth, 0.0) - self.shift
        self.pace = np.where(apart * self.apart < 0.0, 0.5 * self.pace, self.pace)
        self.apart, self.shift = apart, self.shift + self.pace * apart

    # -- the requested bounds

    def meant(self, exact: Array, smooth: Array) -> Array:
        """Return the values that the requested bounds apply to: exact rates, or smooth values."""
        return np.where(self.exact, exact, smooth)

    def excess(self, exact: Array) -> float:
        """Return the worst violation of `aim` by exact rates; zero if none is bounded."""
        return self._worst(self.aim, exact)

    def shortfall(self, exact: Array) -> float:
        """Return the worst violation of the requested bounds by exact rates."""
        return self._worst(self.asked, exact)

    def _worst(self, bounds: Bounds, exact: Array) -> float:
        worst = float(np.max(bounds.excess(exact)[:, self.exact], initial=0.0))
        return worst if worst > NOTHING else 0.0

    def right(self, exact: Array, table: Array) -> bool:
        """Return whether exact rates hold, and active ones are close to their bounds.

        Parameters
        ----------
        table
            (2, R): λ⁺ and λ⁻. Where one is positive, the rate must be within two margins of that bound.
        """
        excess = self.aim.excess(exact)[:, self.exact]
        held = table[:, self.exact] > 0.0
        near = excess >= -2.0 * self.margin[self.exact] - NOTHING
        return bool((excess <= NOTHING).all() and near[held].all())


def _margin(asked: Bounds, grain: Array) -> Array:
    # Half the width of the bounds; for one side, the bound's distance from zero.
    sides = np.where(np.isfinite([asked.lower, asked.upper]), [asked.lower, asked.upper], 0.0)
    both = np.isfinite(asked.lower) & np.isfinite(asked.upper)
    room = np.where(both, (sides[1] - sides[0]) / 2.0, np.abs(sides).max(axis=0, initial=0.0))
    return np.minimum(np.maximum(MARGIN * room, grain), room / 2.0)
