"""VFB² as roles that exchange messages: a server, active parties (dominators) and passive ones.

The server opens and closes rounds (`server`); active parties launch steps and judge scores (`dominator`, Algorithm 2);
all parties score behind masks (`aggregation`, Algorithm 1) and update their own blocks (`party`, Algorithm 3); and
`lateness` says how far anybody may run ahead. With one or two parties all works the same, but nothing can be hidden.
"""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.constraints.lagrangian import Lagrangian
from evenhand.protocol.job import Job
from evenhand.vertical.parties import Party
from evenhand.vertical.problem import PartyColumns, Start, build_models
from evenhand.vertical.server import Server
from evenhand.vertical.vfb2.blocks import Block
from evenhand.vertical.vfb2.dominator import ActiveParty
from evenhand.vertical.vfb2.epochs import on_rates
from evenhand.vertical.vfb2.kernels import WEIGHT
from evenhand.vertical.vfb2.options import Rule, VFB2Options
from evenhand.vertical.vfb2.party import PassiveParty
from evenhand.vertical.vfb2.server import VFB2Server
from evenhand.vertical.vfb2.setting import Setting

ROWS_IN_A_MESSAGE = 64
"""Where the job leaves it open: enough that a step is more arithmetic than message."""


def build(
    parties: Sequence[PartyColumns],
    lagrangian: Lagrangian,
    job: Job,
    start: Start | None,
    *,
    rule: Rule,
    only_active_move: bool,
) -> tuple[Server, list[Party]]:
    """The server and the parties.

    Parameters
    ----------
    only_active_move
        AFSVRG-VP: only the blocks of parties that hold labels are updated.
    """
    options = VFB2Options(**job.options).resolved(rule, on_rates(lagrangian))
    setting = Setting(
        names=tuple(party.name for party in parties),
        active=tuple(place for place, party in enumerate(parties) if party.active),
        options=options,
        rule=rule,
        batch_size=options.rows_in_a_message(otherwise=ROWS_IN_A_MESSAGE),
        seed=job.seed,
        rows=len(lagrangian.labels),
        constraints=len(lagrangian.constraints),
    )
    server = VFB2Server(lagrangian, setting, job)
    roles: list[Party] = []
    for place, (party, model) in enumerate(zip(parties, build_models(parties, job, start), strict=True)):
        intercept = job.fit_intercept and place == setting.active[0]
        block = Block(party, server.regulariser, options.regulariser, intercept)
        block.columns[:, WEIGHT] = model.weights
        moves = party.active or not only_active_move
        if party.active:
            roles.append(ActiveParty(setting, place, block, model, moves, lagrangian))
        else:
            roles.append(PassiveParty(setting, place, block, model, moves))
    return server, roles
