"""FedAvg: local SGD on the mean loss, averaged. No constraint; the baseline of the paper."""

from __future__ import annotations

from evenhand.horizontal.averaging.build import averaging_solver
from evenhand.horizontal.averaging.options import AveragingOptions

SOLVER = averaging_solver("fedavg", AveragingOptions, takes_constraints=False)
