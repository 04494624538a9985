"""Tell who has which rows, after an alignment that keeps all rows of the label holder (``ids = "left"``).

A party without an id cannot work out whether the row is held out, so the server says. The label holder is told which
of its rows the other parties have: its model and its constraints depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from evenhand.arrays import Array, Booleans
from evenhand.errors import ProtocolError
from evenhand.protocol.asking import Answers
from evenhand.protocol.disclosure import PARTY_TO_SERVER, SERVER_TO_PARTIES, Direction
from evenhand.protocol.messages import Field, Message, Schema, Vocabulary
from evenhand.protocol.roles import SERVER, Follower, Role, Sends

HELD_OUT = Schema(
    "held-out",
    {"held_out": Field("u1", ("rows",))},
    direction=SERVER_TO_PARTIES,
    reveals=(
        "Which of the label holder's rows are held out from training, by their place in the common order. Rows that "
        "the receiver lacks have no id there."
    ),
)
PRESENCE = Schema(
    "presence",
    {"held": Field("u1", ("parties", "rows"))},
    direction=Direction("server", "label holder"),
    reveals="To the label holder: which of its own rows each other party has. Nothing about rows that it lacks.",
)
VOCABULARY = Vocabulary(HELD_OUT, PRESENCE, title="Before training: rows that not everybody has")
HIDDEN = Vocabulary(HELD_OUT, title="Before training: rows that not everybody has, with hidden presence")
ABSENCE = Schema(
    "absence-score",
    {"scores": Field("f8", ("outputs",)), "learned": Field("i8")},
    direction=PARTY_TO_SERVER,
    reveals=(
        "To the server: what the party adds to the score (or the score of each class) of a row that it lacks, and "
        "whether it has learned that. The server uses it for people who are scored while the party is away."
    ),
)
ABSENCES = Vocabulary(ABSENCE, title="After training: parties that may be away")


class PresenceServer(Role):
    """Tell the label holder who has its rows, and the other parties which rows are held out.

    Parameters
    ----------
    others
        Parties other than the holder.
    held
        For each of these, which of the common rows it has; None if presence is hidden from the server.
    held_out
        Which of the common rows are held out.
    """

    vocabulary = VOCABULARY

    def __init__(
        self, holder: str, others: Sequence[str], held: Mapping[str, Booleans] | None, held_out: Booleans
    ) -> None:
        super().__init__(SERVER, {})
        self._holder, self._others, self._held, self._held_out = holder, others, held, held_out
        self.done = True

    def start(self) -> Sends:
        test = self._held_out.astype(np.uint8)
        told = [HELD_OUT.message(SERVER, name, held_out=test) for name in self._others]
        if self._held is None:
            return told
        bits = np.array([self._held[name] for name in self._others], dtype=np.uint8)
        bits = bits.reshape(len(self._others), len(self._held_out))
        return [PRESENCE.message(SERVER, self._holder, held=bits), *told]

    def handle(self, message: Message) -> Sends:
        raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender!r} at this point")


class PresenceParty(Follower):
    """Receive what the server says about the common rows.

    Parameters
    ----------
    n_rows
        Number of common rows.
    others
        At the label holder: the other parties. None elsewhere.

    Attributes
    ----------
    held
        At the label holder: for each other party, which of the common rows it has.
    held_out
        Elsewhere: which of the common rows are held out.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"held": dict[str, Booleans], "held_out": Booleans}

    def __init__(self, name: str, n_rows: int, others: Sequence[str] | None = None) -> None:
        super().__init__(name, {"rows": n_rows, "parties": len(others or ())})
        self._others = others
        self.held: dict[str, Booleans] = {}
        self.held_out: Booleans = np.zeros(0, dtype=bool)

    def handle(self, message: Message) -> Sends:
        if message.kind != (HELD_OUT if self._others is None else PRESENCE).kind or self.done:
            raise ProtocolError(f"{self.name} takes no {message.kind!r} at this point")
        if self._others is not None:
            self.held = dict(zip(self._others, message["held"] > 0, strict=True))
        else:
            self.held_out = message["held_out"] > 0
        self.done = True
        return ()


class AbsenceServer(Role):
    """Collect what each party adds to the score of a row that it lacks.

    Attributes
    ----------
    scores
        Each party's numbers, one for each score of a row, or None if it had all rows in training.
    """

    vocabulary = ABSENCES
    state_fields: ClassVar = {"answers": Answers}

    def __init__(self, parties: Sequence[str], outputs: int = 1) -> None:
        super().__init__(SERVER, {"outputs": outputs})
        self.parties = tuple(parties)
        self.answers = Answers()
        self.done = not self.parties

    def handle(self, message: Message) -> Sends:
        if message.kind != ABSENCE.kind or message.sender not in self.parties or self.done:
            raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender!r} at this point")
        self.answers.add(message)
        self.done = self.answers.complete([ABSENCE.kind], self.parties)
        return ()

    @property
    def scores(self) -> dict[str, Array | None]:
        told = self.answers.of(ABSENCE.kind)
        return {name: one["scores"] if int(one["learned"]) else None for name, one in told.items()}


class AbsenceParty(Role):
    """Send what the party adds to each score of a row that it lacks; None if it has learned nothing of that."""

    vocabulary = ABSENCES

    def __init__(self, name: str, scores: Array | None, outputs: int = 1) -> None:
        super().__init__(name, {"outputs": outputs})
        self._scores = scores
        self.done = True

    def start(self) -> Sends:
        scores = np.zeros(self.sizes["outputs"]) if self._scores is None else self._scores
        return [ABSENCE.message(self.name, SERVER, scores=scores, learned=int(self._scores is not None))]

    def handle(self, message: Message) -> Sends:
        raise ProtocolError(f"{self.name} takes no {message.kind!r} at this point")
