"""Go on without a party that is gone: end the training of all others at the same round.

What follows is a training of its own, on terms without that party (`training/vertical_steps.py`): with masks among the
parties that are left, and a certificate of the model without it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

import numpy as np

from evenhand.errors import ProtocolError
from evenhand.protocol.leaving import GO_ON, PAUSE, PAUSED, VOCABULARY
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Report, Role, Sends
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.protected.layer import Layer, innermost

LEAST_SUMMED = 2
"""Fewest passive parties in a masked sum: a sum over one hides nothing."""


def reason_to_end(terms: VerticalTerms, gone: Collection[str]) -> str | None:
    """Return why a run on these terms cannot go on without some parties; None if it can.

    Empty if the job does not allow it: then there is no more to say.
    """
    if terms.job.lost_party == "end":
        return ""
    if terms.active[0] in gone:
        return f"{terms.active[0]} holds the labels"
    passive = [name for name in terms.passive if name not in gone]
    if terms.only_sums and len(passive) < LEAST_SUMMED:
        left = f"only {passive[0]} would be" if passive else "none would be"
        return f"a masked sum needs {LEAST_SUMMED} passive parties, and {left} left"
    if len([name for name in terms.names if name not in gone]) < 2:
        return "no other party would be left"
    return None


class LeavingServer(Layer):
    """Ends the training when a party is gone; else tells all others when it is complete.

    Parameters
    ----------
    rounds
        Rounds before this training, which are added to those of its history.

    Attributes
    ----------
    gone
        The parties that the next training is without.
    """

    state_fields: ClassVar = {"gone": list[str], "awaited": set[str], "without": tuple[str, ...]}

    def __init__(self, inner: Role, terms: VerticalTerms, rounds: int = 0) -> None:
        super().__init__(inner, VOCABULARY)
        self.terms = terms
        self.rounds = rounds
        self.gone: list[str] = []
        self.awaited: set[str] = set()

    @property
    def round(self) -> int:
        """The round in which the training is, or was when it ended."""
        found: int = innermost(self.inner).round  # type: ignore[attr-defined]
        return self.rounds + found

    @property
    def at_rest(self) -> bool:
        if self.gone:
            return False
        return super().at_rest if isinstance(self.inner, Layer) else self.inner.at_rest

    def reason_to_end(self, name: str) -> str | None:
        return reason_to_end(self.terms, {*self.gone, name})

    def lost(self, name: str) -> Sends:
        if self.reason_to_end(name) is not None:
            return super().lost(name)
        first = not self.gone
        self.gone.append(name)
        if not first:
            self.awaited.discard(name)
            return self._go_on()
        self.awaited = set(self._others)
        return PAUSE.messages(SERVER, self._others, round=self.round)

    @property
    def _others(self) -> list[str]:
        return [name for name in self.terms.names if name not in self.gone]

    def check(self, message: Message) -> None:
        # Messages of the training that has ended come out of turn.
        if not self.gone or self._own.has(message.kind):
            super().check(message)

    def handle(self, message: Message) -> Sends:
        if not self.gone:
            return super().handle(message)
        if message.kind != PAUSED.kind:
            return ()
        self.awaited.discard(message.sender)
        return self._go_on()

    def take(self, message: Message) -> Sends:
        raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender!r} at this point")

    def _go_on(self) -> Sends:
        if self.awaited:
            return ()
        self.done, self.without = True, tuple(self.gone)
        return self._told(self.without)

    def _told(self, gone: Collection[str]) -> Sends:
        places = np.array([self.terms.names.index(name) for name in gone], dtype=np.int64)
        return GO_ON.messages(SERVER, self._others, parties=places, round=self.round)

    def ended(self) -> Sends:
        return self._told(())

    def work(self) -> Sends:
        return () if self.gone else self._settled(self.outwards(self.inner.work()))

    def take_reports(self) -> list[Report]:
        return [
            {**row, "round": row["round"] + self.rounds} if "round" in row else row for row in super().take_reports()
        ]


class LeavingParty(Layer):
    """Ends its part of a training when the server says so."""

    state_fields: ClassVar = {"paused": bool, "told": bool, "without": tuple[str, ...]}

    def __init__(self, inner: Role, terms: VerticalTerms) -> None:
        super().__init__(inner, VOCABULARY)
        self.terms = terms
        self.paused = False
        self.told = False

    def reason_to_end(self, name: str) -> str | None:
        # The server decides. Without it nobody does.
        return "" if name == SERVER else reason_to_end(self.terms, (name,))

    def lost(self, name: str) -> Sends:
        return ()

    @property
    def closed(self) -> bool:
        return self.told

    def take(self, message: Message) -> Sends:
        if message.sender != SERVER or message.kind not in (PAUSE.kind, GO_ON.kind) or self.told:
            raise ProtocolError(f"{self.name} takes no {message.kind!r} from {message.sender!r} at this point")
        if message.kind == PAUSE.kind:
            if self.paused:
                raise ProtocolError(f"{self.name} has ended this training already; a second {PAUSE.kind!r} is refused")
            self.paused = True
            return [PAUSED.message(self.name, SERVER, round=message.integer("round"))]
        self.without = self._named(message)
        self.told = True
        if not self.without and not self.inner.done:
            raise ProtocolError(f"{self.name}: the server says that training is complete, and it is not; refused")
        return ()

    def _named(self, message: Message) -> tuple[str, ...]:
        names, places = self.terms.names, message["parties"].tolist()
        if not all(0 <= place < len(names) for place in places):
            raise ProtocolError(f"{self.name} was told of parties that are not in the terms; refused")
        gone = tuple(names[place] for place in places)
        if gone and (not self.paused or self.name in gone or reason_to_end(self.terms, gone) is not None):
            raise ProtocolError(
                f"{self.name}: the server goes on without {', '.join(gone)}, which the terms do not allow; refused"
            )
        return gone

    def _settled(self, sends: Sends) -> Sends:
        sends = super()._settled(sends)
        self.done = self.done or bool(self.without)
        return sends

    def work(self) -> Sends:
        return () if self.paused else self._settled(self.outwards(self.inner.work()))


def with_leaving(role: Any, terms: VerticalTerms, rounds: int = 0) -> Role:
    """Return a role of training that can go on without others, if the terms allow that."""
    if terms.job.lost_party == "end":
        found: Role = role
        return found
    return LeavingServer(role, terms, rounds) if role.name == SERVER else LeavingParty(role, terms)
