"""FairFedAvgALM for clients with unequal numbers of local steps (FairFedAvgALM Section 4.2).

FairFedAvgALM Algorithm 1 assumes that all clients take as many local steps; otherwise, the paper says, the correction
of FedNova is needed. The weights then move by FedNova Eq. 6:

    w ← w + τ_eff Σ_i p_i Δ_i / τ_i,      τ_eff = Σ_i p_i τ_i,      p_i = n_i / Σ n

A client takes one ascent step in λ whatever its number of local steps, so λ is averaged as in FairFedAvgALM.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from evenhand.constraints.kinds import LossParity
from evenhand.horizontal.averaging.build import averaging_solver
from evenhand.horizontal.averaging.fairfedavgalm import AugmentedLagrangian, FairFedAvgALM
from evenhand.horizontal.averaging.messages import UPDATE
from evenhand_reproductions.methods.fednova import NormalisingServer
from evenhand_reproductions.methods.server_steps import MethodOptions


@dataclass(frozen=True)
class FairFedAvgALMNova(FairFedAvgALM, MethodOptions):
    """Options of FairFedAvgALM with FedNova's correction. Parameters are those of `FairFedAvgALM`."""


class NormalisingDualServer(NormalisingServer):
    """Server that divides each change of the weights by the client's number of steps, and averages λ."""

    def average(self) -> None:
        super().average()
        updates = self.answers.of(UPDATE.kind)
        shares = self.shares(updates)
        change = sum(shares[name] * body["multipliers"] for name, body in updates.items())
        self.multipliers = self.formulation.multipliers.project(self.multipliers + change)


# Masks hide the numbers of rows and the single changes that the server divides.
SOLVER = replace(
    averaging_solver(
        "fairfedavgalm-nova",
        FairFedAvgALMNova,
        formulation=AugmentedLagrangian,
        server=NormalisingDualServer,
        default_constraints=(LossParity(0.0),),
    ),
    protections=("none",),
    takes_noise=False,
    models=("linear", "mlp"),
)
