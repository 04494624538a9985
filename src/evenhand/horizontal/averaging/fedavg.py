"""FedAvg: local SGD on the mean loss, averaged. No constraint; the baseline of the paper."""

from __future__ import annotations

from evenhand.horizontal.averaging.build import build_averaging
from evenhand.horizontal.averaging.options import AveragingOptions
from evenhand.horizontal.solver import Roles, Setup, Solver


def build(setup: Setup) -> Roles:
    return build_averaging(setup, AveragingOptions(**setup.job.options))


SOLVER = Solver(options=AveragingOptions, build=build, takes_constraints=False)
