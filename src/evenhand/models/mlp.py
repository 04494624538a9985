"""A neural party: a perceptron with two hidden layers over the party's own columns (needs the `torch` extra)."""

from __future__ import annotations

import itertools
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from evenhand.arrays import Array, Integers, Matrix
from evenhand.errors import MissingExtraError

if TYPE_CHECKING:
    import torch

BLOCK = 4096
"""Number of rows in a batch: activations then stay in the processor's cache."""


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("A neural party (model='mlp')", "torch") from error
    return torch


def _dense(matrix: Matrix) -> Array:
    return matrix.toarray() if sp.issparse(matrix) else np.ascontiguousarray(matrix, dtype=np.float64)


def _distinct(dense: Array) -> tuple[Array, Integers | None]:
    """Return the distinct rows, and each row's place among them; all rows and None if this would not halve them."""
    if dense.shape[1] == 0:
        return dense[:1], np.zeros(len(dense), dtype=np.int64)
    as_bytes = dense.view(np.dtype((np.void, dense.itemsize * dense.shape[1])))[:, 0]
    # Sorting all rows is slow. If the first rows differ, so do the others.
    for part in (as_bytes[:BLOCK], as_bytes):
        if 2 * len(np.unique(part)) > len(part):
            return dense, None
    _, first, place = np.unique(as_bytes, return_index=True, return_inverse=True)
    return dense[first], place


class MLPModel:
    """scores = g(θ; X) with ReLU between the layers, all weights regularised by (μ/2)‖θ‖², as in the paper.

    It computes in double precision: scores are summed over parties and constraints hold to small tolerances. Equal
    rows, which are common when a party has a few categories, go through the layers once.

    Parameters
    ----------
    hidden
        Widths of the hidden layers. The paper says there are two but not how wide.
    seed
        Seed of the initial weights (uniform in ±1/√(inputs of the layer)).
    """

    def __init__(self, matrix: Matrix, regulariser: float, hidden: tuple[int, ...] = (32, 16), seed: int = 0) -> None:
        self.rows, self.columns = matrix.shape
        distinct, self._place = _distinct(_dense(matrix))
        # Activations have one column for each row: these products are faster.
        self._data = self._torch.from_numpy(np.ascontiguousarray(distinct.T))
        self.hidden = hidden
        self.regulariser = regulariser
        sizes = [self.columns, *hidden, 1]
        self._shapes = list(itertools.pairwise(sizes))
        rng = np.random.default_rng(seed)
        layers = [
            rng.uniform(-1, 1, size=(inputs + 1) * outputs) / np.sqrt(max(inputs, 1))
            for inputs, outputs in self._shapes
        ]
        self.weights: Array = np.concatenate(layers)
        self.effort = float(self.rows * self.weights.size)

    @property
    def _torch(self) -> Any:
        # Do not keep the module: it cannot be pickled, but an estimator must be.
        return _torch()

    def _layers(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Each layer's part of all weights: a row for each input, and the intercepts."""
        parts = self._torch.split(flat, [(inputs + 1) * outputs for inputs, outputs in self._shapes])
        return [part.view(inputs + 1, outputs) for part, (inputs, outputs) in zip(parts, self._shapes, strict=True)]

    @property
    def layers(self) -> list[Array]:
        """Each layer's weights: a row for each input, and one of intercepts."""
        return [layer.numpy() for layer in self._layers(self._torch.from_numpy(self.weights))]

    def _through(self, layers: list[torch.Tensor], data: torch.Tensor) -> list[torch.Tensor]:
        """Return the input of each layer, and the output of the last."""
        values = [data]
        for index, layer in enumerate(layers):
            out = self._torch.addmm(layer[-1][:, None], layer[:-1].T, values[-1])
            values.append(out if index == len(layers) - 1 else self._torch.relu(out))
        return values

    def _forward(self, flat: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
        return self._through(self._layers(flat), data)[-1][0]

    def scores(self) -> Array:
        found = self._evaluate(self._data)
        return found if self._place is None else found[self._place]

    def predict(self, matrix: Matrix) -> Array:
        return self._evaluate(self._torch.from_numpy(_dense(matrix)).T)

    def _evaluate(self, data: torch.Tensor) -> Array:
        with self._one_thread(), self._torch.no_grad():
            flat = self._torch.from_numpy(self.weights)
            scores = [self._forward(flat, block) for block in self._torch.split(data, BLOCK, dim=1)]
            return self._torch.cat(scores).numpy() if scores else np.zeros(0)

    def _one_thread(self) -> AbstractContextManager[None]:
        """Fix the number of threads: sums over rows depend on it."""
        from evenhand.models.stacked import one_thread

        return one_thread()

    def gradient(self, nu: Array) -> Array:
        """Return νᵀ∂scores/∂θ + μθ, computed by hand: autograd would store the activations of all rows."""
        layers = self._layers(self._torch.from_numpy(self.weights))
        found = self.regulariser * self.weights
        slopes = self._layers(self._torch.from_numpy(found))
        pull = self._torch.from_numpy(self._onto_distinct(nu))[None]
        with self._one_thread(), self._torch.no_grad():
            for start in range(0, self._data.shape[1], BLOCK):
                block = slice(start, start + BLOCK)
                values, back = self._through(layers, self._data[:, block]), pull[:, block]
                for index in reversed(range(len(layers))):
                    slopes[index][:-1].addmm_(values[index], back.T)
                    slopes[index][-1] += back.sum(dim=1)
                    if index:
                        back = self._torch.ops.aten.threshold_backward(layers[index][:-1] @ back, values[index], 0)
        return found

    def _onto_distinct(self, values: Array) -> Array:
        """Sum a number over equal rows."""
        if self._place is None:
            return np.ascontiguousarray(values)
        return np.bincount(self._place, values, self._data.shape[1]).astype(np.float64, copy=False)

    def move(self, change: Array) -> None:
        self.weights = self.weights + change

    def squared_norm(self) -> float:
        return float(self.weights @ self.weights)

    def spectral_bound(self) -> float:
        """Estimate the squared norm by power iteration on JᵀJ at the present weights; J changes with them."""
        torch = self._torch
        flat = torch.from_numpy(self.weights).clone()
        vector = torch.ones_like(flat)
        alike = torch.from_numpy(self._onto_distinct(np.ones(self.rows)))
        with self._one_thread():
            for _ in range(10):
                vector /= torch.linalg.vector_norm(vector)
                # autograd's own jvp (two backward passes): torch.func.jvp loads deprecated torch.jit code.
                _, image = torch.autograd.functional.jvp(lambda w: self._forward(w, self._data), flat, vector)
                _, pull = torch.func.vjp(lambda w: self._forward(w, self._data), flat)
                (vector,) = pull(alike * image)
            return 1.05 * float(torch.linalg.vector_norm(vector))
