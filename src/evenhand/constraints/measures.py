"""Measures: what a constraint row averages over its slices.

The papers average the loss. Regulators look at rates, which are steps of the score and so have no useful derivative;
`error` and `positive` are their smooth stand-ins, sharper as the temperature T falls. Each measure also has an exact
companion, the rate one would report, which is tracked beside the smooth value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import expit

from evenhand.arrays import Array, Booleans, Integers
from evenhand.constraints.losses import Loss
from evenhand.errors import ConstraintError
from evenhand.numbers import is_number
from evenhand.printing import quoted

MeasureName = Literal["loss", "error", "positive"]
MEASURES: tuple[MeasureName, ...] = ("loss", "error", "positive")


@dataclass(frozen=True)
class Measure:
    """φ(z, y), averaged over slices.

    Parameters
    ----------
    name
        ``"loss"``: the training loss itself. ``"error"``: σ(−y z / T), a smooth error rate.
        ``"positive"``: σ(z / T), a smooth selection rate.
    temperature
        T. Ignored by ``"loss"``. Sharper (smaller T) is nearer to the exact rate, but no better on unseen rows and
        harder to optimise: `benchmarks/temperature.py` compares.
    """

    name: MeasureName
    temperature: float = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.name not in MEASURES:
            raise ConstraintError(f"measure is {quoted(self.name)}; choose one of {', '.join(map(repr, MEASURES))}")
        if not (is_number(self.temperature) and self.temperature > 0):
            raise ConstraintError(f"temperature is {quoted(self.temperature)}; it must be a positive number")

    def _direction(self, labels: Array) -> Array | float:
        return -labels if self.name == "error" else 1.0

    def value_and_derivative(self, loss: Loss, scores: Array, labels: Array) -> tuple[Array, Array]:
        if self.name == "loss":
            return loss.value_and_derivative(scores, labels)
        direction = self._direction(labels)
        rate: Array = expit(direction * scores / self.temperature)
        return rate, rate * (1.0 - rate) * direction / self.temperature

    def curvature(self, loss: Loss, scores: Array, labels: Array) -> Array:
        if self.name == "loss":
            return loss.curvature(scores, labels)
        rate: Array = expit(self._direction(labels) * scores / self.temperature)
        return rate * (1.0 - rate) * (1.0 - 2.0 * rate) / self.temperature**2

    def exact(self, scores: Array, labels: Array) -> Booleans:
        """Return the indicator that the reported rate averages: of an error, or of a positive decision (z > 0)."""
        positive: Booleans = scores > 0
        return positive if self.name == "positive" else positive != (labels > 0)

    def derivative_bound(self, loss: Loss) -> float:
        """sup |∂φ/∂z|."""
        return loss.derivative_bound if self.name == "loss" else 0.25 / self.temperature

    def curvature_bound(self, loss: Loss) -> float:
        """sup |∂²φ/∂z²|; for a sigmoid 1 / (6√3) at temperature one."""
        return loss.curvature_bound if self.name == "loss" else 1.0 / (6.0 * np.sqrt(3.0) * self.temperature**2)


def by_measure(measures: Iterable[Measure]) -> dict[Measure, Integers]:
    """Group the places of a list by measure, so that each measure is evaluated once."""
    found: dict[Measure, list[int]] = {}
    for place, measure in enumerate(measures):
        found.setdefault(measure, []).append(place)
    return {measure: np.array(places) for measure, places in found.items()}
