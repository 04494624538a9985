"""Ask for scores of people by id, and find those that all parties have.

This exchange precedes joint scoring of new rows. The server sends checksums of ids, as parties do to align rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from evenhand.arrays import Booleans, Integers
from evenhand.errors import DataError, ProtocolError
from evenhand.protocol.align import check_places, id_sums
from evenhand.protocol.disclosure import PARTY_TO_SERVER, SERVER_TO_PARTIES
from evenhand.protocol.messages import TEXT, Field, Message, Schema, Vocabulary, as_bytes
from evenhand.protocol.roles import SERVER, Follower, Role, Sends

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


ASKED = Schema(
    "asked",
    {"kind": TEXT, "sums": Field("i8", (None, 2))},
    direction=SERVER_TO_PARTIES,
    reveals=(
        "To every party: the people to score, as a hash of each id, or the id itself if it is a number. A "
        "party with a list of likely ids learns which of them are asked for, whether they are its own "
        "customers or not."
    ),
)
HELD = Schema(
    "held",
    {"held": Field("u1", (None,))},
    direction=PARTY_TO_SERVER,
    reveals="To the server: which of the people asked for are in the party's table.",
)
TAKEN = Schema(
    "taken",
    {"places": Field("i8", (None,))},
    direction=SERVER_TO_PARTIES,
    reveals=(
        "Which of the people asked for are scored now: those in every party's table, or with `missing_party = "
        '"absent"` those in the label holder\'s.'
    ),
)
VOCABULARY = Vocabulary(ASKED, HELD, TAKEN, title="After training: asking for new people")


class AskServer(Role):
    """Find the requested people that all parties have.

    Parameters
    ----------
    kind, sums
        Type and checksums of the ids, as `id_sums` returns them.
    needed
        Parties that must have a person to score; None is all.

    Attributes
    ----------
    places
        Positions of the requested people who are scored: those that all needed parties have.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"answers": Answers, "places": Integers}

    def __init__(self, parties: Sequence[str], kind: str, sums: Integers, needed: Sequence[str] | None = None) -> None:
        super().__init__(SERVER, {})
        self.parties = tuple(parties)
        self._needed = self.parties if needed is None else tuple(needed)
        self._kind, self._sums = kind, sums
        self.answers = Answers()
        self.places: Integers = np.zeros(0, dtype=np.int64)

    def start(self) -> Sends:
        return [ASKED.message(SERVER, name, kind=as_bytes(self._kind), sums=self._sums) for name in self.parties]

    def handle(self, message: Message) -> Sends:
        if message.kind != HELD.kind or message.sender not in self.parties or self.done:
            raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender!r} at this point")
        if len(message["held"]) != len(self._sums):
            raise ProtocolError(
                f"{message.sender} answered about people that were not among the {len(self._sums)} requested; refused"
            )
        self.answers.add(message)
        if not self.answers.complete([HELD.kind], self.parties):
            return ()
        held = [self.held[name] for name in self._needed]
        self.places, self.done = np.flatnonzero(np.all(held, axis=0)), True
        return [TAKEN.message(SERVER, name, places=self.places) for name in self.parties]

    @property
    def held(self) -> dict[str, Booleans]:
        """For each party, which of the requested people it has."""
        return {name: body["held"] > 0 for name, body in self.answers.of(HELD.kind).items()}


class AskedParty(Follower):
    """Say which of the requested people the party has, and learn which to score.

    Parameters
    ----------
    ids
        One id for each row of the party's table.
    among
        Sums of the ids that the party answers for; it denies having any others. None is all of them.
    admit
        Called with the number of people asked for, before the party answers; it raises an error to refuse.
    lacking
        Whether people may be scored whom the party lacks (``missing_party = "absent"``).

    Attributes
    ----------
    rows
        Positions in the party's table to score, in the common order; −1 for people whom it lacks.
    people
        Checksum of who is asked for and who is scored. Masks depend on it, so that parties that were told of different
        people open nothing.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"rows": Integers, "people": str, "_told": bool}

    def __init__(
        self,
        name: str,
        ids: pd.Index,
        among: Integers | None = None,
        admit: Callable[[int], None] = lambda _: None,
        *,
        lacking: bool = False,
    ) -> None:
        super().__init__(name, {})
        self._own = id_sums(ids)
        self._lacking = lacking
        self._among, self._admit = among, admit
        self._told = False
        self.rows: Integers = np.zeros(0, dtype=np.int64)
        self.people = ""

    def handle(self, message: Message) -> Sends:
        if message.kind == ASKED.kind and not (self.done or self._told):
            kind, sums = self._own
            asked = message["sums"]
            self.people = _checksum(message.text("kind").encode(), asked)
            if len(asked) and len(sums) and message.text("kind") != kind:
                raise DataError(f"{self.name}'s ids are {kind}, those asked for are {message.text('kind')}")
            self._admit(len(asked))
            self._told = True
            people = pd.MultiIndex.from_arrays([*asked.T])
            self.rows = pd.MultiIndex.from_arrays([*sums.T]).get_indexer(people)
            if self._among is not None:
                self.rows[pd.MultiIndex.from_arrays([*self._among.T]).get_indexer(people) < 0] = -1
            return [HELD.message(self.name, SERVER, held=(self.rows >= 0).astype(np.uint8))]
        if message.kind == TAKEN.kind and not self.done:
            places = message["places"]
            check_places(self.name, places, len(self.rows))
            rows = self.rows[places]
            if (rows < 0).any() and not self._lacking:
                raise ProtocolError(f"{self.name} is told to score people that it does not have; refused")
            self.rows, self.done = rows, True
            self.people = _checksum(self.people.encode(), places)
            return ()
        raise ProtocolError(f"{self.name} takes no {message.kind!r} at this point")


def _checksum(before: bytes, numbers: Integers) -> str:
    return hashlib.blake2b(before + b" " + np.ascontiguousarray(numbers, dtype="<i8").tobytes()).hexdigest()
