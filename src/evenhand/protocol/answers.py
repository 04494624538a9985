"""What a server has been answered so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy.typing as npt

from evenhand.errors import ProtocolError
from evenhand.protocol.messages import Message

Body: TypeAlias = Mapping[str, npt.NDArray[Any]]


class Answers:
    """Bodies of messages, each kind at most once from each sender."""

    state_fields: ClassVar = {"_bodies": dict[str, dict[str, Body]]}

    def __init__(self) -> None:
        self._bodies: dict[str, dict[str, Body]] = {}

    def add(self, message: Message) -> None:
        given = self._bodies.setdefault(message.kind, {})
        if message.sender in given:
            raise ProtocolError(f"{message.sender} has answered {message.kind!r} already; the second one is refused")
        given[message.sender] = message.body

    def of(self, kind: str) -> dict[str, Body]:
        """By sender, in the order of names: sums then do not depend on who answered first."""
        return dict(sorted(self._bodies.get(kind, {}).items()))

    def complete(self, kinds: Sequence[str], senders: Sequence[str]) -> bool:
        return all(len(self._bodies.get(kind, {})) == len(senders) for kind in kinds)

    def clear(self) -> None:
        self._bodies = {}
