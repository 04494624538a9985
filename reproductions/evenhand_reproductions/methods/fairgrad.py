"""FairGrad (Maheshwari and Perrot, "FairGrad: Fairness Aware Gradient Descent", TMLR 2023) across clients.

With E_k the error rate of slice k among the slices of its label l, and p_k its share of the rows of that label:

    F_k = Σ_j p_j E_j − E_k,      λ_k ← max(0, λ_k + η (F_k − ε)),      δ_k ← max(0, δ_k − η (F_k + ε))

F_k > 0 means that slice k has fewer errors than its label on average. Clients train on the loss in which slice k has
the weight

    P(k) + Σ_j (p_k − [j = k]) (λ_j − δ_j)

so that slices with few errors count for less. Weights may become negative, as in the paper. These are the formulas of
the authors' package (fairgrad), whose rate η is 0.01 by default. It measures E on a batch; here the server sees counts
of errors over all clients. Under equalized odds slices are those of label and group; without labels this is accuracy
parity. With the measure "positive" E is the share of positive decisions, of which the weights are no gradient: that is
not the paper's method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from evenhand.arrays import Array
from evenhand.protocol.job import NotNegative, Positive
from evenhand_reproductions.methods.server_steps import LossOptions
from evenhand_reproductions.methods.slice_weights import WeightingServer, weighting_solver


@dataclass(frozen=True)
class FairGrad(LossOptions):
    """Options of FairGrad across clients.

    Parameters
    ----------
    group_step
        η of the weights.
    slack
        ε, the difference of error rates that is left alone.
    """

    group_step: Positive = 0.1
    slack: NotNegative = 0.0


class FairGradServer(WeightingServer):
    """Server that gives slices with fewer errors than their label less weight."""

    state_fields: ClassVar = {"advantage": Array, "disadvantage": Array}
    risk = "exact"

    options: FairGrad

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.advantage = np.zeros(len(self.means.parts))
        self.disadvantage = np.zeros(len(self.means.parts))

    def next_shares(self, shares: Array, risks: Array, of_rows: Array) -> Array:
        given, found = self.options, of_rows.copy()
        for places in self.alike:
            of_label = of_rows[places] / of_rows[places].sum()
            level = of_label @ risks[places] - risks[places]
            self.advantage[places] += given.group_step * (level - given.slack)
            self.disadvantage[places] -= given.group_step * (level + given.slack)
            np.maximum(self.advantage, 0.0, out=self.advantage)
            np.maximum(self.disadvantage, 0.0, out=self.disadvantage)
            net = self.advantage[places] - self.disadvantage[places]
            found[places] += of_label * net.sum() - net
        return found


SOLVER = weighting_solver("fairgrad", FairGrad, FairGradServer)
