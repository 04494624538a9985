"""A linear model that all clients share, without torch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array
from evenhand.errors import InputError


class SharedLinear:
    """scores = X w + b, the model of all clients; w and b as one vector."""

    def __init__(self, weights: Array) -> None:
        self.weights = weights

    def predict(self, features: npt.ArrayLike) -> Array:
        """One score a row, positive for label +1."""
        rows = np.asarray(features, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(self.weights) - 1:
            raise InputError(
                f"rows have the shape {rows.shape[1:]}; the model was trained on {len(self.weights) - 1} columns"
            )
        return rows @ self.weights[:-1] + self.weights[-1]
