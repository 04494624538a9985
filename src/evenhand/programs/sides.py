"""Bounds of constraint rows, and one multiplier for each side that has one.

A row `lower ≤ c(w) ≤ upper` is two scalar constraints in the paper's form, c − upper ≤ 0 and lower − c ≤ 0, with a
non-negative multiplier each; a side without a bound has none. A row with equal bounds is an equality with one free
multiplier.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array, Booleans, Integers
from evenhand.errors import ConstraintError


class Sides:
    """The L scalar constraints of m rows.

    Attributes
    ----------
    row, sign, bound
        Scalar constraint l is sign_l · (value of row_l − bound_l), at most zero.
    free
        Which scalar constraints are equalities: exactly zero, with a multiplier of either sign.
    """

    def __init__(self, lower: npt.ArrayLike, upper: npt.ArrayLike) -> None:
        self.lower: Array = np.array(lower, dtype=np.float64).reshape(-1)
        self.upper: Array = np.array(upper, dtype=np.float64).reshape(-1)
        if self.lower.shape != self.upper.shape:
            raise ConstraintError(f"{len(self.lower)} lower and {len(self.upper)} upper bounds; give one of each a row")
        if np.isnan(self.lower).any() or np.isnan(self.upper).any():
            raise ConstraintError("a bound is not a number; a side without a bound is infinite")
        wrong = (self.lower > self.upper) | (self.lower == np.inf) | (self.upper == -np.inf)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise ConstraintError(f"row {row} has bounds [{self.lower[row]}, {self.upper[row]}], which nothing meets")
        equal = self.lower == self.upper
        above = np.isfinite(self.upper)
        below = np.isfinite(self.lower) & ~equal
        self.rows = len(self.lower)
        self.row: Integers = np.concatenate([np.flatnonzero(above), np.flatnonzero(below)]).astype(np.int64)
        self.sign: Array = np.concatenate([np.ones(int(above.sum())), -np.ones(int(below.sum()))])
        self.bound: Array = np.concatenate([self.upper[above], self.lower[below]])
        self.free: Booleans = np.concatenate([equal[above], np.zeros(int(below.sum()), dtype=bool)])
        self.has_free = bool(self.free.any())
        # Entry (l, r) is sign_l where scalar constraint l belongs to row r.
        self.incidence: Array = np.zeros((len(self.row), self.rows))
        self.incidence[np.arange(len(self.row)), self.row] = self.sign

    def __len__(self) -> int:
        return len(self.row)

    def excess(self, values: Array) -> Array:
        """The L scalar constraints c(w) of the paper, from the rows' values."""
        return self.sign * (values[self.row] - self.bound)

    def project(self, multipliers: Array) -> Array:
        """[·]₊, equalities aside."""
        positive: Array = np.maximum(multipliers, 0.0)
        return np.where(self.free, multipliers, positive) if self.has_free else positive

    def missed(self, values: Array) -> Array:
        """By how much each scalar constraint is missed (with its sign, for an equality)."""
        return self.project(self.excess(values))

    def violation(self, values: Array) -> float:
        return float(np.max(np.abs(self.missed(values)), initial=0.0))

    def complementarity(self, values: Array, multipliers: Array) -> float:
        """max |μ · c|."""
        return float(np.max(np.abs(multipliers * self.excess(values)), initial=0.0))

    def distance(self, values: Array, multipliers: Array) -> float:
        """dist∞(c(w), N(μ)) of Definition 1: what is missed, and the slack of constraints with a multiplier."""
        excess = self.excess(values)
        far = np.where(self.free | (multipliers > 0.0), np.abs(excess), np.maximum(excess, 0.0))
        return float(np.max(far, initial=0.0))

    def net(self, multipliers: Array) -> Array:
        """λ⁺ − λ⁻ of each row: ∇c(w)μ is the Jacobian of the rows times this."""
        return multipliers @ self.incidence

    def of_net(self, net: Array) -> Array:
        """Multipliers of the sides from net ones: a side gets what pushes against it."""
        signed = self.sign * net[self.row]
        return self.project(signed)

    def table(self, multipliers: Array) -> Array:
        """(2, m): λ⁺ and λ⁻ of each row, as certificates and histories have them."""
        signed = self.sign * multipliers
        return np.stack(
            [
                np.bincount(self.row, weights=np.maximum(signed, 0.0), minlength=self.rows),
                np.bincount(self.row, weights=np.maximum(-signed, 0.0), minlength=self.rows),
            ]
        )


NO_SIDES = Sides([], [])
