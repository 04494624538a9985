"""Search for a cut of a model's scores at which exact rates hold, where no solution of moved bounds has them.

The exact rates of a linear model depend on its ranking of rows and on the cut. Far enough on either side everybody gets
one decision, and rates are equal. So on each side the search doubles the distance of the intercept until rates hold,
and halves the interval to the nearest such cut. The scale of the scores changes no decision; the one with the least
objective is taken. Each cut costs a round, and so does each set of scales.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from evenhand.arrays import Array
from evenhand.horizontal.sqp.options import LENGTHS

FIRST: Final = 0.25
"""Distance of the first cut."""
DOUBLINGS: Final = 6
HALVINGS: Final = 4
FINER: Final = (1.0, 1.4, 1.2, 0.85, 0.7)
"""Scales that are tried around the best one."""


class CutSearch:
    """Cuts of one model, and then scales of those at which exact rates hold.

    Parameters
    ----------
    weights
        The model; the last weight is the intercept.

    Attributes
    ----------
    best, value
        The scaled model with the least objective so far, and this objective; no model if no cut is feasible.
    """

    state_fields: ClassVar = {
        "weights": Array,
        "best": Array | None,
        "value": float,
        "_cuts": Array,
        "_scale": float,
        "_fine": bool,
        "_side": int,
        "_low": float,
        "_high": float,
        "_left": int,
    }

    def __init__(self, weights: Array) -> None:
        self.weights = weights
        self.best: Array | None = None
        self.value = np.inf
        # Feasible cuts that have not been scaled yet.
        self._cuts: Array = np.zeros(0)
        self._scale, self._fine = 1.0, False
        self._begin(1)

    def _begin(self, side: int) -> None:
        """Begin on a side of the present cut; zero ends the search for cuts."""
        self._side, self._low, self._high, self._left = side, 0.0, np.inf, DOUBLINGS

    @property
    def open(self) -> bool:
        return self._side != 0 or len(self._cuts) > 0

    @property
    def trials(self) -> Array:
        """The next models to evaluate, at last the best one; rates are counted at the first of them."""
        if not self.open and self.best is not None:
            return np.tile(self.best, (len(LENGTHS), 1))
        moved = self.weights.copy()
        moved[-1] += self._side * self._distance if self._side else self._cuts[0]
        return np.outer(np.ones(len(LENGTHS)) if self._side else self._scales, moved)

    @property
    def _scales(self) -> Array:
        return self._scale * np.array(FINER if self._fine else LENGTHS)

    @property
    def _distance(self) -> float:
        return 0.5 * (self._low + self._high) if np.isfinite(self._high) else 2.0 * self._low or FIRST

    def take(self, values: Array, excess: float) -> None:
        """Take the objectives of the models, and by how much exact rates exceed their bounds at the first."""
        if self._side:
            self._take_cut(excess)
            return
        place = int(np.argmin(values))
        if values[place] < self.value:
            self.best, self.value = self.trials[place], float(values[place])
        self._scale = float(self._scales[place])
        if self._fine:
            self._cuts, self._scale = self._cuts[1:], 1.0
        self._fine = not self._fine

    def _take_cut(self, excess: float) -> None:
        if excess > 0.0:
            self._low = self._distance
        else:
            self._left = HALVINGS + 1 if np.isinf(self._high) else self._left
            self._high = self._distance
        self._left -= 1
        if self._left == 0:
            self._cuts = np.append(self._cuts, self._side * self._high)[np.isfinite([*self._cuts, self._high])]
            self._begin(-1 if self._side > 0 else 0)
