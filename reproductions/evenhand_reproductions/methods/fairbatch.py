"""FairBatch (Roh et al., "FairBatch: Batch Selection for Model Fairness", ICLR 2021, Algorithm 1) across clients.

FairBatch draws rows of each group with probabilities that change by α a step. Here they are weights of the rows: the
same expected gradient, without draws. The server sees the slices' risks over all clients and shifts α a round, among
the slices with the same label, from the one with the smallest risk to the one with the largest. With several labels it
moves those of the label whose slices differ most, as the paper does for equalized odds. Weights stay in [0, 1].

For two groups it is the paper's rule. For more, the paper ranks pairs of groups; the largest and smallest risks are the
pair with the largest difference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenhand.arrays import Array
from evenhand.protocol.job import Positive
from evenhand_reproductions.methods.server_steps import LossOptions
from evenhand_reproductions.methods.slice_weights import WeightingServer, weighting_solver


@dataclass(frozen=True)
class FairBatch(LossOptions):
    """Options of FairBatch across clients.

    Parameters
    ----------
    shift
        α, the change of a weight in a round; the paper tries 0.0001 to 0.05.
    """

    shift: Positive = 0.02


class FairBatchServer(WeightingServer):
    """Server that moves weight between the slices of a label."""

    options: FairBatch

    def next_shares(self, shares: Array, risks: Array, of_rows: Array) -> Array:
        worst = max(self.alike, key=lambda places: float(np.ptp(risks[places])))
        total = shares[worst].sum()
        low, high = min(worst, key=lambda place: risks[place]), max(worst, key=lambda place: risks[place])
        moved = min(self.options.shift * total, float(shares[low]))
        found = shares.copy()
        found[low] -= moved
        found[high] += moved
        return found


SOLVER = weighting_solver("fairbatch", FairBatch, FairBatchServer)
