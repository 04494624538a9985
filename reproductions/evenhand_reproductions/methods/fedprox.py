"""FedProx (Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, Algorithm 2 and Eq. 2).

Client k minimises its own loss near the received weights, by local steps:

    F_k(w) + (μ/2) ‖w − w_t‖²

The server averages the weights as in FedAvg. With μ = 0 it is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from evenhand.horizontal.averaging.build import averaging_solver
from evenhand.horizontal.averaging.options import RoundSettings
from evenhand.protocol.job import NotNegative
from evenhand_reproductions.methods.server_steps import LocalOptions


@dataclass(frozen=True)
class FedProx(LocalOptions):
    """Options of FedProx.

    Parameters
    ----------
    proximity
        μ; the paper tries 0.001 to 1.
    """

    proximity: NotNegative = 0.1

    def settings(self, round_number: int) -> RoundSettings:
        return replace(super().settings(round_number), proximity=self.proximity)


SOLVER = replace(averaging_solver("fedprox", FedProx, takes_constraints=False), models=("linear", "mlp"))
