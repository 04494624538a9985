"""FedBCD, the baseline of the papers: the roles of FairVFL without constraints.

Round:

1. The server sums the parties' latest scores to z. It sends passive parties ν, and active parties z.
2. Each party takes gradient steps in its own weights: passive parties one, active parties up to Q.
3. Each party answers with its new scores, ‖θ_k‖² and the length of its move.
4. The server solves nothing: without constraints there are no multipliers to update.
5. It stops when the parties' moves over the step meet the tolerance, or at the round limit.
"""

from __future__ import annotations

from dataclasses import dataclass

from evenhand.protocol.solver import Solver
from evenhand.vertical import fairvfl
from evenhand.vertical.fairvfl_schedule import FairVFL
from evenhand.vertical.messages import FAIRVFL


@dataclass(frozen=True)
class FedBCD(FairVFL):
    """FedBCD: parties take gradient steps on their own blocks. It takes no constraint.

    Parameters are those of `FairVFL`; those of multipliers have no effect.
    """


SOLVER = Solver(
    name="fedbcd",
    split="vertical",
    options=FedBCD,
    server=fairvfl.FairVFLServer,
    participant=fairvfl.party,
    vocabulary=FAIRVFL,
    models=("linear", "mlp"),
    runtimes=("messages", "flower", "threads"),
    takes_constraints=False,
    takes_weights=True,
    takes_label_privacy=True,
)
