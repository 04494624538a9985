"""Whose part is which program, whatever engine carries it: across columns and across rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from evenhand.jobs.federation.checkpointing import CheckpointManager
from evenhand.jobs.federation.clients import ClientEnd, client_program, clients_server_program
from evenhand.jobs.federation.files import AnyJob, ClientsJob, SiteEnv
from evenhand.jobs.federation.sites import DealerEnd, PartyEnd, dealer_program, party_program, server_program
from evenhand.protocol.terms import Terms
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.site import Program

End: TypeAlias = PartyEnd | ClientEnd | DealerEnd
"""What somebody other than the server has when a run is over."""


def server_part(
    job: AnyJob,
    find: Callable[[], SiteEnv],
    transcript: Callable[[], Transcript],
    keeping: CheckpointManager | None = None,
) -> Program[dict[str, Any]]:
    """What the server does; `find` says where the file of the party that holds the labels is, if there is one."""
    if isinstance(job, ClientsJob):
        return clients_server_program(job, transcript, keeping)
    env = find()
    return server_program(job, env.own, env.base, transcript, keeping)


def party_part(
    job: AnyJob,
    env: SiteEnv,
    on_terms: Callable[[Terms], None] | None,
    keeping: CheckpointManager | None = None,
    secret: bytes | None = None,
) -> Program[End]:
    """What a party, client or dealer does; its secret is that of `keeping` if it is given none."""
    if isinstance(job, ClientsJob):
        return client_program(job, env.own, env.base, on_terms, keeping, secret)
    if env.own.party.role == "dealer":
        return dealer_program(job, env.own, on_terms, keeping)
    return party_program(job, env.own, env.base, on_terms, keeping)
