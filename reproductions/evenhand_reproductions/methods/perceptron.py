"""A perceptron in plain numbers, with its weights and its optimiser as state: small networks that a role trains."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from evenhand.arrays import Array, Matrix
from evenhand.vertical.fairvfl_schedule import Adam


class LongAdam(Adam):
    """Adam with its usual second moment, over about a thousand steps: gradients are of batches."""

    SQUARE_DECAY = 0.999


class Perceptron:
    """Layers with ReLU between them; the last one is linear.

    Parameters
    ----------
    sizes
        Width of the input, of each hidden layer and of the output.
    seed
        Seeds of the initial weights, uniform in ±1/√(inputs of the layer); intercepts begin at zero.
    intercepts
        Whether layers have intercepts.
    """

    state_fields: ClassVar[Mapping[str, Any]] = {"weights": Array, "optimiser": LongAdam}

    def __init__(self, sizes: Sequence[int], seed: Sequence[int], *, intercepts: bool = True) -> None:
        self.shapes = [(inputs + intercepts, outputs) for inputs, outputs in itertools.pairwise(sizes)]
        self.intercepts = intercepts
        rng = np.random.default_rng(list(seed))
        drawn = []
        for inputs, outputs in itertools.pairwise(sizes):
            drawn.append(rng.uniform(-1.0, 1.0, inputs * outputs) / np.sqrt(max(inputs, 1)))
            drawn.append(np.zeros(intercepts * outputs))
        self.weights: Array = np.concatenate(drawn)
        self.optimiser = LongAdam(self.weights.size)

    @property
    def layers(self) -> list[Array]:
        """Each layer's weights: a row for each input, and then the intercepts."""
        ends = np.cumsum([inputs * outputs for inputs, outputs in self.shapes])[:-1]
        parts = np.split(self.weights, ends)
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def forward(self, inputs: Matrix) -> list[Any]:
        """Return the input of each layer, and the output of the last."""
        values, layers = [inputs], self.layers
        for place, layer in enumerate(layers):
            out = values[-1] @ layer[: len(layer) - self.intercepts]
            if self.intercepts:
                out = out + layer[-1]
            values.append(np.maximum(out, 0.0) if place < len(layers) - 1 else out)
        return values

    def backward(self, values: list[Any], slope: Array) -> tuple[Array, Array]:
        """Return the gradient in the weights, and in the inputs, for the gradient in the outputs."""
        found, layers = [], self.layers
        for place in reversed(range(len(layers))):
            of_layer = values[place].T @ slope
            if self.intercepts:
                of_layer = np.vstack([of_layer, slope.sum(axis=0)])
            found.append(of_layer.ravel())
            slope = slope @ layers[place][: len(layers[place]) - self.intercepts].T
            if place:
                slope = slope * (values[place] > 0.0)
        return np.concatenate(found[::-1]), slope

    def step(self, gradient: Array, step: float) -> None:
        """Take a step of Adam."""
        self.weights = self.weights + self.optimiser.change(gradient, step)
