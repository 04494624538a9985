"""The best point of a constrained VFB² run. A run that does not converge returns it."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.evaluation import Point


class BestPoint:
    """Scores and multipliers of the best point so far, including the first one; the parties keep its weights.

    Points are ranked by objective + σ · (sum of all excesses). σ is the largest present multiplier, and at least 1.
    With such a σ the constrained optimum ranks first.
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
        """Whether the present point is the best one."""

    def consider(self, point: Point, objective: float, multipliers: Array) -> None:
        """Keep the point if it is better than the best one so far."""
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
        """Return whether the run should return to the best point from the present one."""
        return not self.is_present and np.isfinite(self._objective)
