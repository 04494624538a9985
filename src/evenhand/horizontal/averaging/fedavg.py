"""FedAvg: local SGD on the mean loss, then averaging; the unconstrained baseline of the FairFedAvgALM paper.

Round:

1. The server sends the model to the participants.
2. Each participant minimises its mean loss by SGD and answers with the change of the weights.
3. The server adds the average of the changes, weighted by rows. It solves nothing.
4. It stops after `max_rounds` rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

from evenhand.horizontal.averaging.build import averaging_solver
from evenhand.horizontal.averaging.options import AveragingOptions


@dataclass(frozen=True)
class FedAvg(AveragingOptions):
    """FedAvg: clients run local SGD on the mean loss, and the server averages their weights.

    It takes no constraint. Parameters are those of `AveragingOptions`.
    """


SOLVER = averaging_solver("fedavg", FedAvg, takes_constraints=False)
