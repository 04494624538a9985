"""FedMinMax (Papadaki et al., "Minimax Demographic Group Fairness in Federated Learning", FAccT 2022, Algorithm 1).

It minimises the largest risk of a group, min over θ of max over μ in the simplex of Σ_a μ_a r_a(θ):

    clients:  a local step on Σ_a (n_ak / n_k) (μ_a / ρ_a) r_ak(θ),      ρ_a: share of all rows that are in group a
    server:   θ ← Σ_k (n_k / n) θ_k,      μ ← projection of μ + η_μ r(θ) onto the simplex,      μ = ρ at first

Algorithm 1 takes one full gradient a round; `local_epochs` allows more. Groups are the slices of the job's constraint:
those of a sensitive attribute by default, of label and attribute with equalized odds. If slices leave rows out, the
weights of slices keep their sum.
"""

from __future__ import annotations

from dataclasses import dataclass

from evenhand.arrays import Array
from evenhand.protocol.job import Positive
from evenhand_reproductions.methods.afl import simplex
from evenhand_reproductions.methods.server_steps import LossOptions
from evenhand_reproductions.methods.slice_weights import WeightingServer, weighting_solver


@dataclass(frozen=True)
class FedMinMax(LossOptions):
    """Options of FedMinMax.

    Parameters
    ----------
    group_step
        η_μ.
    """

    group_step: Positive = 0.1


class MinMaxServer(WeightingServer):
    """Server that gives groups with large risks more weight."""

    options: FedMinMax

    def next_shares(self, shares: Array, risks: Array, of_rows: Array) -> Array:
        total = shares.sum()
        return total * simplex((shares + self.options.group_step * risks) / total)


SOLVER = weighting_solver("fedminmax", FedMinMax, MinMaxServer)
