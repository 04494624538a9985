"""Slices of the data, and inequalities over their means.

A *slice* is a set of rows of the data ("label positive and sex female"); g_s is the mean of a measure over it. A
inequality bounds a linear combination of such means.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Booleans
from evenhand.constraints.bounds import Bounds
from evenhand.constraints.losses import Measure

_MEANS: Final[dict[str, dict[int | None, str]]] = {
    "loss": {None: "mean loss", 1: "mean loss among positives", -1: "mean loss among negatives"},
    "error": {None: "error rate", 1: "false-negative rate", -1: "false-positive rate"},
    "positive": {None: "selection rate", 1: "true-positive rate", -1: "selection rate among negatives"},
}
"""What the mean of a measure over all rows, positives or negatives is called."""


@dataclass(frozen=True)
class Slice:
    """Rows with a given label (±1, None for either) and, if an attribute is named, a given group."""

    label: int | None = None
    attribute: str | None = None
    group: Hashable = None

    def __str__(self) -> str:
        who = {1: "positives", -1: "negatives"}.get(self.label or 0, f"class {self.label}")
        if self.attribute is None:
            return "all rows" if self.label is None else who
        group = f"{self.attribute} = {self.group}"
        return group if self.label is None else f"{who} with {group}"

    @property
    def formula(self) -> str:
        parts = [] if self.label is None else [f"y={self.label:+d}"]
        if self.attribute is not None:
            parts.append(f"{self.attribute}={self.group}")
        return " & ".join(parts) or "all"

    def inside(self, labels: Array, groups: pd.DataFrame | Mapping[str, Any]) -> Booleans:
        """Return which rows of data are in the slice; `groups` has a column of values for each attribute."""
        found = np.ones(len(labels), dtype=bool)
        if self.label is not None:
            found &= labels == self.label
        if self.attribute is not None:
            found &= np.asarray(groups[self.attribute] == self.group)
        return found


@dataclass(frozen=True)
class Inequality:
    """lower ≤ Σ coefficient · mean of the measure over slice ≤ upper.

    Attributes
    ----------
    reach
        How many standard errors around its value must be within the bounds too; zero bounds the value alone.
    """

    terms: tuple[tuple[float, Slice], ...]
    lower: float
    upper: float
    measure: Measure
    reach: float = 0.0

    def __str__(self) -> str:
        """Say what is bounded as a person would: "false-negative rate, 60+ vs. under 30 (age)"."""
        labels, attributes = ({getattr(part, name) for _, part in self.terms} for name in ("label", "attribute"))
        named = attributes - {None}
        plain = len(self.terms) == 1 or (len(self.terms) == 2 and len(named) == 1)
        if not plain or len(labels) != 1 or [a for a, _ in self.terms] not in ([1.0], [1.0, -1.0]):
            return self.formula
        mean = _MEANS[self.measure.name].get(labels.pop())
        if mean is None:
            return self.formula
        if not named:
            return mean
        compared = " vs. ".join("everyone" if part.attribute is None else str(part.group) for _, part in self.terms)
        return f"{mean}, {compared} ({named.pop()})"

    @property
    def formula(self) -> str:
        """The combination of means that is bounded: error(y=+1 & age=60+) − error(y=+1 & age=under 30)."""
        signs = {1.0: "+", -1.0: "−"}
        text = " ".join(f"{signs.get(a, f'{a:+g}·')} {self.measure.name}({s.formula})" for a, s in self.terms)
        return text.removeprefix("+ ")


def bounds_of(rows: Sequence[Inequality]) -> Bounds:
    return Bounds([row.lower for row in rows], [row.upper for row in rows])
