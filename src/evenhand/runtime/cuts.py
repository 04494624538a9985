"""Checkpoints of a run whose participants are apart: everybody's state at one point of the run, though none sees all.

The server begins. Whoever hears of a checkpoint for the first time keeps its state, and says so to everybody else
before anything further (Chandy and Lamport, 1985). Links keep order, so what comes from somebody before its word was
sent before its state was kept, and what was still under way is kept beside the state: nothing is lost, and nothing is
counted twice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import Protocol

from evenhand.protocol.messages import Message
from evenhand.protocol.resuming import CHECKPOINT, CUTS, KEPT
from evenhand.protocol.roles import Role
from evenhand.protocol.state import State


class CheckpointStore(Protocol):
    """Where one participant's checkpoints go."""

    def note(self) -> None:
        """Write down what has been recorded so far: it belongs to the checkpoint that begins."""

    def keep(self, number: int, role: State, in_flight: Sequence[Message]) -> None:
        """Write a checkpoint, completely or not at all."""


class CheckpointedRole:
    """A role of which checkpoints are taken.

    Parameters
    ----------
    number
        Of the checkpoint that it was put back to; zero is none.
    parties
        At the server, which calls for checkpoints: everybody else. Nobody else has any.
    every
        Least seconds between two.
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
        """Who has the last checkpoint on its disk: as long as somebody lacks it, there is no next."""
        self._every = every
        self._last = time.monotonic()

    def calls_for_one(self, words: Iterable[Message], now: float) -> bool:
        if self._parties:
            return self._have == self._parties and now - self._last >= self._every
        return any(one.kind == CHECKPOINT.kind and one.integer("number") == self.number + 1 for one in words)

    def begin(self, now: float) -> None:
        self.number, self._have, self._last = self.number + 1, frozenset(), now

    def hear(self, word: Message) -> None:
        if word.kind == KEPT.kind and word.integer("number") == self.number:
            self._have |= {word.sender}


class ConsistentCut:
    """One participant's part of one checkpoint, until it has heard from everybody.

    Parameters
    ----------
    state
        Of its role.
    inbox
        What has arrived, and the role has not taken.

    Attributes
    ----------
    in_flight
        The messages that were sent to the role before the checkpoint, and that it has not taken.
    """

    def __init__(self, number: int, state: State, peers: Iterable[str], inbox: Iterable[Message]) -> None:
        self.number = number
        self.state = state
        self._open = set(peers)
        self.in_flight: list[Message] = []
        self.arrived(*inbox)

    def arrived(self, *messages: Message) -> None:
        """Note what was sent before its sender saved its state. Messages of each sender come in order."""
        for message in messages:
            if message.sender not in self._open:
                continue
            if message.kind == CHECKPOINT.kind and message.integer("number") == self.number:
                self._open.discard(message.sender)
            elif not CUTS.has(message.kind):
                self.in_flight.append(message)

    @property
    def complete(self) -> bool:
        return not self._open
