"""Collect the answers to a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy.typing as npt

from evenhand.errors import ProtocolError
from evenhand.protocol.messages import Message

Body: TypeAlias = Mapping[str, npt.NDArray[Any]]


class Answers:
    """Message bodies, at most one of each kind from each sender."""

    state_fields: ClassVar = {"_bodies": dict[str, dict[str, Body]]}

    def __init__(self) -> None:
        self._bodies: dict[str, dict[str, Body]] = {}

    def add(self, message: Message) -> None:
        given = self._bodies.setdefault(message.kind, {})
        if message.sender in given:
            raise ProtocolError(f"{message.sender} has answered {message.kind!r} already; the second one is refused")
        given[message.sender] = message.body

    def of(self, kind: str) -> dict[str, Body]:
        """Return bodies by sender, sorted by name, so that sums do not depend on the order of arrival."""
        return dict(sorted(self._bodies.get(kind, {}).items()))

    def complete(self, kinds: Sequence[str], senders: Sequence[str]) -> bool:
        return all(len(self._bodies.get(kind, {})) == len(senders) for kind in kinds)

    def clear(self) -> None:
        self._bodies = {}
