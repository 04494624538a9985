"""Multipliers of constraint rows: how many there are, what each pushes against, and what values they may take.

A row with one bound for both sides (an equality, the paper's ε = 0) has a single free multiplier, so FairFedAvgALM's
own constraint costs one number each way. A row with room has a non-negative one for each finite side.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.bounds import Bounds


class Sides(Protocol):
    """L multipliers over R rows; `values` are those of the rows."""

    bounds: Bounds

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
    """One free multiplier for an equality, one non-negative multiplier for each finite side of any other row."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds

    def __len__(self) -> int:
        return self.bounds.n_sides

    def excess(self, values: Array) -> Array:
        return np.nan_to_num(self.bounds.side_excess(values))

    def project(self, multipliers: Array) -> Array:
        return self.bounds.project(multipliers)

    def table(self, multipliers: Array, values: Array) -> Array:
        return self.bounds.table(multipliers)


class AbsoluteSides:
    """FPFL: one non-negative multiplier for each row, on the worse of its two sides (|F − μ_s| when both are zero)."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds

    def __len__(self) -> int:
        return self.bounds.n_rows

    def excess(self, values: Array) -> Array:
        return np.nan_to_num(self.bounds.excess(values).max(axis=0))

    def project(self, multipliers: Array) -> Array:
        return np.maximum(multipliers, 0.0)

    def table(self, multipliers: Array, values: Array) -> Array:
        """The derivative of λ |v| has the sign of v; where a row has no value, the upper side stands for both."""
        over, under = self.bounds.excess(values)
        below = under > over
        return np.stack([np.where(below, 0.0, multipliers), np.where(below, multipliers, 0.0)])
