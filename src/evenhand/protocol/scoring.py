"""Score common rows: every party sends its part of the scores, and the server sums them.

This happens after training, so that the label holder can measure the model, also on held-out rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array
from evenhand.errors import ProtocolError
from evenhand.protocol.asking import Answers
from evenhand.protocol.disclosure import PARTY_TO_SERVER, SERVER_TO_PARTIES, Coverage, Direction
from evenhand.protocol.messages import Field, Message, Schema, Vocabulary
from evenhand.protocol.roles import SERVER, Role, Sends

PARTIAL_SCORES = Schema(
    "partial-scores",
    {"scores": Field("f8", ("scores",))},
    direction=PARTY_TO_SERVER,
    reveals=(
        "To the server: the contribution of the party's columns to the score of each common row, held-out rows "
        "included; with more than two classes, to the score of each class. Rows with equal columns have equal scores. "
        "At protection none it is sent as it is. At every other level it is sent behind masks, and the server learns "
        "the sum over the passive parties; with a single passive party, the sum is its own contribution."
    ),
    coverage=Coverage(summed=True),
)
SIDES = Schema(
    "sides",
    {"sides": Field("u1", (None, None))},
    direction=Direction("party", "label holder"),
    reveals=(
        "To the label holder, if trees cross parties: for each of the party's kept splits, the side of each "
        "common row, held-out rows included. Neither column nor threshold is named."
    ),
)
ACROSS_SCORES = Schema(
    "across-scores",
    {"scores": Field("f8", ("rows",))},
    direction=Direction("label holder", "server"),
    reveals=(
        "To the server: the contribution of trees that cross parties to the score of each common row, "
        "held-out rows included."
    ),
)
SCORED = Schema(
    "scored", {"rows": Field("i8")}, direction=SERVER_TO_PARTIES, reveals="That the server has all parties' scores."
)
VOCABULARY = Vocabulary(PARTIAL_SCORES, SIDES, ACROSS_SCORES, SCORED, title="After training: scoring")


class ScoreServer(Role):
    """Sum the parties' scores.

    Parameters
    ----------
    outputs
        Scores of a row: one, or one for each of three classes and more.
    across
        The party that sends the scores of trees that cross parties; None if there are none.

    Attributes
    ----------
    scores
        The sum, once all parties have answered: (rows,), or (outputs, rows) with more than one output.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"answers": Answers}

    def __init__(self, parties: Sequence[str], n_rows: int, across: str | None = None, outputs: int = 1) -> None:
        super().__init__(SERVER, {"rows": n_rows, "scores": outputs * n_rows})
        self._outputs = outputs
        self.parties = tuple(parties)
        self._wanted = {PARTIAL_SCORES.kind: self.parties} | ({ACROSS_SCORES.kind: (across,)} if across else {})
        self.answers = Answers()

    def handle(self, message: Message) -> Sends:
        if self.done or message.sender not in self._wanted.get(message.kind, ()):
            raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender!r} at this point")
        self.answers.add(message)
        if not all(self.answers.complete([kind], senders) for kind, senders in self._wanted.items()):
            return ()
        self.done = True
        return [SCORED.message(SERVER, name, rows=self.sizes["rows"]) for name in self.parties]

    @property
    def scores(self) -> Array:
        bodies = self.answers.of(PARTIAL_SCORES.kind)
        # Summed in the order of the terms, as everywhere, so that bits agree.
        total: Array = np.zeros(self.sizes["scores"])
        for name in self.parties:
            total += bodies[name]["scores"]
        for body in self.answers.of(ACROSS_SCORES.kind).values():
            total += body["scores"]
        return total if self._outputs == 1 else total.reshape(self._outputs, -1)


Sides: TypeAlias = npt.NDArray[np.uint8]
"""(rows, splits): 1 where a row goes to the right of a split."""


class ScoreParty(Role):
    """Send the party's part of the scores.

    Parameters
    ----------
    scores
        (rows,), or (outputs, rows) with more than one output.
    sides
        Sides of the party's splits, if trees cross parties.
    holder
        The party that knows the structure of these trees.
    across
        At the holder: returns the trees' scores from all parties' sides by name.
    others
        At the holder: parties that send it their sides.
    """

    vocabulary = VOCABULARY
    state_fields: ClassVar = {"answers": Answers}

    def __init__(
        self,
        name: str,
        scores: Array,
        sides: Sides | None = None,
        holder: str = "",
        across: Callable[[Mapping[str, Sides]], Array] | None = None,
        others: Sequence[str] = (),
    ) -> None:
        super().__init__(name, {"rows": scores.shape[-1], "scores": scores.size})
        self._scores = scores.ravel()
        self._sides = sides
        self._holder = holder
        self._across = across
        self._others = tuple(others)
        self.answers = Answers()

    def check(self, message: Message) -> None:
        super().check(message)
        known = {SCORED.kind: (SERVER,), SIDES.kind: self._others}.get(message.kind, ())
        if message.sender not in known or self.done:
            raise ProtocolError(f"{self.name} takes no {message.kind!r} from {message.sender!r} at this point")
        if message.kind == SIDES.kind and (
            len(message["sides"]) != self.sizes["rows"] or message["sides"].max(initial=0) > 1
        ):
            raise ProtocolError(f"{self.name}: the sides that {message.sender} says are not those of its rows; refused")

    def start(self) -> Sends:
        sends = [PARTIAL_SCORES.message(self.name, SERVER, scores=self._scores)]
        if self._sides is not None and self.name != self._holder:
            sends.append(SIDES.message(self.name, self._holder, sides=self._sides))
        return [*sends, *self._told()]

    def handle(self, message: Message) -> Sends:
        if message.kind == SIDES.kind:
            self.answers.add(message)
            return self._told()
        self.done = True
        return ()

    def _told(self) -> Sends:
        """Return the scores of trees across parties, once all sides have arrived."""
        if self._across is None or not self.answers.complete([SIDES.kind], self._others):
            return ()
        assert self._sides is not None
        sides = {self.name: self._sides} | {name: body["sides"] for name, body in self.answers.of(SIDES.kind).items()}
        return [ACROSS_SCORES.message(self.name, SERVER, scores=self._across(sides))]
