"""Take checkpoints of a distributed run: a consistent state of all participants, though none sees all of them.

The server starts a checkpoint; where masks are used, only between two rounds (`Role.at_rest`). A participant that first
hears of it saves its state, and announces that to all others before it sends anything else (Chandy and Lamport, 1985).
Links keep the order of messages. So a message that arrives before its sender's announcement was sent before the sender
saved its state. Messages in flight are saved with the state. Nothing is lost, and nothing is counted twice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Protocol

from evenhand.protocol.messages import Message
from evenhand.protocol.resuming import CHECKPOINT, CHECKPOINTING, SAVED
from evenhand.protocol.roles import Role
from evenhand.protocol.state import State


class CheckpointStore(Protocol):
    """Storage of one participant's checkpoints."""

    def note(self) -> None:
        """Save the records so far, which belong to the checkpoint that starts."""

    def keep(self, cut: ConsistentCut) -> None:
        """Write a checkpoint, completely or not at all."""


class CheckpointedRole:
    """Role with checkpoints.

    Parameters
    ----------
    number
        Number of the checkpoint from which the role was restored; zero for none.
    parties
        All other participants, given only at the server, which starts checkpoints.
    every
        Least seconds between two checkpoints.
    """

    def __init__(
        self, role: Role, store: CheckpointStore, number: int = 0, parties: Iterable[str] = (), every: float = math.inf
    ) -> None:
        self.role = role
        self.store = store
        self.number = number
        self.begun = number > 0
        self._parties = frozenset(parties)
        self._have = self._parties
        """Participants with the last checkpoint on disk; the next one waits until all have it."""
        self._every = every
        self._last = time.monotonic()

    def calls_for_one(self, words: Iterable[Message], now: float) -> bool:
        if self._parties:
            return self.role.at_rest and self._have == self._parties and now - self._last >= self._every
        return any(one.kind == CHECKPOINT.kind and one.integer("number") == self.number + 1 for one in words)

    def begin(self, now: float) -> None:
        self.number, self._have, self._last = self.number + 1, frozenset(), now

    def hear(self, word: Message) -> None:
        if word.kind == SAVED.kind and word.integer("number") == self.number:
            self._have |= {word.sender}


class ConsistentCut:
    """One participant's part of one checkpoint, until all others have announced theirs.

    Parameters
    ----------
    state
        State of its role.
    inbox
        Messages that have arrived, and that the role has not processed.
    leaving
        Messages that the role has returned, and that are sent after the checkpoint.

    Attributes
    ----------
    in_flight
        Messages that were sent to the role before the checkpoint, and that it has not processed.
    """

    def __init__(
        self,
        number: int,
        state: State,
        peers: Iterable[str],
        inbox: Iterable[Message],
        leaving: Iterable[Message] = (),
    ) -> None:
        self.number = number
        self.state = state
        self.leaving = list(leaving)
        self._open = set(peers)
        self.in_flight: list[Message] = []
        self.arrived(*inbox)

    def arrived(self, *messages: Message) -> None:
        """Note messages that were sent before their sender saved its state; messages of each sender arrive in order."""
        for message in messages:
            if message.sender not in self._open:
                continue
            if message.kind == CHECKPOINT.kind and message.integer("number") == self.number:
                self._open.discard(message.sender)
            elif not CHECKPOINTING.has(message.kind):
                self.in_flight.append(message)

    @property
    def complete(self) -> bool:
        return not self._open
