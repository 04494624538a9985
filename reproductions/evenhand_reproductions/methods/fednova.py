"""FedNova (Wang et al., "Tackling the Objective Inconsistency Problem", NeurIPS 2020, Eqs. 6-8).

Clients train as in FedAvg, with τ_i local steps that differ by their numbers of rows. The server averages the changes
per step, so that clients with more steps do not pull the objective towards theirs:

    w ← w + τ_eff Σ_i p_i Δ_i / τ_i,      τ_eff = Σ_i p_i τ_i,      p_i = n_i / Σ n

These are the weights a_i = (1, ..., 1) of plain SGD.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from evenhand.arrays import Array
from evenhand.horizontal.averaging.build import averaging_solver
from evenhand.protocol.asking import Body
from evenhand_reproductions.methods.server_steps import MethodOptions, SteppingServer, local_steps


@dataclass(frozen=True)
class FedNova(MethodOptions):
    """Options of FedNova. Parameters are those of `AveragingOptions`."""


class NormalisingServer(SteppingServer):
    """Server that divides each change by the client's number of steps."""

    def change(self, updates: Mapping[str, Body], shares: Mapping[str, float]) -> Array:
        steps = {name: local_steps(self.options, int(body["rows"])) for name, body in updates.items()}
        effective = sum(shares[name] * count for name, count in steps.items())
        parts = [shares[name] * body["weights"].astype(np.float64) / steps[name] for name, body in updates.items()]
        return np.asarray(effective * np.sum(parts, axis=0))


# Masks hide the numbers of rows and the single changes that the server divides.
SOLVER = replace(
    averaging_solver("fednova", FedNova, server=NormalisingServer, takes_constraints=False),
    protections=("none",),
    takes_noise=False,
    models=("linear", "mlp"),
)
