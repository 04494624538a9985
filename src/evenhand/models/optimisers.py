"""Optimisers: turn a gradient into a change of a party's weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from evenhand.arrays import Array

OptimiserName = Literal["plain", "adam"]


class Optimiser(Protocol):
    """A rule with a state of its own, which is part of the party's checkpoint."""

    state_fields: ClassVar[Mapping[str, Any]]

    def change(self, gradient: Array, step: float) -> Array: ...


class Plain:
    """The papers' step: −step · gradient."""

    state_fields: ClassVar[Mapping[str, Any]] = {}

    def change(self, gradient: Array, step: float) -> Array:
        return -step * gradient


class Adam:
    """Adam (Kingma and Ba, 2015): each weight moves by about `step`, whatever the scale of its gradient.

    The second moment is averaged over about a hundred steps, not the usual thousand: gradients here are over all rows,
    and have no sampling noise.
    """

    state_fields: ClassVar[Mapping[str, Any]] = {"mean": Array, "square": Array, "count": int}

    DECAY, SQUARE_DECAY, FLOOR = 0.9, 0.99, 1e-8

    def __init__(self, size: int) -> None:
        self.mean = np.zeros(size)
        self.square = np.zeros(size)
        self.count = 0

    def change(self, gradient: Array, step: float) -> Array:
        self.count += 1
        self.mean = self.DECAY * self.mean + (1 - self.DECAY) * gradient
        self.square = self.SQUARE_DECAY * self.square + (1 - self.SQUARE_DECAY) * gradient**2
        mean = self.mean / (1 - self.DECAY**self.count)
        square = self.square / (1 - self.SQUARE_DECAY**self.count)
        return -step * mean / (np.sqrt(square) + self.FLOOR)


def make_optimiser(name: OptimiserName, size: int) -> Optimiser:
    return Adam(size) if name == "adam" else Plain()
