"""q-FedAvg (Li et al., "Fair Resource Allocation in Federated Learning", ICLR 2020, Algorithm 2), which solves q-FFL.

q-FFL minimises Σ_k p_k F_k^{q+1} / (q + 1) (Eq. 2): a larger q gives clients with large losses more weight. Clients
train as in FedAvg from w, and the server moves w with L = 1/η, η the local step:

    Δ_k = F_k^q L (w − w_k),     h_k = q F_k^{q−1} ‖L (w − w_k)‖² + L F_k^q,     w ← w − Σ_k Δ_k / Σ_k h_k

F_k is client k's mean loss at w. With q = 0 it is the mean over clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from evenhand.arrays import Array
from evenhand.horizontal.averaging.build import averaging_solver
from evenhand.protocol.asking import Body
from evenhand.protocol.job import NotNegative
from evenhand_reproductions.methods.server_steps import LossOptions, SteppingServer


@dataclass(frozen=True)
class QFedAvg(LossOptions):
    """Options of q-FedAvg.

    Parameters
    ----------
    fairness
        q.
    """

    fairness: NotNegative = 1.0


class QFedAvgServer(SteppingServer):
    """Server that weights changes by powers of the clients' losses."""

    options: QFedAvg

    def change(self, updates: Mapping[str, Body], shares: Mapping[str, float]) -> Array:
        power, bound = self.options.fairness, 1.0 / self.options.settings(self.round).step
        losses, total, height = self.losses(), np.zeros(self.weights.size), 0.0
        for name, body in updates.items():
            # Zero loss has no logarithm, and no weight.
            loss = max(losses[name], 1e-10)
            slope = -bound * body["weights"].astype(np.float64)
            total += loss**power * slope
            height += power * loss ** (power - 1.0) * float(slope @ slope) + bound * loss**power
        return -total / height


SOLVER = replace(
    averaging_solver("q-fedavg", QFedAvg, server=QFedAvgServer, takes_constraints=False),
    protections=("none",),
    takes_noise=False,
)
