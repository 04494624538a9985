"""Perceptrons of many clients at once: weights stacked along a first axis, forward and backward as batched products.

Training ten small networks one after the other costs ten times the overhead of every call; stacked, one call does a
layer of all of them. The backward pass is written out, which halves the number of calls once more (it is tested
against autograd).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

Activation = Literal["relu", "tanh"]
View: TypeAlias = tuple[Tensor, Tensor | None]


@contextmanager
def one_thread() -> Iterator[None]:
    """Short products are not worth a second thread, and sums come out alike on every machine."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(before)


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


class StackedPerceptron:
    """Linear layers with ReLU or tanh between them, for a stack of flat weight vectors (clients, W)."""

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

    def views(self, flat: Tensor) -> list[View]:
        """Each layer's weights (clients, outputs, inputs) and bias (clients, 1, outputs) inside a stack of vectors."""
        found: list[View] = []
        for layer in self.layers:
            middle = layer.start + layer.weights
            weight = flat[:, layer.start : middle].view(len(flat), layer.outputs, layer.inputs)
            found.append((weight, flat[:, middle : layer.end].unsqueeze(1) if layer.bias else None))
        return found

    def forward(self, views: list[View], features: Tensor) -> list[Tensor]:
        """What goes into each layer and, last, what comes out: (clients, rows, width) each."""
        passed = [features]
        for layer, (weight, bias) in zip(self.layers, views, strict=True):
            if bias is None:
                out = torch.bmm(passed[-1], weight.transpose(1, 2))
            else:
                out = torch.baddbmm(bias, passed[-1], weight.transpose(1, 2))
            if layer.activation == "relu":
                out = out.relu_()
            elif layer.activation == "tanh":
                out = out.tanh_()
            passed.append(out)
        return passed

    def backward(self, views: list[View], passed: list[Tensor], pull: Tensor, gradient: list[View]) -> None:
        """Write into `gradient` the derivative of Σ pull · outputs in the weights."""
        for place in range(len(self.layers) - 1, -1, -1):
            layer, into, out = self.layers[place], passed[place], passed[place + 1]
            if layer.activation == "relu":
                pull = torch.ops.aten.threshold_backward(pull, out, 0)
            elif layer.activation == "tanh":
                pull = torch.ops.aten.tanh_backward(pull, out)
            slope, bias = gradient[place]
            torch.bmm(pull.transpose(1, 2), into, out=slope)
            if bias is not None:
                torch.sum(pull, dim=1, keepdim=True, out=bias)
            if place > 0:
                pull = torch.bmm(pull, views[place][0])
