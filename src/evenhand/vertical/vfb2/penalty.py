"""Choose ρ for constraints in VFB²: zero as long as possible, and no larger than the blocks' response allows.

While every data row has a weight of zero or more, the Lagrangian is convex and needs no penalty. A multiplier that
turns weights negative makes it a saddle, from which the blocks diverge; ρ · excess holds them. But the excess is that
of the last full pass. If an epoch is long enough for the blocks to follow at once, a large ρ overshoots, further each
time. So a penalty starts at `FIRST` when weights turn negative, and is halved when its constraint overshoots.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from evenhand.arrays import Array
from evenhand.vertical.vfb2.options import VFB2

FIRST: Final = 2.0
OVERSHOOT: Final = 0.5
"""An excess overshoots if it has the other sign and at least this share of the last one's size."""
LONGEST_PUSH: Final = 1.0
"""Limit on ρ · excess, as a share of what turns a row weight of the smallest slice negative.

The excess may be huge in a run that diverges.
"""


class Penalties:
    """ρ of each side of each inequality, in units of the constraint's smallest slice.

    Parameters
    ----------
    weights
        (R, strata): what each inequality's multiplier adds to the weight of a data row, by stratum.
    n_rows
        Number of data rows, each of which has the weight 1/n.
    tol
        Excesses below it do not count as overshoot.
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
        """Return λ + ρ · excess, the weighting of the rows in the next epoch."""
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
        """Return which inequalities contribute to a negative weight."""
        strata = 1.0 + self._n_rows * ((weighting[0] - weighting[1]) @ self._weights)
        taking_part: Array = (self._weights[:, strata < 0.0] != 0.0).any(axis=1)
        return taking_part
