"""Agnostic federated learning (Mohri, Sivek, Suresh, "Agnostic Federated Learning", ICML 2019, Eq. 4 and Algorithm 1).

AFL minimises the largest mixture of the clients' losses, max over λ in the simplex of Σ_k λ_k F_k(w):

    w ← Σ_k λ_k w_k,       λ ← projection of λ + γ_λ F(w) onto the simplex

Algorithm 1 takes one stochastic gradient for each of the two. Here clients train as in FedAvg for the first, and F_k is
client k's mean loss at w. λ begins at the shares of rows. Clients that are not drawn keep their λ_k.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from evenhand.arrays import Array
from evenhand.horizontal.averaging.build import averaging_solver
from evenhand.protocol.asking import Body
from evenhand.protocol.job import Positive
from evenhand_reproductions.methods.server_steps import LossOptions, SteppingServer


@dataclass(frozen=True)
class AFL(LossOptions):
    """Options of agnostic federated learning.

    Parameters
    ----------
    mixture_step
        γ_λ.
    """

    mixture_step: Positive = 0.1


class AFLServer(SteppingServer):
    """Server with a mixture of the clients."""

    state_fields: ClassVar = {"mixture": dict[str, float]}

    options: AFL

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.mixture: dict[str, float] = {}

    def change(self, updates: Mapping[str, Body], shares: Mapping[str, float]) -> Array:
        mixture = {name: self.mixture.get(name, shares[name]) for name in updates}
        total = sum(mixture.values())
        among = {name: share / total for name, share in mixture.items()} if total > 0 else shares
        found = self.mean_change(updates, among)
        raised = dict(self.mixture)
        for name, loss in self.losses().items():
            raised[name] = mixture[name] + self.options.mixture_step * loss
        self.mixture = dict(zip(raised, simplex(np.array(list(raised.values()))).tolist(), strict=True))
        return found


def simplex(values: Array) -> Array:
    """Project onto {λ ≥ 0, Σ λ = 1}."""
    ordered = np.sort(values)[::-1]
    shift = (np.cumsum(ordered) - 1.0) / np.arange(1, len(values) + 1)
    return np.asarray(np.maximum(values - shift[np.flatnonzero(ordered > shift)[-1]], 0.0))


SOLVER = replace(
    averaging_solver("afl", AFL, server=AFLServer, takes_constraints=False),
    protections=("none",),
    takes_noise=False,
)
