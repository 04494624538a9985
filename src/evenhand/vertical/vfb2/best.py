"""The best point that a constrained VFB² run has seen, the first one among them: what it ends with if it must."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.lagrangian import Point


class BestPoint:
    """Scores, multipliers and worth of the best point so far; the parties keep their weights of it.

    A point is worth objective + σ · (sum of all excesses), where σ is at least 1 and the largest multiplier at present:
    with such a σ the constrained optimum is the best there is.
    """

    state_fields: ClassVar = {
        "scores": Array,
        "multipliers": Array,
        "_objective": float,
        "_excess": float,
        "is_present": bool,
    }

    def __init__(self, n_rows: int, multipliers: Array) -> None:
        self.scores: Array = np.zeros(n_rows if multipliers.size else 0)
        self.multipliers = multipliers
        self._objective = np.inf
        self._excess = np.inf
        self.is_present = False
        """Whether the present point is the one that is kept."""

    def consider(self, point: Point, objective: float, multipliers: Array) -> None:
        """Keep the point if it is worth more than the one that is kept."""
        if not multipliers.size:
            return
        excess = float(np.maximum(point.dual_gradient(), 0.0).sum())
        price = max(1.0, float(multipliers.max()))
        worth, kept = objective + price * excess, self._objective + price * self._excess
        self.is_present = bool(worth < kept)
        if self.is_present:
            self.scores, self.multipliers = point.scores.copy(), multipliers.copy()
            self._objective, self._excess = objective, excess

    def is_better(self) -> bool:
        """Whether the run should go back to it from where it is."""
        return not self.is_present and np.isfinite(self._objective)
