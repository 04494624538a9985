"""Slices of the data, and constraint rows over their means.

A *slice* is a set of rows of the data ("label positive and sex female"); g_s is the mean of a measure over it. A
constraint row bounds a linear combination of such means.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Booleans
from evenhand.constraints.bounds import Bounds
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

    def inside(self, labels: Array, groups: pd.DataFrame | Mapping[str, Any]) -> Booleans:
        """Which rows of data are in the slice; `groups` has a column of values for each attribute."""
        found = np.ones(len(labels), dtype=bool)
        if self.label is not None:
            found &= labels == self.label
        if self.attribute is not None:
            found &= np.asarray(groups[self.attribute] == self.group)
        return found


@dataclass(frozen=True)
class ConstraintRow:
    """lower ≤ Σ coefficient · mean of the measure over slice ≤ upper.

    Attributes
    ----------
    reach
        How many standard errors beyond its value are to be within the bounds; zero where only the value is.
    """

    terms: tuple[tuple[float, Slice], ...]
    lower: float
    upper: float
    measure: Measure
    reach: float = 0.0

    def __str__(self) -> str:
        signs = {1.0: "+", -1.0: "−"}
        text = " ".join(f"{signs.get(a, f'{a:+g}·')} {self.measure.name}({s})" for a, s in self.terms)
        return text.removeprefix("+ ")


def bounds_of(rows: Sequence[ConstraintRow]) -> Bounds:
    return Bounds([row.lower for row in rows], [row.upper for row in rows])
