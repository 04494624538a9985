"""Perceptrons of many clients at once: weights stacked along a first axis, forward and backward as batched products.

Training ten small networks one after the other costs ten times the overhead of every call; stacked, one call computes
a layer of all of them. The backward pass is written by hand, which halves the number of calls once more (tests compare
it with autograd).

A client's numbers are bit for bit the same, whichever clients are in the stack. Three things ensure this
(`docs/decisions/0012-bits.md`). Each client's part of a tensor is a multiple of `LANES` numbers, so that elementwise
kernels process it in whole vectors. It begins on a boundary of 64 bytes, like all of torch's memory. Products are
numpy's, which multiplies one client's matrices after the other; torch gives them to a library together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

Activation = Literal["relu", "tanh"]
Numbers: TypeAlias = npt.NDArray[np.floating[Any]]

LANES = 32
"""Numbers that the widest of torch's elementwise kernels takes at once. What is left after the last of them is worked
off one by one, and rounded otherwise."""


def whole_lanes(count: int) -> int:
    """Round up to a multiple of LANES."""
    return -(-count // LANES) * LANES


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


# Whether `one_thread` is active: asking the libraries again costs as much as a small product.
_alone: ContextVar[bool] = ContextVar("one thread", default=False)


@contextmanager
def one_thread() -> Iterator[None]:
    """Short products are not worth a second thread, and sums come out alike whatever the number of cores.

    Overflow is not reported, as torch reports none: weights that leave the finite numbers are found by those who read
    them.
    """
    if _alone.get():
        yield
        return
    before, token = torch.get_num_threads(), _alone.set(True)
    try:
        torch.set_num_threads(1)
        with _libraries().limit(limits=1), np.errstate(all="ignore"):
            yield
    finally:
        torch.set_num_threads(before)
        _alone.reset(token)


MOST_FILLED = 0.2
"""Sparse products pay only below this share of non-zero numbers."""


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Hold the non-zero entries of a matrix, row after row.

    Attributes
    ----------
    columns, values
        Column and value of each entry.
    starts
        Where the entries of each row begin.
    """

    columns: Tensor
    values: Tensor
    starts: Tensor

    @classmethod
    def of(cls, rows: Tensor) -> SparseRows | None:
        """Return the non-zero entries of a matrix, or None if sparse products would not pay."""
        if rows.ndim != 2 or int(torch.count_nonzero(rows)) > MOST_FILLED * rows.numel():
            return None
        places, columns = rows.nonzero(as_tuple=True)
        ends = torch.bincount(places, minlength=len(rows)).cumsum(0)
        starts = torch.cat([ends.new_zeros(1), ends[:-1]])
        return cls(columns.int(), rows[places, columns], starts.int())

    def __len__(self) -> int:
        return len(self.starts)

    def product(self, weight: Tensor) -> Tensor:
        """Return the rows times the transpose of a layer's weights of shape (outputs, inputs)."""
        across = weight.t().contiguous()
        return embedding_bag(self.columns, across, self.starts, mode="sum", per_sample_weights=self.values)


@dataclass(frozen=True)
class _Layer:
    inputs: int
    outputs: int
    bias: bool
    activation: Activation | None
    start: int

    @property
    def weights(self) -> int:
        return self.inputs * self.outputs

    @property
    def end(self) -> int:
        return self.start + self.weights + self.outputs * self.bias

    def views(self, flat: Tensor) -> tuple[Numbers, Tensor | None]:
        """Weights (clients, outputs, inputs) and bias (clients, 1, outputs) inside a stack of flat vectors."""
        middle = self.start + self.weights
        weight = flat[:, self.start : middle].view(len(flat), self.outputs, self.inputs)
        return weight.numpy(), flat[:, middle : self.end].unsqueeze(1) if self.bias else None


class StackedPerceptron:
    """Linear layers with ReLU or tanh between them, for a stack of flat weight vectors (clients, W and padding)."""

    def __init__(self, layers: list[_Layer]) -> None:
        self.layers = layers
        self.size = layers[-1].end

    @classmethod
    def like(cls, module: nn.Module) -> StackedPerceptron | None:
        """The stack of a plain `nn.Sequential`; None for a module that is anything else."""
        if not isinstance(module, nn.Sequential) or not all(p.requires_grad for p in module.parameters()):
            return None
        layers: list[_Layer] = []
        start = 0
        for part in module:
            if isinstance(part, nn.Linear):
                layers.append(_Layer(part.in_features, part.out_features, part.bias is not None, None, start))
                start = layers[-1].end
            elif isinstance(part, (nn.ReLU, nn.Tanh)) and layers and layers[-1].activation is None:
                last = layers[-1]
                kind: Activation = "relu" if isinstance(part, nn.ReLU) else "tanh"
                layers[-1] = _Layer(last.inputs, last.outputs, last.bias, kind, last.start)
            else:
                return None
        distinct = sum(parameter.numel() for parameter in module.parameters())
        return cls(layers) if layers and distinct == start else None

    def stack(self, vectors: Sequence[npt.NDArray[np.float32]]) -> Tensor:
        """Flat weight vectors one under the other, padded with zeros to whole lanes."""
        stacked = torch.zeros((len(vectors), whole_lanes(self.size)))
        for place, vector in enumerate(vectors):
            stacked.numpy()[place, : self.size] = vector
        return stacked

    def outputs(self, weights: Tensor, features: Tensor) -> Tensor:
        """(rows, width): what comes out for rows of one client; `weights` is a stack of one."""
        return Passes(self, weights, len(features)).forward(features.unsqueeze(0))[0]


class Passes:
    """Forward and backward passes through a stack, over and over: memory and views are made once.

    Parameters
    ----------
    weights
        A stack of flat weight vectors. Passes go by what it holds at their time.
    rows
        Rows of each client in a pass.
    gradient
        Where a backward pass writes to.
    """

    def __init__(
        self, perceptron: StackedPerceptron, weights: Tensor, rows: int, gradient: Tensor | None = None
    ) -> None:
        self._layers = [_LayerPasses(layer, weights, rows) for layer in perceptron.layers]
        if gradient is not None:
            for layer in self._layers:
                layer.write_to(gradient)

    def forward(self, features: Tensor) -> Tensor:
        """(clients, rows, width): what comes out of the last layer; the next pass writes over it.

        A stack of one may be given fewer rows than it has memory for.
        """
        for layer in self._layers:
            features = layer.forward(features)
        return features

    def forward_sparse(self, rows: SparseRows) -> Tensor:
        """`forward` of a stack of one, from rows that are mostly zeros."""
        first, *rest = self._layers
        features = first.forward_sparse(rows)
        for layer in rest:
            features = layer.forward(features)
        return features

    def backward(self, pull: Tensor) -> None:
        """Write the derivative of Σ pull · outputs in the weights, at the rows of the last forward pass."""
        for layer in self._layers[:0:-1]:
            pull = layer.onward(layer.backward(pull))
        self._layers[0].backward(pull)


class _LayerPasses:
    """A layer's part in the passes: torch's memory, which numpy's products read and write."""

    slope: Numbers
    bias_slope: Tensor | None

    def __init__(self, layer: _Layer, weights: Tensor, rows: int) -> None:
        self.layer = layer
        self.weight, self.bias = layer.views(weights)
        self.out = weights.new_empty((len(weights), rows, layer.outputs))
        self.pull = torch.empty(0)
        self._across = self.weight.transpose(0, 2, 1)
        self._into: Numbers = self.out.numpy()

    def write_to(self, gradient: Tensor) -> None:
        self.slope, self.bias_slope = self.layer.views(gradient)
        self.pull = self.out.new_empty((*self.out.shape[:2], self.layer.inputs))

    def forward(self, into: Tensor) -> Tensor:
        self._into = into.numpy()
        out = self.out if into.shape[1] == self.out.shape[1] else self.out[:, : into.shape[1]]
        np.matmul(self._into, self._across, out=out.numpy())
        return self._activated(out)

    def forward_sparse(self, rows: SparseRows) -> Tensor:
        return self._activated(rows.product(torch.from_numpy(self.weight[0])).unsqueeze(0))

    def _activated(self, out: Tensor) -> Tensor:
        if self.bias is not None:
            out.add_(self.bias)
        if self.layer.activation == "relu":
            out.relu_()
        elif self.layer.activation == "tanh":
            out.tanh_()
        return out

    def backward(self, pull: Tensor) -> Tensor:
        """Write this layer's part of the gradient; what is returned is the pull before the activation."""
        if self.layer.activation == "relu":
            pull = torch.ops.aten.threshold_backward(pull, self.out, 0)
        elif self.layer.activation == "tanh":
            pull = torch.ops.aten.tanh_backward(pull, self.out)
        np.matmul(pull.numpy().transpose(0, 2, 1), self._into, out=self.slope)
        if self.bias_slope is not None:
            torch.sum(pull, dim=1, keepdim=True, out=self.bias_slope)
        return pull

    def onward(self, pull: Tensor) -> Tensor:
        """The pull at what went into the layer."""
        if self.layer.outputs == 1:
            # No sum, hence nothing to round alike: the library takes several times as long.
            return torch.mul(pull, torch.from_numpy(self.weight), out=self.pull)
        np.matmul(pull.numpy(), self.weight, out=self.pull.numpy())
        return self.pull
