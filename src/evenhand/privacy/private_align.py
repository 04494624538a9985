"""Align rows by private set intersection: the server sees no list of ids.

The protocol blinds ids commutatively on the group of ed25519 (PyNaCl). Party k multiplies points by a secret a_k, and
a_1 a_2 … a_K · H(id) does not depend on the order. Sets pass round a ring of parties, one key at each stop, and
arrive at the server under all keys. Equal points are equal ids, and no one without all keys can test guesses.

It protects against curious parties that follow the protocol. The messages say what the server can conclude.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from nacl import bindings

from evenhand.arrays import Integers
from evenhand.errors import DataError, ProtocolError, RunError
from evenhand.protocol.align import (
    COMMON_ROWS,
    UNMATCHED,
    SentIds,
    check_places,
    held_places,
    id_kind,
    id_sums,
    id_text,
    too_few,
    too_few_shared,
)
from evenhand.protocol.disclosure import HOLDER_TO_SERVER, PARTY_TO_PARTY, PARTY_TO_SERVER
from evenhand.protocol.messages import TEXT, Field, Message, Schema, Vocabulary, as_bytes
from evenhand.protocol.roles import SERVER, Role, Sends

BLINDED_IDS = Schema(
    "blinded-ids",
    {"owner": TEXT, "passes": Field("i8"), "points": Field("u1", (None, 32))},
    direction=PARTY_TO_PARTY,
    reveals=(
        "To the next party: the owner's number of rows. Points are blinded with the key of each party that they have "
        "passed, the owner's first. Without all of these keys, they reveal nothing about ids."
    ),
)
FULLY_BLINDED_IDS = Schema(
    "fully-blinded-ids",
    {"owner": TEXT, "points": Field("u1", (None, 32))},
    direction=PARTY_TO_SERVER,
    reveals=(
        "To the server: the owner's number of rows, and which of them other parties have too, without their ids. The "
        "server knows the label holder's ids, so it learns which of these people each other party has."
    ),
)
LABELLED_IDS = Schema(
    "labelled-ids",
    {"kind": TEXT, "sums": Field("i8", (None, 2))},
    direction=HOLDER_TO_SERVER,
    reveals=(
        "To the server, from the label holder: a hash of each of its ids, or the id itself if it is a number. The "
        "server reads labels from a copy of the label holder's table, so it knows these ids; it needs the hashes to "
        "find each label by its id."
    ),
)
VOCABULARY = Vocabulary(
    BLINDED_IDS,
    FULLY_BLINDED_IDS,
    LABELLED_IDS,
    COMMON_ROWS,
    UNMATCHED,
    title="Before training: aligning rows privately",
)
_DOMAIN: Final = b"evenhand private align 1 "
_FEWEST_IDS: Final = 1000
_TIMES_OWN: Final = 10
"""Default limit of another party's ids: so many, or so many times a party's own."""
Points = npt.NDArray[np.uint8]


class BlindingParty(Role):
    """A party that blinds ids with a secret key: its own and those of others.

    Parameters
    ----------
    key
        The secret, 32 bytes; drawn by default.
    most_ids
        Most ids that another party's set may have. A set of all possible ids would find all of this party's people. By
        default ten times this party's own number, and at least 1,000.
    fewest_ids
        Fewest ids that another party's set may have: a set of a few people asks whether these are in the table.

    Attributes
    ----------
    places
        The rows to take, in order, −1 for rows that the party lacks; None if there was a problem.
    """

    def __init__(
        self, name: str, ids: pd.Index, *, key: bytes | None = None, most_ids: int | None = None, fewest_ids: int = 0
    ) -> None:
        super().__init__(name, {})
        if ids.has_duplicates:
            raise DataError(f"{name} has an id more than once")
        self._ids = ids
        self._key = key or bindings.crypto_core_ed25519_scalar_reduce(secrets.token_bytes(64))
        self._most_ids = max(_FEWEST_IDS, _TIMES_OWN * len(ids)) if most_ids is None else most_ids
        self._fewest_ids = fewest_ids
        self.places: Integers | None = None
        self.problem = ""
        self.unmatched: Integers = np.zeros(0, dtype=np.int64)

    def _shuffled(self) -> Integers:
        """Return an order to send ids in: that of a sorted table would reveal much."""
        return np.random.default_rng(secrets.randbits(128)).permutation(len(self._ids))

    def _own(self, order: Integers) -> Points:
        """Return the party's ids, blinded."""
        return self._multiplied(points_of(self._ids[order]))

    def _blinded(self, owner: str, points: Points) -> Points:
        """Return another party's points, blinded once more; refuse too many and too few."""
        if (count := len(points)) > self._most_ids:
            raise RunError(
                f"{owner} has {count:,} ids, and {self.name} compares its {len(self._ids):,} with at most "
                f"{self._most_ids:,}: a list of many guesses would find its people. If {owner} has so many, set "
                "most_ids in [policy]"
            )
        if count < self._fewest_ids:
            raise RunError(
                f"{owner} has {count:,} ids, and {self.name} compares its own with {self._fewest_ids:,} or more "
                "(least_common in its [policy]): a short list would ask for single people"
            )
        return self._multiplied(points)

    def _multiplied(self, points: Points) -> Points:
        found = times(self._key, points)
        self.effort += 1e5 * len(points)
        return found


class PrivateAlignParty(BlindingParty):
    """Blinds its own ids and those that come by, and is told which of its rows to take.

    Parameters
    ----------
    ring
        All parties, in the order in which sets are passed on.
    holds_labels
        Whether this party holds the labels. The server reads them from a copy of its table, knows its ids, and is sent
        sums of them, so that it finds each label by its id.
    lacking
        Whether the common rows may include some that the party lacks (all rows of the label holder are kept).
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {
        "places": Integers | None,
        "problem": str,
        "unmatched": Integers,
        "_passed": list[str],
        "_order": Integers,
        "_key": bytes,
    }

    def __init__(
        self,
        name: str,
        ids: pd.Index,
        ring: Sequence[str],
        *,
        holds_labels: bool = False,
        lacking: bool = False,
        **blinding: Any,
    ) -> None:
        super().__init__(name, ids, **blinding)
        self.ring = tuple(ring)
        self._holds_labels, self._lacking = holds_labels, lacking
        self._order = self._shuffled()
        self._passed: list[str] = []

    def start(self) -> Sends:
        return [*self._labelled(), self._onwards(self.name, 1, self._own(self._order))]

    def _labelled(self) -> Sends:
        """Return checksums of the label holder's ids in the order of the points it sends."""
        if not self._holds_labels:
            return ()
        kind, sums = id_sums(self._ids[self._order])
        return [LABELLED_IDS.message(self.name, SERVER, kind=as_bytes(kind), sums=sums)]

    def handle(self, message: Message) -> Sends:
        if message.kind in (COMMON_ROWS.kind, UNMATCHED.kind) and message.sender == SERVER and not self.done:
            return self._told(message)
        place = self.ring.index(self.name)
        if message.kind != BLINDED_IDS.kind or message.sender != self.ring[place - 1]:
            raise ProtocolError(f"{self.name} takes no {message.kind!r} from {message.sender!r} at this point")
        owner, passes = message.text("owner"), message.integer("passes")
        if not 0 < passes < len(self.ring) or owner != self.ring[place - passes] or owner in self._passed:
            raise ProtocolError(f"{self.name} was passed ids of {owner!r} out of turn; they are refused")
        points = self._blinded(owner, message["points"])
        self._passed.append(owner)
        return [self._onwards(owner, passes + 1, points)]

    def _onwards(self, owner: str, passes: int, points: Points) -> Message:
        if passes == len(self.ring):
            return FULLY_BLINDED_IDS.message(self.name, SERVER, owner=as_bytes(owner), points=points)
        to = self.ring[(self.ring.index(self.name) + 1) % len(self.ring)]
        return BLINDED_IDS.message(self.name, to, owner=as_bytes(owner), passes=passes, points=points)

    def _told(self, message: Message) -> Sends:
        places = message["places"]
        check_places(self.name, held_places(places) if self._lacking else places, len(self._ids))
        if message.kind == COMMON_ROWS.kind:
            self.places = self._order[places]
            self.places[places < 0] = -1
        else:
            self.problem, self.unmatched = message.text("reason"), self._order[places]
        self.done = True
        return ()


class PrivateAlignServer(Role):
    """Find the rows that all parties have, in the order of the label holder's sums of their ids.

    Every party knows this order for its own ids, so it reveals nothing more, and it is the same in every run. Without a
    label holder, the order is that of the points, which depends on the secrets.

    Parameters
    ----------
    least
        Minimum number of common rows, or with `left` of rows that each party shares with the label holder; with fewer,
        no party is told any.
    holder
        The label holder, which sends checksums of its ids as well; None if there is none.
    left
        Whether all rows of the label holder are kept.

    Attributes
    ----------
    problem
        Why rows cannot be aligned; empty if they can.
    places
        For each party the positions of the common rows among those it sent, in order, −1 for rows that it lacks.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"points": dict[str, Points], "kind": str, "sums": Integers | None}

    def __init__(
        self, parties: Sequence[str], least: int = 1, holder: str | None = None, *, left: bool = False
    ) -> None:
        super().__init__(SERVER, {})
        self.parties = tuple(parties)
        self.least = least
        self.holder = holder
        self.left = left
        self.kind = ""
        self.sums: Integers | None = None
        self.points: dict[str, Points] = {}
        self.problem = ""
        self.places: dict[str, Integers] = {}

    def handle(self, message: Message) -> Sends:
        if message.kind == LABELLED_IDS.kind and message.sender == self.holder and self.sums is None:
            self._check_count(message["sums"], self.points.get(message.sender))
            self.kind, self.sums = message.text("kind"), message["sums"]
            return self._if_complete()
        owner = message.text("owner") if message.kind == FULLY_BLINDED_IDS.kind else ""
        if owner not in self.parties or owner in self.points:
            raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender!r} at this point")
        # The party before the owner in the ring was the last to blind its set.
        if message.sender != self.parties[self.parties.index(owner) - 1]:
            raise ProtocolError(f"{message.sender} brings ids of {owner!r}, which are another's to bring; refused")
        self._check_count(message["points"], self.sums if owner == self.holder else None)
        self.points[owner] = message["points"]
        return self._if_complete()

    def _check_count(self, rows: npt.NDArray[Any], others: npt.NDArray[Any] | None) -> None:
        """Refuse sums and points of the label holder's ids that are not equally many."""
        if others is not None and len(rows) != len(others):
            raise ProtocolError(f"{self.holder} sends sums and points of different numbers of ids; they are refused")

    def sent_by(self, name: str) -> SentIds:
        """Return the ids of the party that holds the labels, once rows are aligned."""
        assert name == self.holder
        assert self.sums is not None
        return SentIds(self.kind, self.sums, self.places[name])

    def _if_complete(self) -> Sends:
        """Answer everybody once everything has arrived."""
        if len(self.points) < len(self.parties) or (self.holder is not None and self.sums is None):
            return ()
        self.done = True
        return self._answer()

    def _answer(self) -> Sends:
        found = {name: pd.Index(whole(self.points[name])) for name in self.parties}
        self.problem = "; ".join(
            f"{name} has an id more than once" for name, one in found.items() if one.has_duplicates
        )
        places: dict[str, Integers] = {}
        if not self.problem and self.left:
            assert self.holder is not None
            common = self._ordered(found[self.holder], found)
            places = {name: one.get_indexer(common) for name, one in found.items()}
            self.problem = too_few_shared(places, self.holder, self.least)
        elif not self.problem:
            common = found[self.parties[0]]
            for one in found.values():
                common = common[one.get_indexer(common) >= 0]
            common = self._ordered(common, found)
            places = {name: one.get_indexer(common) for name, one in found.items()}
            self.problem = too_few(len(common), self.least)
        if self.problem:
            reason, none = as_bytes(self.problem), np.zeros(0, dtype=np.int64)
            return [UNMATCHED.message(SERVER, name, reason=reason, places=none) for name in self.parties]
        self.places = places
        return [COMMON_ROWS.message(SERVER, name, places=self.places[name]) for name in self.parties]

    def _ordered(self, common: pd.Index, found: dict[str, pd.Index]) -> pd.Index:
        if self.holder is None or self.sums is None:
            return common.sort_values()
        sums = self.sums[found[self.holder].get_indexer(common)]
        return common[np.lexsort((sums[:, 1], sums[:, 0]))]

    def restored(self) -> None:
        self.problem, self.places = "", {}
        if self.done:
            self._answer()


def points_of(ids: pd.Index) -> Points:
    """Map each id to a point with unknown discrete logarithm (H)."""
    kind = id_kind(ids)
    found = bytearray()
    for one in ids:
        try:
            text = f"{kind} {id_text(one)}".encode()
        except UnicodeEncodeError as error:
            raise DataError(f"an id cannot be written as UTF-8 ({error.reason}); correct it in the table") from error
        digest = hashlib.sha512(_DOMAIN + text).digest()
        # The sum of two maps: one alone reaches only about half of the points.
        halves = (bindings.crypto_core_ed25519_from_uniform(half) for half in (digest[:32], digest[32:]))
        found += bindings.crypto_core_ed25519_add(*halves)
    return np.frombuffer(bytes(found), dtype=np.uint8).reshape(-1, 32)


def times(key: bytes, points: Points) -> Points:
    multiply = bindings.crypto_scalarmult_ed25519_noclamp
    try:
        blinded = b"".join(multiply(key, point.tobytes()) for point in points)
    except Exception as error:
        # The library refuses points of small order and invalid bytes.
        raise ProtocolError("blinded ids are not points of the group; they are refused") from error
    return np.frombuffer(blinded, dtype=np.uint8).reshape(-1, 32)


def whole(points: Points) -> list[bytes]:
    return [point.tobytes() for point in points]
