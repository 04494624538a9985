"""Random functions of a party's columns: an embedding of its rows that is not fitted to anything."""

from __future__ import annotations

from typing import Any

import numpy as np

from evenhand.arrays import Array
from evenhand.models.learning.covering import numbers, own_random


class RandomFeatures:
    """tanh of random linear functions of standardised columns.

    Parameters
    ----------
    weights, offsets
        (columns, features) and (features,).
    """

    def __init__(self, weights: Array, offsets: Array) -> None:
        self.weights, self.offsets = weights, offsets

    @classmethod
    def drawn(cls, columns: Any, features: int, seed: int) -> RandomFeatures:
        """Draw functions that only who knows the columns can repeat, with each column in units of its own spread."""
        random, found = own_random(columns, seed), numbers(columns)
        centre, spread = found.mean(axis=0), found.std(axis=0)
        units = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0.0)
        count = max(1, int((spread > 0.0).sum()))
        weights = units[:, None] * random.standard_normal((len(units), features)) / np.sqrt(count)
        return cls(weights, 0.7 * random.standard_normal(features) - centre @ weights)

    def outputs(self, columns: Any) -> Array:
        """Return (rows, features)."""
        return np.tanh(numbers(columns) @ self.weights + self.offsets)
