"""Perceptrons: layers with a leaky ReLU between them, trained by AdamW and evaluated in numpy, without torch.

The layers are so small that calls into a framework would take most of the time: a step of 256 rows takes a fifth of
torch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, Final

import numpy as np
import scipy.sparse as sp
from safetensors.numpy import load, save

from evenhand.arrays import Array
from evenhand.models.learning.base import Fitted, SavedLearner

BLOCK = 8192
"""Rows that go through the layers at a time."""
LEAK: Final = 0.1
"""Slope of a unit below zero."""
MOMENTS: Final = (0.9, 0.999)
"""AdamW's averaging of gradients and of their squares."""
TINY: Final = 1e-8
"""Added to the root of averaged squares."""


class PerceptronFit(Fitted):
    """Layers with a leaky ReLU between them, so that no unit is lost for good.

    Parameters
    ----------
    layers
        Weights (inputs, outputs) and intercepts of each layer.
    hidden
        Whether the output has the part of each unit of the last hidden layer, rather than their sum.
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
            values = values @ weights + intercepts
            values = np.maximum(values, LEAK * values)
        weights, intercepts = self.layers[-1]
        if self.hidden:
            # Each unit's part of the output: sums over parties then have the same sign for all.
            return np.asarray(values * weights[:, 0])
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


class PerceptronTraining:
    """A perceptron in training: AdamW on the weighted mean squared error, in single precision.

    Parameters
    ----------
    widths
        Width of the rows, of each hidden layer, and 1.
    decay
        Weight decay of AdamW.
    warm
        Layers to begin with, of which the last is set to zero; otherwise they are drawn as torch draws them.
    """

    def __init__(
        self, widths: Sequence[int], decay: float, random: np.random.Generator, warm: PerceptronFit | None = None
    ) -> None:
        self.decay, self._steps = decay, 0
        shapes = [shape for pair in pairwise(widths) for shape in (pair, pair[1:])]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        # All parameters in one vector, so that a step of AdamW is a few operations.
        self._flat = np.zeros(ends[-1], dtype=np.float32)
        self._gradient, self._mean, self._square = (np.zeros_like(self._flat) for _ in range(3))
        self._layers, self._slopes = (
            [part.reshape(shape) for part, shape in zip(np.split(vector, ends[:-1]), shapes, strict=True)]
            for vector in (self._flat, self._gradient)
        )
        for place, one in enumerate(self._layers):
            if warm is None:
                reach = 1.0 / np.sqrt(max(widths[place // 2], 1))
                one[:] = random.uniform(-reach, reach, one.shape)
            elif place < len(shapes) - 2:
                one[:] = warm.layers[place // 2][place % 2]

    def step(self, columns: Any, response: Any, weight: Any, rate: float) -> None:
        """Take a step of AdamW for some rows."""
        weights, intercepts = self._layers[::2], self._layers[1::2]
        values = self._values(columns)
        given = (values[-1] @ weights[-1])[:, 0] + intercepts[-1]
        back = (2.0 / weight.sum() * weight * (given - response))[:, None]
        for place in range(len(weights) - 1, -1, -1):
            np.matmul(values[place].T, back, out=self._slopes[2 * place])
            np.sum(back, axis=0, out=self._slopes[2 * place + 1])
            if place:
                back = back @ weights[place].T
                back *= np.where(values[place] > 0.0, np.float32(1.0), np.float32(LEAK))
        self._steps += 1
        for average, share, now in zip(
            (self._mean, self._square), MOMENTS, (self._gradient, self._gradient**2), strict=True
        ):
            average *= share
            average += (1.0 - share) * now
        first, second = (1.0 - share**self._steps for share in MOMENTS)
        self._flat *= 1.0 - rate * self.decay
        self._flat -= rate / first * self._mean / (np.sqrt(self._square / second) + TINY)

    def given(self, columns: Any) -> Any:
        """Return the perceptron's number for each row."""
        return (self._values(columns)[-1] @ self._layers[-2])[:, 0] + self._layers[-1]

    def _values(self, columns: Any) -> list[Any]:
        """Return the rows, and their values in each hidden layer."""
        values = [columns]
        for weights, intercepts in zip(self._layers[:-2:2], self._layers[1:-2:2], strict=True):
            after = values[-1] @ weights
            after += intercepts
            values.append(np.maximum(after, np.float32(LEAK) * after))
        return values

    def kept(self) -> Any:
        """Return a copy of the parameters."""
        return self._flat.copy()

    def restore(self, kept: Any) -> None:
        self._flat[:] = kept

    def fitted(self, hidden: bool) -> PerceptronFit:
        layers = [one.copy() for one in self._layers]
        return PerceptronFit(list(zip(layers[::2], layers[1::2], strict=True)), hidden, self.decay)
