"""Align to all rows of the label holder so that only each party itself learns which of them it has.

Each party compares its ids with those of the label holder by Diffie-Hellman private set intersection on the group of
ed25519 (Meadows, 1986; Huberman, Franklin and Hogg, 1999), with the result on its own side. With secrets a of the
holder and b of the party:

    holder → party   a · H(id) for all rows of the holder, in the common order
    party → holder   b · H(id) for all rows of the party, shuffled
    holder → party   a · b · H(id), in the order in which they came
    the party multiplies the first list by b, and looks its entries up in the last

Neither the server nor the label holder learns who has which row. It protects against curious parties that follow the
protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from evenhand.arrays import Integers
from evenhand.errors import ProtocolError
from evenhand.privacy.private_align import LABELLED_IDS, BlindingParty, Points, whole
from evenhand.protocol.align import SentIds, id_sums
from evenhand.protocol.asking import Answers
from evenhand.protocol.disclosure import PARTY_TO_SERVER, SERVER_TO_PARTIES, Direction
from evenhand.protocol.messages import TEXT, Field, Message, Schema, Vocabulary, as_bytes
from evenhand.protocol.roles import SERVER, Role, Sends

HOLDERS_IDS = Schema(
    "holders-blinded-ids",
    {"points": Field("u1", (None, 32))},
    direction=Direction("label holder", "party"),
    reveals=(
        "To each other party: how many rows the label holder has, and with the next message which of them the party "
        "has too, and where in the common order. Points are blinded with the label holder's key."
    ),
)
OWN_IDS = Schema(
    "own-blinded-ids",
    {"points": Field("u1", (None, 32))},
    direction=Direction("party", "label holder"),
    reveals="To the label holder: the party's number of rows. Points are blinded with the party's key.",
)
TWICE_BLINDED_IDS = Schema(
    "twice-blinded-ids",
    {"points": Field("u1", (None, 32))},
    direction=Direction("label holder", "party"),
    reveals=(
        "To the party that sent these points: with the label holder's own points, which of its rows the label holder "
        "has. Nobody else learns that."
    ),
)
ENOUGH = Schema(
    "enough-rows",
    {"enough": Field("i8")},
    direction=PARTY_TO_SERVER,
    reveals="Whether the party has at least least_common of the label holder's rows.",
)
ALIGNED = Schema(
    "aligned",
    {"reason": TEXT},
    direction=SERVER_TO_PARTIES,
    reveals="Whether every party has enough of the label holder's rows, and who has not.",
)
VOCABULARY = Vocabulary(
    LABELLED_IDS,
    HOLDERS_IDS,
    OWN_IDS,
    TWICE_BLINDED_IDS,
    ENOUGH,
    ALIGNED,
    title="Before training: aligning rows with hidden presence",
)


class HiddenAlignHolder(BlindingParty):
    """The label holder: blind its own ids for all others, and theirs once more. All its rows are kept.

    Parameters
    ----------
    others
        The other parties.
    key, most_ids
        As in `PrivateAlignParty`.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"places": Integers | None, "problem": str, "_key": bytes, "_answered": list[str]}

    def __init__(self, name: str, ids: pd.Index, others: Sequence[str], **blinding: Any) -> None:
        super().__init__(name, ids, **blinding)
        self._others = tuple(others)
        self._answered: list[str] = []
        kind, sums = id_sums(ids)
        self._kind = kind
        # Every party knows the order of checksums for its own ids, so it reveals nothing of the table's order.
        self._order = np.lexsort((sums[:, 1], sums[:, 0]))
        self._sums = sums[self._order]

    def start(self) -> Sends:
        points = self._own(self._order)
        return [
            LABELLED_IDS.message(self.name, SERVER, kind=as_bytes(self._kind), sums=self._sums),
            *(HOLDERS_IDS.message(self.name, other, points=points) for other in self._others),
        ]

    def handle(self, message: Message) -> Sends:
        sender = message.sender
        if message.kind == ALIGNED.kind and sender == SERVER and not self.done:
            self.problem, self.done = message.text("reason"), True
            self.places = None if self.problem else self._order
            return ()
        if message.kind != OWN_IDS.kind or sender not in self._others or sender in self._answered:
            raise ProtocolError(f"{self.name} takes no {message.kind!r} from {sender!r} at this point")
        self._answered.append(sender)
        return [TWICE_BLINDED_IDS.message(self.name, sender, points=self._blinded(sender, message["points"]))]


class HiddenAlignParty(BlindingParty):
    """Another party: find which of the label holder's rows it has. It tells only whether they are enough.

    Parameters
    ----------
    holder
        The label holder.
    least
        Minimum number of shared rows.
    key, most_ids
        As in `PrivateAlignParty`.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {
        "places": Integers | None,
        "problem": str,
        "_order": Integers,
        "_key": bytes,
        "_wanted": Points | None,
        "_known": Points | None,
    }

    def __init__(self, name: str, ids: pd.Index, holder: str, least: int = 1, **blinding: Any) -> None:
        super().__init__(name, ids, **blinding)
        self._holder, self._least = holder, least
        self._order = self._shuffled()
        self._wanted: Points | None = None
        self._known: Points | None = None

    def start(self) -> Sends:
        return [OWN_IDS.message(self.name, self._holder, points=self._own(self._order))]

    def handle(self, message: Message) -> Sends:
        if message.kind == ALIGNED.kind and message.sender == SERVER and self.places is not None and not self.done:
            self.problem, self.done = message.text("reason"), True
            self.places = None if self.problem else self.places
            return ()
        of_holder = message.sender == self._holder and self.places is None
        if of_holder and message.kind == HOLDERS_IDS.kind and self._wanted is None:
            self._wanted = self._blinded(self._holder, message["points"])
        elif of_holder and message.kind == TWICE_BLINDED_IDS.kind and self._known is None:
            if len(message["points"]) != len(self._ids):
                raise ProtocolError(f"{self._holder} returns other ids than {self.name} has sent; they are refused")
            self._known = message["points"]
        else:
            raise ProtocolError(f"{self.name} takes no {message.kind!r} from {message.sender!r} at this point")
        return self._found()

    def _found(self) -> Sends:
        if self._wanted is None or self._known is None:
            return ()
        known, wanted = pd.Index(whole(self._known)), pd.Index(whole(self._wanted))
        if known.has_duplicates:
            raise ProtocolError(f"{self._holder} returns an id of {self.name} twice; it is refused")
        # One person many times would count as enough rows, and the answer would tell whether the party has the person.
        if wanted.has_duplicates:
            raise ProtocolError(f"{self._holder} has sent one of its ids more than once; it is refused")
        found = known.get_indexer(wanted)
        self.places = np.where(found >= 0, self._order[found], -1)
        self._wanted = self._known = np.zeros((0, 32), dtype=np.uint8)
        return [ENOUGH.message(self.name, SERVER, enough=int((self.places >= 0).sum() >= self._least))]


class HiddenAlignServer(Role):
    """Wait until every party has found its rows; end the run if one has too few.

    Attributes
    ----------
    problem
        Why rows cannot be aligned; empty if they can.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"answers": Answers}

    def __init__(self, parties: Sequence[str], holder: str, least: int = 1) -> None:
        super().__init__(SERVER, {})
        self.parties, self.holder, self.least = tuple(parties), holder, least
        self.answers = Answers()
        self.problem = ""

    def handle(self, message: Message) -> Sends:
        expected = LABELLED_IDS if message.sender == self.holder else ENOUGH
        if message.kind != expected.kind or message.sender not in self.parties or self.done:
            raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender!r} at this point")
        self.answers.add(message)
        others = [name for name in self.parties if name != self.holder]
        enough = self.answers.of(ENOUGH.kind)
        if set(enough) != set(others) or self.holder not in self.answers.of(LABELLED_IDS.kind):
            return ()
        self.done = True
        self._judge()
        return [ALIGNED.message(SERVER, name, reason=as_bytes(self.problem)) for name in self.parties]

    def _judge(self) -> None:
        enough = self.answers.of(ENOUGH.kind)
        few = [name for name in self.parties if name in enough and not int(enough[name]["enough"])]
        what = f"fewer than {self.least:,} ids" if self.least > 1 else "no id"
        verb = "are" if self.least > 1 else "is"
        self.problem = f"{what} of {self.holder} {verb} at {', '.join(few)}" if few else ""

    def restored(self) -> None:
        if self.done:
            self._judge()

    def sent_by(self, name: str) -> SentIds:
        """Return the ids of the label holder, once rows are aligned."""
        assert name == self.holder
        told = self.answers.of(LABELLED_IDS.kind)[name]
        return SentIds(bytes(told["kind"]).decode(), told["sums"], np.arange(len(told["sums"])))
