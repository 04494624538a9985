"""FedBCD, the papers' baseline: FairVFL's roles with no constraint, so that there is nothing to ascend."""

from __future__ import annotations

from evenhand.protocol.solver import Solver
from evenhand.vertical import fairvfl
from evenhand.vertical.fairvfl_schedule import FairVFLOptions
from evenhand.vertical.messages import FAIRVFL

SOLVER = Solver(
    name="fedbcd",
    split="vertical",
    options=FairVFLOptions,
    server=fairvfl.FairVFLServer,
    participant=fairvfl.party,
    vocabulary=FAIRVFL,
    models=("linear", "mlp"),
    runtimes=("messages", "flower", "threads"),
    takes_constraints=False,
    takes_weights=True,
    takes_label_privacy=True,
)
