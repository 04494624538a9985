"""FedAdagrad, FedAdam and FedYogi (Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 2).

Clients train as in FedAvg. The server takes the mean of their changes Δ for a gradient:

    m ← β₁ m + (1 − β₁) Δ
    v ← v + Δ² (Adagrad),  β₂ v + (1 − β₂) Δ² (Adam),  v − (1 − β₂) Δ² sign(v − Δ²) (Yogi)
    w ← w + η m / (√v + τ),            with m = 0 and v = τ² at first
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from evenhand.arrays import Array
from evenhand.horizontal.averaging.build import averaging_solver
from evenhand.protocol.asking import Body
from evenhand.protocol.job import Positive
from evenhand_reproductions.methods.server_steps import MethodOptions, SteppingServer

Decay = Annotated[float, Field(ge=0.0, lt=1.0)]


@dataclass(frozen=True)
class AdaptiveOptions(MethodOptions):
    """Options of FedAdagrad, FedAdam and FedYogi, with the paper's defaults of Section 5.

    Parameters
    ----------
    server_step
        η of the server.
    momentum
        β₁.
    decay
        β₂; FedAdagrad has none.
    adaptivity
        τ.
    """

    server_step: Positive = 0.1
    momentum: Decay = 0.9
    decay: Decay = 0.99
    adaptivity: Positive = 1e-3


@dataclass(frozen=True)
class FedAdagrad(AdaptiveOptions):
    """Options of FedAdagrad. Parameters are those of `AdaptiveOptions`."""


@dataclass(frozen=True)
class FedAdam(AdaptiveOptions):
    """Options of FedAdam. Parameters are those of `AdaptiveOptions`."""


@dataclass(frozen=True)
class FedYogi(AdaptiveOptions):
    """Options of FedYogi. Parameters are those of `AdaptiveOptions`."""


class AdaptiveServer(SteppingServer):
    """Server with an adaptive optimiser."""

    state_fields: ClassVar = {"momentum": Array, "variance": Array}

    options: AdaptiveOptions

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.momentum = np.zeros(self.weights.size)
        self.variance = np.full(self.weights.size, self.options.adaptivity**2)

    def change(self, updates: Mapping[str, Body], shares: Mapping[str, float]) -> Array:
        given, delta = self.options, self.mean_change(updates, shares)
        self.momentum = given.momentum * self.momentum + (1.0 - given.momentum) * delta
        self.variance = self.next_variance(delta**2)
        found: Array = given.server_step * self.momentum / (np.sqrt(self.variance) + given.adaptivity)
        return found

    def next_variance(self, square: Array) -> Array:
        """Return v of FedAdam."""
        return self.options.decay * self.variance + (1.0 - self.options.decay) * square


class AdagradServer(AdaptiveServer):
    """Server of FedAdagrad."""

    def next_variance(self, square: Array) -> Array:
        return self.variance + square


class YogiServer(AdaptiveServer):
    """Server of FedYogi."""

    def next_variance(self, square: Array) -> Array:
        return self.variance - (1.0 - self.options.decay) * square * np.sign(self.variance - square)


SOLVERS = (
    averaging_solver("fedadagrad", FedAdagrad, server=AdagradServer, takes_constraints=False),
    averaging_solver("fedadam", FedAdam, server=AdaptiveServer, takes_constraints=False),
    averaging_solver("fedyogi", FedYogi, server=YogiServer, takes_constraints=False),
)
