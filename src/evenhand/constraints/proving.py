"""Bounds that hold for new people: train under tighter bounds, to allow for sampling error.

Without a confidence, a bound on exact rates is trained at ε − optimism: values at scores of models without the row are
then about ε. The rest of this text is about bounds with a confidence.

A value on the training rows proves nothing about other people. With a confidence, |value| + z·SE + optimism must be
within the bound: z for all rows of the constraint at once, the standard error of the value, and how much better the
model looks on its training rows than on left-out rows. So each inequality is trained at

    aim = max(ε − z·SE − optimism, SE/4),

and the final value tells whether ε is proven. If ε is less than z·SE, no model can prove it on these rows. The bound is
then tightened to SE/4 at most, and the result reports the smallest ε that these rows prove.

Standard errors change slightly with the model, so an aim has a reserve of a few hundredths of ε and is kept while it
suffices.

Exact rates meet their bounds the same way: the bounds of the smooth rates are shifted by the difference of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from evenhand.arrays import Array, Booleans
from evenhand.constraints.slices import Bounds, Inequality
from evenhand.errors import InputError

BAND: Final = 0.03
"""Share of a bound by which an aim is set inside what is needed; it is kept until that is nothing, or twice as much."""
LEAST: Final = 0.25
"""The tightest aim, in standard errors: what is below is noise."""
LEAST_SHARE: Final = 0.25
"""The tightest aim for a gap without a confidence, as a share of the bound: of many gaps some are noise."""
LEAST_OF_LIMIT: Final = 0.15
"""The same for a limit, which has one side."""
FEWEST: Final = 2.0
"""The same in rows of the smallest slice: counts of rows meet no tighter bound."""
MOST_BEYOND: Final = 2.0
"""By how many standard errors, and a row, a value on left-out rows may exceed its bound."""


@dataclass(frozen=True)
class Proof:
    """What the training rows prove about new people.

    Attributes
    ----------
    asked
        ε, or the limit.
    bound
        The value among new people is within this, at the requested confidence.
    row
        The inequality that determines it, in words.
    """

    asked: float
    bound: float
    row: str

    @property
    def holds(self) -> bool:
        return self.bound <= self.asked

    def __str__(self) -> str:
        return (
            f"{self.row}: the training rows prove a bound of {self.bound:.3g}, but {self.asked:g} was "
            "requested; use more "
            "rows, or fewer and larger groups"
        )


class Proving:
    """Choose the bounds to train under where constraints ask for confidence, or are judged at left-out scores.

    Parameters
    ----------
    judged
        Which inequalities are judged at left-out scores, whether they ask for confidence or not.
    grain
        The most that one row of data weighs in each inequality.

    Attributes
    ----------
    aim
        The bounds to train under: the requested ones, tighter for rows with a confidence and for judged ones.
    """

    state_fields: ClassVar = {"aim_sides": Array, "_grain": Array}

    def __init__(
        self,
        rows: Sequence[Inequality],
        asked: Bounds,
        judged: Booleans | None = None,
        grain: Array | float = 0.0,
    ) -> None:
        self.asked, self.aim = asked, asked
        self.reach: Array = np.array([row.reach for row in rows], dtype=np.float64)
        self.sure = self.reach > 0.0
        self.judged = np.zeros_like(self.sure) if judged is None else judged
        self._grain: Array = np.zeros_like(self.reach) + grain
        self._names = [str(row) for row in rows]

    @property
    def asks(self) -> bool:
        """Whether a constraint asks for confidence."""
        return bool(self.sure.any())

    @property
    def tightness(self) -> Array:
        """The width of each inequality's present bounds, as a share of the requested width."""
        asked = np.abs(_room(self.asked)[0])
        return np.divide(np.abs(_room(self.aim)[0]), asked, out=np.ones_like(asked), where=asked > 0.0)

    @property
    def tightens(self) -> bool:
        """Whether any bound may be tightened."""
        return self.asks or bool(self.judged.any())

    def update(self, errors: Array, optimism: Array) -> bool:
        """Tighten or relax aims for a model with these standard errors; return whether any has changed."""
        half, centre = _room(self.asked)
        tight = self.sure | self.judged
        # Rows without a confidence may have no standard error.
        errors, optimism = np.where(self.sure, errors, 0.0), np.where(tight, optimism, 0.0)
        needed = half - self.reach * errors - optimism
        one_sided = ~np.isfinite(self.asked.lower) | ~np.isfinite(self.asked.upper)
        share = np.where(one_sided, LEAST_OF_LIMIT, LEAST_SHARE)
        tightest = np.maximum(share * np.abs(half), FEWEST * self._grain)
        # Optimism changes with the aim, so that an aim is at most halved at a time.
        present = _room(self.aim)[0]
        tightest = np.minimum(np.maximum(tightest, present / 2.0), np.abs(half))
        least = np.where(self.sure, LEAST * errors, tightest)
        # Without a confidence an aim is right within a person, above and below.
        band = np.where(self.sure, BAND * half, np.maximum(BAND * np.abs(half), self._grain))
        inside = np.where(self.sure, 1.0, 0.0)
        low, fit, high = (
            np.minimum(np.maximum(needed - (inside + side) * band, room * least), half)
            for side, room in ((1.0, 0.8), (0.0, 1.0), (-1.0, 1.2))
        )
        moved = tight & ((present < low) | (present > high)) & np.isfinite(fit)
        if not moved.any():
            return False
        room = np.where(moved, fit, present)
        upper = np.where(tight, np.where(one_sided, room, centre + room), self.asked.upper)
        lower = np.where(tight & ~one_sided, centre - room, self.asked.lower)
        self.aim = Bounds(lower, np.where(np.isfinite(self.asked.upper), upper, self.asked.upper))
        return True

    def suffices(self, exact: Array, left_out: Array) -> bool:
        """Return whether values on training rows and on left-out ones are within the requested bounds.

        On left-out rows by a row of the smallest slice, because these values are estimates.
        """
        inside = self.asked.excess(exact).max(axis=0) <= NOTHING
        nearly = self.asked.excess(left_out).max(axis=0) <= self._grain
        return self.tightens and not self.asks and bool((inside & nearly)[self.judged].all())

    def beyond(self, left_out: Array) -> float:
        """Return the worst violation of the requested bounds by values on left-out rows, if it is more than a row."""
        excess = self.asked.excess(left_out).max(axis=0, initial=-np.inf) - self._grain
        return float(np.max(excess[self.judged], initial=0.0))

    def missed(self, left_out: Array, errors: Array) -> Array:
        """Return by how much values on left-out rows exceed the requested bounds, beyond what may be chance."""
        if not self.judged.any():
            return np.zeros_like(left_out)
        excess = self.asked.excess(left_out).max(axis=0, initial=-np.inf)
        clear = self.judged & (excess > self._grain + MOST_BEYOND * np.where(self.judged, errors, 0.0))
        return np.where(clear, excess, 0.0)

    def told(self, missed: Array) -> str:
        """Say which inequality exceeds its bound on left-out rows; empty if none does."""
        if not missed.any():
            return ""
        return (
            f"no model was found that meets the bounds on left-out rows: {self._names[int(np.argmax(missed))]} exceeds "
            f"its bound by {missed.max():.2g}. There are too few rows for so many columns, or its slices are too "
            "small; use more rows or fewer columns, or widen the bound"
        )

    def proofs(self, values: Array, errors: Array, optimism: Array) -> list[Proof]:
        """Return what is proven: the worst row for each bound with a confidence."""
        half, centre = _room(self.asked)
        errors, optimism = (np.where(self.sure, one, 0.0) for one in (errors, optimism))
        two_sided = np.isfinite(self.asked.lower) & np.isfinite(self.asked.upper)
        distance = np.where(two_sided, np.abs(values - centre), values) + self.reach * errors + optimism
        worst: dict[tuple[float, float], int] = {}
        for place in np.flatnonzero(self.sure):
            key = (float(half[place]), float(self.reach[place]))
            if key not in worst or distance[place] > distance[worst[key]]:
                worst[key] = int(place)
        return [Proof(float(half[place]), float(distance[place]), self._names[place]) for place in worst.values()]

    @property
    def aim_sides(self) -> Array:
        """Return (2, R): lower and upper bounds to train under, for checkpoints."""
        return np.stack([self.aim.lower, self.aim.upper])

    @aim_sides.setter
    def aim_sides(self, sides: Array) -> None:
        self.aim = Bounds(*sides)


def _room(bounds: Bounds) -> tuple[Array, Array]:
    """Return half the width and the middle of the bounds; one-sided bounds have the middle zero."""
    lower = np.where(np.isfinite(bounds.lower), bounds.lower, -bounds.upper)
    upper = np.where(np.isfinite(bounds.upper), bounds.upper, -bounds.lower)
    return (upper - lower) / 2.0, (upper + lower) / 2.0


LEVEL = 0.95
"""Default confidence level."""


def critical_value(level: float, comparisons: int) -> float:
    """Return z such that all comparisons hold at once with probability `level` (union bound, two-sided)."""
    if not 0 < level < 1:
        raise InputError(f"level is {level}: give a number between 0 and 1, such as 0.95")
    return float(ndtri(1.0 - (1.0 - level) / (2.0 * max(comparisons, 1))))


def rate_variance(hits: npt.ArrayLike, rows: npt.ArrayLike) -> Array:
    """Return the variance of a rate, p̃(1 − p̃)/n with p̃ = (k + 1)/(n + 2): never zero, and ∞ without rows."""
    hits, rows = np.asarray(hits, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    rate = (hits + 1.0) / (rows + 2.0)
    return np.divide(rate * (1.0 - rate), rows, out=np.full(rate.shape, np.inf), where=rows > 0)


def mean_variance(total: npt.ArrayLike, squares: npt.ArrayLike, rows: npt.ArrayLike) -> Array:
    """Return the variance of a mean, from the rows' sum and sum of squares; ∞ for fewer than two rows."""
    total, squares, rows = (np.asarray(one, dtype=np.float64) for one in (total, squares, rows))
    known = rows > 1
    spread = np.maximum(squares - np.divide(total**2, rows, out=np.zeros(total.shape), where=known), 0.0)
    return np.divide(spread, rows * (rows - 1.0), out=np.full(total.shape, np.inf), where=known)


class Provable(NamedTuple):
    """The smallest gap that can be proven: with rates of zero at best, and of one half at worst."""

    best: float
    worst: float


def smallest_gap(counts: Sequence[int], level: float = LEVEL, comparisons: int | None = None) -> Provable:
    """Return the smallest provable gap between groups of these sizes, for all pairs; infinite if one is empty.

    Parameters
    ----------
    comparisons
        How many statements hold at once; None counts the pairs.
    """
    pairs = list(combinations(counts, 2))
    z = critical_value(level, len(pairs) if comparisons is None else comparisons)
    found = []
    for share in (0.0, 0.5):
        variances = [rate_variance([share * one for one in pair], pair).sum() for pair in pairs]
        found.append(z * float(np.sqrt(max(variances, default=np.inf))))
    return Provable(*found)


NOTHING: Final = 1e-12
"""Rounding of a rate: what misses by less does not miss."""
PACE: Final = 0.6
"""Share of the difference by which δ follows it at first."""
MARGIN: Final = 0.05
"""Share of a bound by which the exact rate shall end inside it, where one person is less than that."""


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

    def hold(self, exact: Array, smooth: Array) -> None:
        """Choose δ so that this solution is within the bounds: by its exact rates, or on the nearest bound."""
        inside = np.clip(exact, self.aim.lower + self.margin, self.aim.upper - self.margin)
        self.shift = np.where(self.exact, inside - smooth, 0.0)

    def widened(self, width: float) -> Bounds:
        """Return bounds for smooth rates that are so many times as wide as those of exact rates."""
        more = np.where(self.exact, (width - 1.0) * np.abs(_room(self.aim)[0]), 0.0)
        return Bounds(self.aim.lower - more, self.aim.upper + more)

    def width(self, smooth: Array) -> float:
        """Return the smallest width at which bounds hold these smooth rates."""
        beyond, room = self.aim.excess(smooth).max(axis=0), np.abs(_room(self.aim)[0])
        held = self.exact & (room > 0.0)
        return 1.0 + float(np.max(beyond[held] / room[held], initial=-1.0))

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

    def loose(self, exact: Array, table: Array, share: float = 2.0 * MARGIN) -> bool:
        """Return whether bounds have multipliers in `table`, and all such rates are inside by this share of them."""
        held = (table > 0.0)[:, self.exact]
        near = self.aim.excess(exact) >= -share * np.abs(_room(self.aim)[0]) - NOTHING
        return bool(held.any() and not near[:, self.exact][held].any())


def _margin(asked: Bounds, grain: Array) -> Array:
    # Half the width of the bounds; for one side, the bound's distance from zero.
    sides = np.where(np.isfinite([asked.lower, asked.upper]), [asked.lower, asked.upper], 0.0)
    both = np.isfinite(asked.lower) & np.isfinite(asked.upper)
    room = np.where(both, (sides[1] - sides[0]) / 2.0, np.abs(sides).max(axis=0, initial=0.0))
    return np.minimum(np.maximum(MARGIN * room, grain), room / 2.0)
