"""VFB²: vertical learning with backward updating, asynchronous on two levels; SGD, SVRG and SAGA.

An active party picks rows, has their scores summed behind masks, and sends ϑ, the loss's derivative, back to everybody
(a dominated update, Algorithm 2); every party then moves its own block (a collaborative update, Algorithm 3). See
`interleaver` for all parties in one loop, `roles` for parties that exchange messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from evenhand.job import Job
from evenhand.lagrangian import Lagrangian
from evenhand.vertical.problem import PartyColumns, Start
from evenhand.vertical.solver import Solver
from evenhand.vertical.vfb2.ensemble import InterleavedParties
from evenhand.vertical.vfb2.options import Rule, VFB2Options
from evenhand.vertical.vfb2.roles import build


def _solver(rule: Rule, only_active_move: bool = False, exact: bool = True) -> Solver:
    return Solver(
        options=VFB2Options,
        build=partial(build, rule=rule, only_active_move=only_active_move),
        models=("linear",),
        losses=("logistic", "squared"),
        ensemble=partial(_play, rule=rule, only_active_move=only_active_move),
        exact=exact,
    )


def _play(
    parties: Sequence[PartyColumns],
    lagrangian: Lagrangian,
    job: Job,
    start: Start | None,
    *,
    rule: Rule,
    only_active_move: bool,
) -> InterleavedParties:
    return InterleavedParties(parties, lagrangian, job, rule, start, only_active_move)


SOLVERS = {
    "vfb2-sgd": _solver("sgd", exact=False),
    "vfb2-svrg": _solver("svrg"),
    "vfb2-saga": _solver("saga"),
    "afsvrg-vp": _solver("svrg", only_active_move=True, exact=False),
}
