"""The transcript: sender, receiver, kind, time and bytes of every message.

It is the only record of communication: tables of bytes, the report and the privacy audit all read it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pandas as pd

from evenhand.protocol.messages import Message
from evenhand.protocol.roles import Traffic


class Entry(NamedTuple):
    """One message, or several of a kind counted together.

    `time` is the runtime's clock; `nbytes` counts content, not framing.
    """

    time: float
    sender: str
    receiver: str
    kind: str
    nbytes: int
    messages: int = 1


_as_entry = tuple.__new__


class Transcript:
    """Messages in the order of sending, optionally with their arrays (an audit needs them).

    Parameters
    ----------
    most_kept
        Maximum bytes of arrays to keep of each kind on each link; of a long run, its beginning is kept.
    """

    def __init__(self, keep_messages: bool = False, most_kept: float = math.inf) -> None:
        self.entries: list[Entry] = []
        self.total_bytes = 0
        self.messages: list[Message] | None = [] if keep_messages else None
        self._most_kept = most_kept
        self._kept: dict[tuple[str, str, str], int] = {}

    def add(self, time: float, message: Message) -> int:
        """Record a message and return its bytes."""
        nbytes = message.nbytes
        # Built as a tuple, which is much faster than by keyword.
        self.entries.append(_as_entry(Entry, (time, message.sender, message.receiver, message.kind, nbytes, 1)))
        self.total_bytes += nbytes
        if self.messages is not None:
            self._keep(message)
        return nbytes

    def overhear(self, messages: Iterable[Message]) -> None:
        """Keep unmasked content that a receiver derived; nothing was sent, so nothing is counted."""
        for message in messages if self.messages is not None else ():
            self._keep(message)

    def _keep(self, message: Message) -> None:
        assert self.messages is not None
        link = (message.sender, message.receiver, message.kind)
        if self._kept.get(link, 0) < self._most_kept:
            self._kept[link] = self._kept.get(link, 0) + message.nbytes
            self.messages.append(message)

    def count(self, time: float, traffic: Traffic) -> None:
        """Record messages that a role counted instead of sending, without content."""
        sender, receiver, kind, messages, nbytes = traffic
        self.entries.append(Entry(time, sender, receiver, kind, nbytes, messages))
        self.total_bytes += nbytes

    def copy(self) -> Transcript:
        """Return a copy to continue with."""
        other = Transcript()
        other.restart(self.entries)
        other.messages = None if self.messages is None else list(self.messages)
        return other

    def restart(self, entries: Iterable[Entry]) -> None:
        """Start from entries read from a file."""
        self.entries = list(entries)
        self.total_bytes = sum(entry.nbytes for entry in self.entries)

    @property
    def total_messages(self) -> int:
        return sum(entry.messages for entry in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def frame(self) -> pd.DataFrame:
        return pd.DataFrame(self.entries, columns=list(Entry._fields))

    def by_link(self) -> pd.DataFrame:
        """Messages and bytes for each direction of each link."""
        grouped = self.frame().groupby(["sender", "receiver"], sort=True)
        return grouped.agg(messages=("messages", "sum"), nbytes=("nbytes", "sum"))
