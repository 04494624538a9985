"""ρ of VFB²'s constraints: zero as long as it can be, and no larger than the blocks' answer to it allows.

While every row of data keeps a weight of zero or more, the Lagrangian is convex and needs no penalty. A multiplier that
turns weights negative makes it a saddle, from which the blocks run away; ρ · excess holds them. But the excess is that
of the last full pass: where an epoch is long enough for the blocks to follow at once, a large ρ overshoots, each time
further. So a penalty begins at `FIRST` when weights turn negative, and is halved when its row overshoots.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from evenhand.arrays import Array
from evenhand.vertical.vfb2.options import VFB2

FIRST: Final = 2.0
OVERSHOOT: Final = 0.5
"""An excess of the other sign that is at least this share of the last one."""
LONGEST_PUSH: Final = 1.0
"""As a share of what turns the weight of a row of the smallest slice: the excess may be huge where all went wrong."""


class Penalties:
    """ρ of each side of each constraint row, in units of the row's smallest slice.

    Parameters
    ----------
    weights
        (R, cells): what each constraint row's multiplier adds to the weight of a row of data, by cell.
    n_rows
        Rows of data, each of which weighs 1/n by itself.
    tol
        Excesses below it overshoot nothing.
    """

    state_fields: ClassVar = {"values": Array, "_last": Array}

    def __init__(self, options: VFB2, weights: Array, n_rows: int, tol: float) -> None:
        self.chosen = options.penalty == "auto"
        given = 0.0 if options.penalty == "auto" else float(options.penalty)
        self.values: Array = np.full((2, len(weights)), given)
        self._last: Array = np.zeros((2, len(weights)))
        self._weights = weights
        self._n_rows = n_rows
        self._tol = tol

    def push(self, multipliers: Array, scales: Array, excess: Array) -> Array:
        """λ + ρ · excess, which rows are weighted with in the coming epoch."""
        if not self.chosen:
            return np.maximum(multipliers + self.values * scales * excess, 0.0)
        size = np.abs(excess)
        overshot = (self._last * excess < 0) & (size > OVERSHOOT * np.abs(self._last)) & (size > self._tol)
        self.values = np.where(overshot, 0.5 * self.values, self.values)
        self._last = excess
        weighting = self._weighting(multipliers, scales, excess)
        begun = self._turn_weights(weighting) & (self.values == 0.0)
        if begun.any():
            self.values = np.where(begun, FIRST, self.values)
            weighting = self._weighting(multipliers, scales, excess)
        return weighting

    def _weighting(self, multipliers: Array, scales: Array, excess: Array) -> Array:
        push = np.clip(self.values * excess, -LONGEST_PUSH, LONGEST_PUSH)
        return np.maximum(multipliers + push * scales, 0.0)

    def _turn_weights(self, weighting: Array) -> Array:
        """Which constraint rows take part in a weight below zero."""
        cells = 1.0 + self._n_rows * ((weighting[0] - weighting[1]) @ self._weights)
        taking_part: Array = (self._weights[:, cells < 0.0] != 0.0).any(axis=1)
        return taking_part
