"""A fitted perceptron: its layers, evaluated by numpy, so that a party can predict without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from safetensors.numpy import load, save

from evenhand.arrays import Array
from evenhand.models.learning.base import Fitted, SavedLearner

BLOCK = 8192
"""Rows that go through the layers at a time."""


class PerceptronFit(Fitted):
    """Layers with ReLU between them.

    Parameters
    ----------
    layers
        Weights (inputs, outputs) and intercepts of each layer.
    hidden
        Whether the output is the last hidden layer, rather than the number that it gives.
    decay
        Weight decay that was chosen.
    """

    format: ClassVar = "perceptron"

    def __init__(self, layers: Sequence[tuple[Any, Any]], hidden: bool, decay: float) -> None:
        self.layers, self.hidden, self.decay = list(layers), hidden, decay

    def outputs(self, columns: Any) -> Array:
        parts = [self._block(columns[start : start + BLOCK]) for start in range(0, columns.shape[0], BLOCK)]
        return np.concatenate(parts) if parts else self._block(columns)

    def _block(self, columns: Any) -> Array:
        values: Array = (columns.toarray() if sp.issparse(columns) else np.asarray(columns)).astype(np.float64)
        for weights, intercepts in self.layers[:-1]:
            values = np.maximum(values @ weights + intercepts, 0.0)
        if self.hidden:
            return values
        weights, intercepts = self.layers[-1]
        return np.asarray(values @ weights + intercepts)[:, 0]

    def saved(self) -> SavedLearner:
        arrays = {"hidden": np.array([self.hidden]), "decay": np.array([self.decay])}
        for place, (weights, intercepts) in enumerate(self.layers):
            arrays |= {f"weights {place}": weights, f"intercepts {place}": intercepts}
        return SavedLearner(self.format, save(arrays))

    @classmethod
    def of(cls, saved: SavedLearner) -> PerceptronFit:
        found = load(saved.content)
        count = sum(name.startswith("weights ") for name in found)
        layers = [(found[f"weights {place}"], found[f"intercepts {place}"]) for place in range(count)]
        return cls(layers, bool(found["hidden"][0]), float(found["decay"][0]))
