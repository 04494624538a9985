"""Scoring: every party says its part of the scores of common rows, and whoever asked has the sum.

After training, so that the holder of the labels can measure the model, on rows that were held out too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evenhand.arrays import Array
from evenhand.errors import ProtocolError
from evenhand.protocol.answers import Answers
from evenhand.protocol.messages import Field, Message, Schema, Vocabulary
from evenhand.protocol.roles import SERVER, Follower, Role, Sends, State

PARTIAL_SCORES = Schema(
    "partial-scores",
    {"scores": Field("f8", ("rows",))},
    reveals=(
        "To the server: what the party's columns add to the score of each common row, held-out rows too. One number a "
        "row; as many such numbers as the party has columns, each under other weights, would tell its rows."
    ),
)
SCORED = Schema("scored", {"rows": Field("i8")}, reveals="That the server has everybody's scores.")
VOCABULARY = Vocabulary(PARTIAL_SCORES, SCORED)


class ScoreServer(Role):
    """Sums what the parties say.

    Attributes
    ----------
    scores
        The sum, once everybody has answered.
    """

    vocabulary = VOCABULARY

    def __init__(self, parties: Sequence[str], n_rows: int) -> None:
        super().__init__(SERVER, {"rows": n_rows})
        self.parties = tuple(parties)
        self.answers = Answers()

    def handle(self, message: Message) -> Sends:
        if message.kind != PARTIAL_SCORES.kind or message.sender not in self.parties or self.done:
            raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender!r} at this point")
        self.answers.add(message)
        if not self.answers.complete([PARTIAL_SCORES.kind], self.parties):
            return ()
        self.done = True
        return [SCORED.message(SERVER, name, rows=self.sizes["rows"]) for name in self.parties]

    @property
    def scores(self) -> Array:
        bodies = self.answers.of(PARTIAL_SCORES.kind)
        # In the order of the terms, in which everybody sums.
        total: Array = np.sum([bodies[name]["scores"] for name in self.parties], axis=0)
        return total

    def snapshot(self) -> State:
        return super().snapshot() | self.answers.snapshot()

    def restore(self, state: State) -> None:
        super().restore(state)
        self.answers.restore(state)


class ScoreParty(Follower):
    """Says its part of the scores."""

    vocabulary = VOCABULARY

    def __init__(self, name: str, scores: Array) -> None:
        super().__init__(name, {"rows": len(scores)})
        self._scores = scores

    def start(self) -> Sends:
        return [PARTIAL_SCORES.message(self.name, SERVER, scores=self._scores)]

    def handle(self, message: Message) -> Sends:
        if message.kind != SCORED.kind or self.done:
            raise ProtocolError(f"{self.name} takes no {message.kind!r} at this point")
        self.done = True
        return ()
