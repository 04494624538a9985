"""Exact rates within their bounds, by solvers of smooth ones: bounds are moved by the difference of the two.

Regulators count people, and counts are steps of the score that no gradient sees. So that the *exact* rates of the
training rows end within the bounds that were asked for, the bounds of the smooth ones are moved by δ, tighter or wider
as it comes:

    lower + m − δ ≤ smooth rate ≤ upper − m − δ,    δ ← δ + 0.6 (exact − smooth − δ)    after each solution,

with a margin m of a twentieth of the bound, or of one person of the smallest slice where that is more. Exact rates move
in steps, so δ swings where they answer the smooth ones more than once over: the pace of that row is then halved.

Nothing but numbers is here. A solver says what the rates were, solves again under `bounds`, and keeps the best it saw.
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
    """Bounds for smooth rates under which the exact ones meet those that were asked for.

    Parameters
    ----------
    asked
        The bounds as they are meant.
    rates
        Which rows bound rates; all others keep their bounds.
    grain
        What one row of data at most weighs in each row.
    exact_rates
        Whether bounds on rates are meant of the exact ones. None: wherever there is room between them. Counts of people
        cannot be equal to the last digit, so equalities are kept by the smooth rates.

    Attributes
    ----------
    exact
        Which rows are held by their exact rates.
    aim
        The bounds that these are to meet: those that were asked for, or tighter ones.
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
        """Have exact rates meet these bounds from now on, which are inside those that were asked for."""
        self.aim = aim
        self.margin: Array = np.where(self.exact, _margin(aim, self._grain), 0.0)

    def begin(self) -> None:
        """Follow at full pace again, from the present δ."""
        self.pace: Array = np.full(self.asked.n_rows, PACE)
        self.apart: Array = np.zeros(self.asked.n_rows)

    @property
    def bounds(self) -> Bounds:
        """What smooth rates are solved under."""
        return Bounds(self.aim.lower + self.margin - self.shift, self.aim.upper - self.margin - self.shift)

    def follow(self, exact: Array, smooth: Array) -> None:
        """Move δ towards the difference of exact and smooth values at a solution."""
        apart = np.where(self.exact, exact - smooth, 0.0) - self.shift
        self.pace = np.where(apart * self.apart < 0.0, 0.5 * self.pace, self.pace)
        self.apart, self.shift = apart, self.shift + self.pace * apart

    # -- the rows as they were asked for

    def meant(self, exact: Array, smooth: Array) -> Array:
        """The rows' values as their bounds are meant: exact rates where those are asked for, else smooth ones."""
        return np.where(self.exact, exact, smooth)

    def excess(self, exact: Array) -> float:
        """By how much the worst exact rate misses where it is to be; zero where all hold, or none is asked for."""
        return self._worst(self.aim, exact)

    def shortfall(self, exact: Array) -> float:
        """By how much it misses what was asked for."""
        return self._worst(self.asked, exact)

    def _worst(self, bounds: Bounds, exact: Array) -> float:
        worst = float(np.max(bounds.excess(exact)[:, self.exact], initial=0.0))
        return worst if worst > NOTHING else 0.0

    def right(self, exact: Array, table: Array) -> bool:
        """Whether exact rates hold, and those that hold the model back use the room they have.

        Parameters
        ----------
        table
            (2, R): λ⁺ and λ⁻. Where one is positive, the rate is to be within two margins of that bound.
        """
        excess = self.aim.excess(exact)[:, self.exact]
        held = table[:, self.exact] > 0.0
        near = excess >= -2.0 * self.margin[self.exact] - NOTHING
        return bool((excess <= NOTHING).all() and near[held].all())


def _margin(asked: Bounds, grain: Array) -> Array:
    # Half the width of a row; a row with one side has as much room as its bound is from zero.
    sides = np.where(np.isfinite([asked.lower, asked.upper]), [asked.lower, asked.upper], 0.0)
    both = np.isfinite(asked.lower) & np.isfinite(asked.upper)
    room = np.where(both, (sides[1] - sides[0]) / 2.0, np.abs(sides).max(axis=0, initial=0.0))
    return np.minimum(np.maximum(MARGIN * room, grain), room / 2.0)
