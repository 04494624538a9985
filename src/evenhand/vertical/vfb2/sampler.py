"""Draw the rows of an epoch: which, in which order, and with which weight.

All parties draw the same rows from a common seed, so that row numbers need not be agreed upon.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import numpy as np

from evenhand.arrays import Array, Integers

RUN = 16
"""Length of a run: rows that are drawn in succession, always in the same random order, and stored together."""


class RowSampler:
    """Draws rows with probabilities p_i. A drawn row's gradient has the weight 1 / (n p_i), so its mean is unbiased.

    Parameters
    ----------
    squared_norms
        ‖x_i‖² over all parties' columns.
    sampling
        ``"balanced"``: p_i is half uniform, half proportional to ‖x_i‖², which bounds the row's curvature. An epoch
        goes through the rows in random order, row i about n p_i times, rounded up or down at random. ``"uniform"``:
        independent draws, p_i = 1/n.
    """

    def __init__(self, squared_norms: Array, sampling: Literal["balanced", "uniform"], seed: int) -> None:
        self.rows = len(squared_norms)
        self._balanced = sampling == "balanced"
        self._seed = seed
        self.chances: Array = np.full(self.rows, 1.0 / self.rows)
        total = float(squared_norms.sum())
        if self._balanced and total > 0:
            self.chances = 0.5 * self.chances + 0.5 * squared_norms / total
        self.weights: Array = 1.0 / (self.rows * self.chances)
        self.largest_norm = float((squared_norms * self.weights).max())
        """max ‖x_i‖² / (n p_i): the most that a single drawn row can contribute."""
        self.mean_norm = total / self.rows
        self.order: Integers = np.random.default_rng([seed, 0]).permutation(self.rows)
        """Rows in the order of the runs in which they are drawn."""

    @classmethod
    def with_chances(cls, chances: Array, sampling: Literal["balanced", "uniform"], seed: int) -> RowSampler:
        """Build the sampler of a party that receives the probabilities. Norms and their bounds are zero."""
        sampler = cls(np.zeros(len(chances)), sampling, seed)
        sampler.chances = chances
        sampler.weights = 1.0 / (sampler.rows * chances)
        return sampler

    def places(self, round_number: int, share: float = 1.0) -> Integers:
        """Return the epoch's rows, as indices into `order`."""
        rng = np.random.default_rng([self._seed, round_number])
        count = max(1, round(share * self.rows))
        if not self._balanced:
            return rng.integers(0, self.rows, count)
        runs = self._first_runs(rng.permutation(len(self._draws_of_runs)), count)
        places = (runs[:, None] * RUN + np.arange(RUN)).ravel()
        places = places[places < self.rows]
        # Systematic sampling: row i is drawn between ⌊n p_i⌋ and ⌈n p_i⌉ times, n p_i on average.
        passed = np.floor(np.cumsum(self._draws[places]) + rng.random())
        times = np.diff(passed, prepend=0.0).astype(np.int64)
        once = places[times > 0]
        # Repeated rows are spread over the epoch. Successive repeats would fit the blocks to that row.
        again = np.repeat(places, np.maximum(times - 1, 0))
        return np.insert(once, rng.integers(0, len(once) + 1, len(again)), again)[:count]

    @cached_property
    def _draws(self) -> Array:
        """n p_i of the rows, in the sampler's order."""
        return self.rows * self.chances[self.order]

    @cached_property
    def _draws_of_runs(self) -> Array:
        return np.add.reduceat(self._draws, np.arange(0, self.rows, RUN))

    def _first_runs(self, runs: Integers, count: int) -> Integers:
        """Return as many of the runs as `count` draws need, and one more for rounding. The others are skipped."""
        return runs[: int(np.searchsorted(np.cumsum(self._draws_of_runs[runs]), count)) + 2]
