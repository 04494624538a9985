"""VFB²: vertical learning with backward updating, asynchronous on two levels; SGD, SVRG and SAGA.

An active party picks rows, has their scores summed behind masks, and sends ϑ, the loss's derivative, back to everybody
(a dominated update, Algorithm 2); every party then moves its own block (a collaborative update, Algorithm 3). See
`interleaver` for all parties in one loop, `roles` for parties that exchange messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evenhand.constraints.lagrangian import Lagrangian
from evenhand.protocol.job import Job
from evenhand.vertical.parties import Party
from evenhand.vertical.problem import PartyColumns, Start
from evenhand.vertical.server import CompiledRun, Server
from evenhand.vertical.solver import Solver
from evenhand.vertical.vfb2.options import Rule, VFB2Options


@dataclass(frozen=True)
class _Makers:
    """Builds the roles of one rule. The compiler takes a second to load, so it is loaded only by who needs it."""

    rule: Rule
    only_active_move: bool = False

    def roles(
        self, parties: Sequence[PartyColumns], lagrangian: Lagrangian, job: Job, start: Start | None
    ) -> tuple[Server, list[Party]]:
        from evenhand.vertical.vfb2.roles import build

        return build(parties, lagrangian, job, start, rule=self.rule, only_active_move=self.only_active_move)

    def compiled(
        self, parties: Sequence[PartyColumns], lagrangian: Lagrangian, job: Job, start: Start | None
    ) -> CompiledRun:
        from evenhand.vertical.vfb2.compiled import CompiledVFB2

        return CompiledVFB2(parties, lagrangian, job, self.rule, start, self.only_active_move)


def _solver(makers: _Makers, exact: bool = True) -> Solver:
    return Solver(
        options=VFB2Options,
        build=makers.roles,
        models=("linear",),
        losses=("logistic", "squared"),
        compiled=makers.compiled,
        exact=exact,
    )


SOLVERS = {
    "vfb2-sgd": _solver(_Makers("sgd"), exact=False),
    "vfb2-svrg": _solver(_Makers("svrg")),
    "vfb2-saga": _solver(_Makers("saga")),
    "afsvrg-vp": _solver(_Makers("svrg", only_active_move=True), exact=False),
}
