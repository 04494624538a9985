"""Slices of the data, constraint rows over their means, and rows as one weight per sample.

A *slice* is a set of rows of the data ("label positive and sex female"); g_s is the mean of a measure over it. A
constraint row bounds a linear combination of such means. Multipliers on the rows become one weight per row of data,
which is why any weighted learner can take any constraint.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.constraints.measures import Measure


@dataclass(frozen=True)
class Slice:
    """Rows with a given label (±1, None for either) and, if an attribute is named, a given group."""

    label: int | None = None
    attribute: str | None = None
    group: Hashable = None

    def __str__(self) -> str:
        parts = [] if self.label is None else [f"y={self.label:+d}"]
        if self.attribute is not None:
            parts.append(f"{self.attribute}={self.group}")
        return " & ".join(parts) or "all"


@dataclass(frozen=True)
class ConstraintRow:
    """lower ≤ Σ coefficient · mean of the measure over slice ≤ upper."""

    terms: tuple[tuple[float, Slice], ...]
    lower: float
    upper: float
    measure: Measure

    def __str__(self) -> str:
        signs = {1.0: "+", -1.0: "−"}
        text = " ".join(f"{signs.get(a, f'{a:+g}·')} {self.measure.name}({s})" for a, s in self.terms)
        return text.removeprefix("+ ")


@dataclass(frozen=True, eq=False)
class BoundConstraints:
    """Constraint rows on given data.

    Rows of data that share label and groups form a *cell*; whatever concerns slices is then a small matrix over
    cells, and the only passes over all n rows of data are one sum and one look-up.

    Attributes
    ----------
    rows
        The constraint rows, R of them.
    cell
        For each row of data, its cell.
    weights
        (R, cells): what one row of data of that cell contributes to each constraint row, a_s / |s| summed over the
        row's slices.
    """

    rows: tuple[ConstraintRow, ...]
    cell: Integers
    weights: Array
    lower: Array = field(init=False)
    upper: Array = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lower", np.array([row.lower for row in self.rows], dtype=np.float64))
        object.__setattr__(self, "upper", np.array([row.upper for row in self.rows], dtype=np.float64))

    def with_rows(self, rows: tuple[ConstraintRow, ...]) -> BoundConstraints:
        """Rows over the same slices with other bounds or temperatures."""
        return BoundConstraints(rows, self.cell, self.weights)

    @cached_property
    def names(self) -> list[str]:
        return [str(row) for row in self.rows]

    @cached_property
    def measures(self) -> dict[Measure, Integers]:
        """Which rows use which measure."""
        found: dict[Measure, list[int]] = {}
        for index, row in enumerate(self.rows):
            found.setdefault(row.measure, []).append(index)
        return {measure: np.array(indices) for measure, indices in found.items()}

    def row_values(self, measured: Array, rows: Integers) -> Array:
        """a·g for these rows, from the measure's value on each row of data."""
        sums = np.bincount(self.cell, weights=measured, minlength=self.weights.shape[1])
        return self.weights[rows] @ sums

    def tilt(self, multipliers: Array, rows: Integers) -> Array:
        """Σ_rows (λ⁺ − λ⁻) a_s / |s| for each row of data: the part of its weight that the rows add."""
        net = multipliers[0, rows] - multipliers[1, rows]
        return (net @ self.weights[rows])[self.cell]

    def no_multipliers(self) -> Array:
        """λ = 0: one non-negative number for each row's upper side (λ⁺) and one for its lower side (λ⁻)."""
        return np.zeros((2, len(self.rows)))

    def excess(self, values: Array) -> Array:
        """(2, R): how far each side is exceeded; negative where there is room, −∞ where there is no bound."""
        return np.stack([values - self.upper, self.lower - values])

    def violation(self, values: Array) -> float:
        """The worst excess, zero when every row holds."""
        return max(0.0, float(np.max(self.excess(values), initial=0.0)))

    def complementarity(self, values: Array, multipliers: Array) -> float:
        """max |λ · slack|: at a solution a row with room has no multiplier."""
        excess = self.excess(values)
        # A side without a bound keeps λ = 0; 0 · ∞ is no number, so it is set aside.
        product = np.where(np.isfinite(excess), multipliers * np.where(np.isfinite(excess), excess, 0.0), 0.0)
        return float(np.max(np.abs(product), initial=0.0))
