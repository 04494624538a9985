"""Checkpoints of one participant's training, which resumes from the newest one that all participants have."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from evenhand.errors import RunError
from evenhand.jobs.federation.folders import SideFolder
from evenhand.jobs.ledger import AnsweredOnce
from evenhand.privacy.key_exchange import Attempt
from evenhand.protocol import measuring, resuming, scoring
from evenhand.protocol.resuming import CHECKPOINTING, ResumeParty, ResumeServer
from evenhand.protocol.roles import SERVER, Role
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.consistent_cut import CheckpointedRole
from evenhand.runtime.files import write_bytes
from evenhand.runtime.identityfiles import AttemptFile, read_identity
from evenhand.runtime.site import Program, Site
from evenhand.training.run import fingerprint
from evenhand.training.together import Training, TrainingRunner, without_checkpoints, without_identity
from evenhand.vertical.protected.messages import CLOSING

_NOT_OF_TRAINING: Final = (CHECKPOINTING, resuming.VOCABULARY, scoring.VOCABULARY, CLOSING, measuring.VOCABULARY)


class CheckpointManager:
    """Take checkpoints of one participant's training, and resume from them.

    Parameters
    ----------
    parties
        All participants but the server.
    every
        Minimum seconds between two checkpoints. Only the server uses it, because the server requests checkpoints.
    run
        Name of the run, the same for all participants.
    """

    def __init__(self, site: Site, folder: SideFolder, parties: Sequence[str], every: float, run: str = "") -> None:
        self.run = run
        self._site = site
        self._folder = folder
        self._parties = parties
        self._every = every
        folder.transcript = site.transcript

    @property
    def sent_again(self) -> set[int]:
        """Return the positions of transcript entries that a resumed run sent a second time."""
        return {place for first, end in self._folder.again for place in range(first, end)}

    def secret(self) -> bytes:
        """Return 32 random bytes that only this participant knows; a resumed run gets the same bytes."""
        path = self._folder.folder.path / "secret"
        if not path.exists():
            write_bytes(path, os.urandom(32), private=True)
        return path.read_bytes()

    def attempts(self) -> AttemptFile:
        """Return the numbers of attempts at this run, which only rise."""
        return AttemptFile(self._folder.folder.path / "attempts.json")

    def answered_once(self) -> AnsweredOnce:
        """Return the record of what this participant has answered in all attempts at the run."""
        return AnsweredOnce(self._folder.folder.path / "answered.jsonl")

    def trained(self, role: Role, stage: Training) -> Program[None]:
        """Run the training role to its end; a resumed run starts from the newest checkpoint that all participants have.

        Only the training that counts has checkpoints: an interrupted run searches again, and what it answers counts.
        Nor has a training without parties that are gone: the run resumes with all parties.

        Parameters
        ----------
        stage
            The training; checkpoints of other terms or data belong to another run.
        """
        if stage.searching or not stage.whole:
            role.in_attempts = self._folder.handled_before({})
            yield role
            self._folder.add_handled(role.handled)
            return
        identity = fingerprint(*stage.identity())
        found, number, seconds = self._folder.checkpoints(identity), 0, 0.0
        at_server = role.name == SERVER
        if self._folder.resumed:
            agreed: ResumeServer | ResumeParty = (
                ResumeServer(self._parties, list(found)) if at_server else ResumeParty(role.name, list(found))
            )
            yield agreed
            number = agreed.number
            if number:
                role.restore(found[number].states[role.name])
            seconds = self._folder.resume_from(found.get(number))
        role.in_attempts = self._folder.handled_before(role.handled)
        checkpointed = CheckpointedRole(role, self._folder, number, self._parties if at_server else (), self._every)
        self._site.keep(checkpointed, self._folder.in_flight, seconds, self._folder.leaving)
        del found
        yield role
        self._folder.add_handled(role.handled)


def own_secret(checkpoints: CheckpointManager | None) -> bytes:
    """Return this participant's own secret, which stays the same when the run is resumed."""
    return os.urandom(32) if checkpoints is None else checkpoints.secret()


def new_attempt(name: str, identity: Path | None, checkpoints: CheckpointManager | None, run: str = "") -> Attempt:
    """Begin an attempt at a run: read the identity, and count.

    Parameters
    ----------
    identity
        Folder of the participant's identity.
    run
        Name of the run, if it is not kept.
    """
    if identity is None:
        return without_identity()
    own = read_identity(identity)
    if own.name != name:
        raise RunError(f"{identity} is the identity of {own.name}, not of {name}; name the right folder")
    if checkpoints is None:
        return Attempt(own, run)
    attempts = checkpoints.attempts()
    seen = attempts.numbers
    return Attempt(own, checkpoints.run, attempts.begin(name), seen, attempts.record)


def training_runner(checkpoints: CheckpointManager | None) -> TrainingRunner:
    """Return the function that runs the training role at this site, with checkpoints or without."""
    if checkpoints is None:
        return without_checkpoints
    return checkpoints.trained


def messages_of(transcript: Transcript, checkpoints: CheckpointManager | None) -> Transcript:
    """Return each message of training and of the exchanges before it, once.

    Three kinds of message are left out: those of checkpoints, those that a resumed run has sent again, and those of
    measuring. Some participants may start measuring before others have finished training.
    """
    again = set() if checkpoints is None else checkpoints.sent_again
    entries = [entry for place, entry in enumerate(transcript) if place not in again]
    found = Transcript()
    found.restart(one for one in entries if not any(words.has(one.kind) for words in _NOT_OF_TRAINING))
    return found
