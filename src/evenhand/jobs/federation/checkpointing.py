"""The training of one side, so that it outlasts its process: checkpoints as it goes, and from one that all have on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from evenhand.jobs.federation.folders import SideFolder
from evenhand.protocol import measuring, resuming, scoring
from evenhand.protocol.resuming import CUTS, ResumeParty, ResumeServer
from evenhand.protocol.roles import SERVER, Role
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.cuts import CheckpointedRole
from evenhand.runtime.files import write_bytes
from evenhand.runtime.site import Program, Site
from evenhand.training.run import fingerprint
from evenhand.training.together import Keeper, without_checkpoints

_NOT_OF_TRAINING: Final = (CUTS, resuming.VOCABULARY, scoring.VOCABULARY, measuring.VOCABULARY)


class CheckpointManager:
    """Checkpoints of one side's training.

    Parameters
    ----------
    parties
        Everybody but the server.
    every
        At the server, which calls for them: least seconds between two.
    """

    def __init__(self, site: Site, folder: SideFolder, parties: Sequence[str], every: float) -> None:
        self._site = site
        self._folder = folder
        self._parties = parties
        self._every = every
        folder.transcript = site.transcript

    @property
    def gone_through_again(self) -> set[int]:
        """Places in the transcript of what the run had behind it already when it went on."""
        return {place for first, end in self._folder.again for place in range(first, end)}

    def secret(self) -> bytes:
        """32 bytes that nobody else knows; a run that goes on has the same again."""
        path = self._folder.folder.path / "secret"
        if not path.exists():
            write_bytes(path, os.urandom(32), private=True)
        return path.read_bytes()

    def trained(self, role: Role, identity: str) -> Program[None]:
        """The role to its end; of a run that goes on, from the newest checkpoint that all have.

        Parameters
        ----------
        identity
            A sum over terms and data: with others it would be another run.
        """
        found, number, seconds = self._folder.checkpoints(identity), 0, 0.0
        at_server = role.name == SERVER
        if self._folder.resumed:
            agreed: ResumeServer | ResumeParty = (
                ResumeServer(self._parties, list(found)) if at_server else ResumeParty(role.name, list(found))
            )
            yield agreed
            number = agreed.number
            seconds = self._folder.go_on(found.get(number))
        checkpointed = CheckpointedRole(role, self._folder, number, self._parties if at_server else (), self._every)
        if number:
            role.restore(found[number].states[role.name])
        self._site.keep(checkpointed, self._folder.in_flight, seconds)
        del found
        yield role


def own_secret(keeping: CheckpointManager | None) -> bytes:
    """A secret of this side's own, the same for as long as the run lasts."""
    return os.urandom(32) if keeping is None else keeping.secret()


def keeper(keeping: CheckpointManager | None) -> Keeper:
    """Return what runs the training role at this site, with checkpoints or without."""
    if keeping is None:
        return without_checkpoints
    return lambda role, identity: keeping.trained(role, fingerprint(*identity))


def messages_of(transcript: Transcript, keeping: CheckpointManager | None) -> Transcript:
    """The messages of a training and of what led to it, once: without checkpoints, without what a run that went on has
    gone through again, and without the measuring, which some may have begun before others had ended the training.
    """
    again = set() if keeping is None else keeping.gone_through_again
    entries = [entry for place, entry in enumerate(transcript) if place not in again]
    found = Transcript()
    found.restart(one for one in entries if not any(words.has(one.kind) for words in _NOT_OF_TRAINING))
    return found
