"""FedFB (Zeng, Chen, Lee, "Improving Fairness via Federated Learning", arXiv 2110.15545) across clients.

FedFB is FairBatch with FedAvg: clients train on the loss with a weight λ_ya for the rows of label y and group a, the
server sees sums of the groups' losses over all clients and moves the weights by a step of fixed length. Under equalized
odds, with L_ya the mean loss of label y and group a, and a = 0 the first group:

    μ_ya = L_ya − L_y0 for a ≠ 0,      λ_ya ← λ_ya + α μ_ya / ‖μ‖₂,      λ_y0 = P(y) − Σ_{a ≠ 0} λ_ya

λ begins at the shares of rows, and stays in [0, P(y)]. For more than two groups λ is projected onto the weights that
are not negative and add to P(y); for two that is the paper's bound. Where FairBatch moves one label by α, FedFB
moves all labels in proportion to their gaps.

We had the paper's abstract only. A public library (declearn) reads the same rule for equalized odds from the paper, but
with sums of losses over a group where means are compared here, as in FairBatch. The authors' public code has parity of
decisions alone, by another rule: a step α/√t times the gap itself, with clients averaged by the sums of their weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenhand.arrays import Array
from evenhand.protocol.job import Positive
from evenhand_reproductions.methods.afl import simplex
from evenhand_reproductions.methods.server_steps import LossOptions
from evenhand_reproductions.methods.slice_weights import WeightingServer, weighting_solver


@dataclass(frozen=True)
class FedFB(LossOptions):
    """Options of FedFB.

    Parameters
    ----------
    shift
        α, the length of a step of the weights.
    """

    shift: Positive = 0.02


class FedFBServer(WeightingServer):
    """Server that moves weight towards groups with larger losses than the first."""

    options: FedFB

    def next_shares(self, shares: Array, risks: Array, of_rows: Array) -> Array:
        raised = [risks[places] - risks[places[0]] for places in self.alike]
        length = float(np.linalg.norm(np.concatenate(raised)))
        found = shares.copy()
        if length == 0.0:
            return found
        for places, gaps in zip(self.alike, raised, strict=True):
            step = self.options.shift * gaps / length
            # What the others gain the first group loses.
            step[0] = -step.sum()
            total = shares[places].sum()
            found[places] = total * simplex((shares[places] + step) / total)
        return found


SOLVER = weighting_solver("fedfb", FedFB, FedFBServer)
