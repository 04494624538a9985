"""Multipliers of constraint rows: how many there are, what each pushes against, and what values they may take.

A row with one bound for both sides (an equality, the paper's ε = 0) has a single free multiplier, so FairFedAvgALM's
own constraint costs one number each way. A row with room has a non-negative one for each finite side.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from evenhand.arrays import Array, Booleans, Integers
from evenhand.constraints.slices import BoundConstraints


class Sides(Protocol):
    """L multipliers over R rows; `values` are those of the rows."""

    names: list[str]

    def __len__(self) -> int: ...

    def excess(self, values: Array) -> Array:
        """∂L/∂λ: how far each multiplier's bound is exceeded; zero where a row has no value."""
        ...

    def project(self, multipliers: Array) -> Array:
        """The nearest multipliers that are allowed."""
        ...

    def table(self, multipliers: Array, values: Array) -> Array:
        """(2, R): the same as λ⁺ and λ⁻ of each row, which is how certificates and histories have them."""
        ...


class BoundSides:
    """One free multiplier for an equality, one non-negative multiplier for each finite side of any other row.

    Attributes
    ----------
    row, sign, bound
        Multiplier l pushes against sign_l · (value of row_l − bound_l).
    free
        Which multipliers belong to equalities.
    """

    def __init__(self, bounds: BoundConstraints) -> None:
        entries: list[tuple[int, float, float, bool]] = []
        for index, (lower, upper) in enumerate(zip(bounds.lower, bounds.upper, strict=True)):
            if lower == upper:
                entries.append((index, 1.0, upper, True))
                continue
            entries += [
                (index, sign, bound, False) for sign, bound in ((1.0, upper), (-1.0, lower)) if np.isfinite(bound)
            ]
        self.rows = len(bounds.rows)
        self.row: Integers = np.array([entry[0] for entry in entries], dtype=np.int64)
        self.sign: Array = np.array([entry[1] for entry in entries], dtype=np.float64)
        self.bound: Array = np.array([entry[2] for entry in entries], dtype=np.float64)
        self.free: Booleans = np.array([entry[3] for entry in entries], dtype=bool)
        # Entry (l, r) is sign_l where multiplier l belongs to row r.
        self.incidence: Array = np.zeros((len(entries), self.rows))
        self.incidence[np.arange(len(entries)), self.row] = self.sign
        self.names = [bounds.names[row] for row in self.row]

    def __len__(self) -> int:
        return len(self.row)

    def excess(self, values: Array) -> Array:
        return np.nan_to_num(self.sign * (values[self.row] - self.bound))

    def project(self, multipliers: Array) -> Array:
        return np.where(self.free, multipliers, np.maximum(multipliers, 0.0))

    def table(self, multipliers: Array, values: Array) -> Array:
        signed = self.sign * multipliers
        table = np.zeros((2, self.rows))
        np.add.at(table[0], self.row, np.maximum(signed, 0.0))
        np.add.at(table[1], self.row, np.maximum(-signed, 0.0))
        return table


class AbsoluteSides:
    """FPFL: one non-negative multiplier for each row, on the worse of its two sides (|F − μ_s| when both are zero)."""

    def __init__(self, bounds: BoundConstraints) -> None:
        self.lower, self.upper = bounds.lower, bounds.upper
        self.names = bounds.names

    def __len__(self) -> int:
        return len(self.names)

    def excess(self, values: Array) -> Array:
        return np.nan_to_num(np.maximum(values - self.upper, self.lower - values))

    def project(self, multipliers: Array) -> Array:
        return np.maximum(multipliers, 0.0)

    def table(self, multipliers: Array, values: Array) -> Array:
        """The derivative of λ |v| has the sign of v; where a row has no value, the upper side stands for both."""
        below = self.lower - values > values - self.upper
        return np.stack([np.where(below, 0.0, multipliers), np.where(below, multipliers, 0.0)])
