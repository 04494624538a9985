"""Choose each participant's program, vertical or horizontal; every engine (NVIDIA FLARE, Flower) uses this."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from evenhand.jobs.federation.checkpointing import CheckpointManager
from evenhand.jobs.federation.clients import ClientEnd, client_program, clients_server_program
from evenhand.jobs.federation.files import AnyJob, ClientsJob, SiteEnv
from evenhand.jobs.federation.sites import (
    DealerEnd,
    KeepShares,
    PartyEnd,
    dealer_program,
    forget_shares,
    party_program,
    server_program,
)
from evenhand.protocol.terms import Terms
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.site import Program

End: TypeAlias = PartyEnd | ClientEnd | DealerEnd
"""What a participant other than the server has at the end of a run."""


def server_part(
    job: AnyJob,
    find: Callable[[], SiteEnv],
    transcript: Callable[[], Transcript],
    checkpoints: CheckpointManager | None = None,
    identity: Path | None = None,
    run: str = "",
    keep: KeepShares = forget_shares,
) -> Program[dict[str, Any]]:
    """Return the server's program.

    Parameters
    ----------
    find
        Returns the file of the party that holds the labels, and its folder. Horizontal jobs do not call it.
    identity
        Folder of the server's own identity; None is that of its start-up kit.
    run
        Name of the run, where `checkpoints` does not know it.
    keep
        See `server_program`.
    """
    if isinstance(job, ClientsJob):
        return clients_server_program(job, transcript, checkpoints, identity, run)
    env = find()
    return server_program(job, env.own, env.base, transcript, checkpoints, identity, run, keep, env.runs)


def party_part(
    job: AnyJob,
    env: SiteEnv,
    on_terms: Callable[[Terms], None] | None,
    checkpoints: CheckpointManager | None = None,
    secret: bytes | None = None,
    run: str = "",
) -> Program[End]:
    """Return the program of a party, client or dealer.

    Parameters
    ----------
    secret
        The participant's own secret; None takes the one from `checkpoints`.
    run
        Name of the run, where `checkpoints` does not know it.
    """
    if isinstance(job, ClientsJob):
        return client_program(job, env.own, env.base, on_terms, checkpoints, secret, run)
    if env.own.party.role == "dealer":
        return dealer_program(job, env.own, env.base, on_terms, checkpoints, run)
    return party_program(job, env.own, env.base, on_terms, checkpoints, run, env.runs, secret)
