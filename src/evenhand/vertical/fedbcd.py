"""FedBCD, the papers' baseline: FairVFL's roles with no constraint, so that there is nothing to ascend."""

from __future__ import annotations

from evenhand.vertical import fairvfl
from evenhand.vertical.fairvfl_schedule import FairVFLOptions
from evenhand.vertical.solver import Solver

SOLVER = Solver(
    options=FairVFLOptions,
    server=fairvfl.FairVFLServer,
    party=fairvfl.party,
    takes_constraints=False,
    threads=True,
    takes_weights=True,
    hides_labels=True,
)
