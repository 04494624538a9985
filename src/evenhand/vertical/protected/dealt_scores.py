"""Scores of rows with a dealer: one more triple for each party, as in training (`dealing.py`).

The dealer must be online. Every exchange has its own seeds, so the random words are used once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from evenhand.arrays import Matrix
from evenhand.errors import ProtocolError
from evenhand.models.weight_share import WeightShare
from evenhand.privacy.fixed_products import MOST_NUMBERS, combine
from evenhand.privacy.key_exchange import Session
from evenhand.privacy.pairwise import Words, stream
from evenhand.protocol.messages import Message, Vocabulary
from evenhand.protocol.roles import SERVER, Role, Sends
from evenhand.protocol.scoring import SCORED, ScoreServer
from evenhand.vertical.protected.messages import (
    HIDDEN_ROWS,
    HIDDEN_WEIGHTS,
    SCORE_CORRECTIONS,
    SCORE_TRIPLE,
    SCORE_TRIPLES,
    SHARED_SCORES,
)
from evenhand.vertical.protected.scoring import SharedScoreParty, SharedScoreServer
from evenhand.vertical.protected.sharing import MOST_COLUMNS


def _columns(seed: bytes, columns: int, rows: int) -> Words:
    """(m, n): what hides the columns of the rows."""
    return stream(seed, "columns", columns * rows).reshape(columns, rows)


def _weights(seed: bytes, name: str, columns: int) -> Words:
    """What hides the server's share of one party's weights."""
    return stream(seed, f"weights {name}", columns)


class DealtScoreParty(SharedScoreParty):
    """Sends the rows to score hidden, and receives the server's share of its weights hidden."""

    state_fields: ClassVar = {"_answered": bool}
    vocabulary = Vocabulary(*SCORE_TRIPLES, SHARED_SCORES, SCORED)

    def __init__(
        self, name: str, share: WeightShare, matrix: Matrix, dealer: str, session: Session, context: str
    ) -> None:
        super().__init__(name, share, matrix)
        self._dealer, self._seed = dealer, session.seed(dealer, context)
        self._answered = False

    def start(self) -> Sends:
        columns, rows = self.words.shape
        hidden = self.words - _columns(self._seed, columns, rows)
        return [
            SCORE_TRIPLE.message(self.name, self._dealer, columns=columns, rows=rows),
            HIDDEN_ROWS.message(self.name, SERVER, words=hidden.view(np.int64)),
        ]

    def handle(self, message: Message) -> Sends:
        if message.kind == HIDDEN_WEIGHTS.kind and message.sender == SERVER and not self._answered:
            self._answered = True
            product = combine(message["words"].view(np.uint64)[None], self.words)[0]
            product += stream(self._seed, "scores", self.sizes["rows"])
            return [self.answer(product)]
        return super().handle(message)


class DealtScoreServer(SharedScoreServer):
    """Sends its shares of the weights hidden, and receives the rows to score hidden."""

    state_fields: ClassVar = {"_rows": dict[str, Words], "_corrections": Words | None}

    def __init__(
        self,
        inner: ScoreServer,
        shares: Mapping[str, WeightShare],
        together: str,
        dealer: str,
        session: Session,
        context: str,
    ) -> None:
        super().__init__(inner, shares, together, SCORE_TRIPLES)
        self._dealer, self._seed = dealer, session.seed(dealer, context)
        self._rows: dict[str, Words] = {}
        self._corrections: Words | None = None

    def start(self) -> Sends:
        hidden = [
            HIDDEN_WEIGHTS.message(SERVER, name, words=(one.words - self._mask(name)).view(np.int64))
            for name, one in self.shares.items()
        ]
        return [*hidden, *super().start()]

    def _mask(self, name: str) -> Words:
        return _weights(self._seed, name, self.shares[name].columns)

    def take(self, message: Message) -> Sends:
        sender = message.sender
        if message.kind == HIDDEN_ROWS.kind and sender in self.shares and sender not in self._rows:
            if len(message["words"]) != self.shares[sender].columns:
                raise ProtocolError(f"{sender} scores rows of another number of columns than it trained on; refused")
            self._rows[sender] = combine(self._mask(sender)[None], message["words"].view(np.uint64))[0]
            return self._multiplied()
        if message.kind == SCORE_CORRECTIONS.kind and sender == self._dealer and self._corrections is None:
            self._corrections = message["words"].view(np.uint64)
            return self._multiplied()
        return super().take(message)

    def _multiplied(self) -> Sends:
        if self._corrections is None or len(self._rows) < len(self.shares):
            return ()
        self.product = np.sum([self._corrections, *self._rows.values()], axis=0, dtype=np.uint64)
        return self.open()


class ScoreDealer(Role):
    """Deals the random words of one exchange. It has no data, and learns the numbers of rows and columns."""

    vocabulary = SCORE_TRIPLES
    state_fields: ClassVar = {"_columns": dict[str, int], "_n_rows": int}

    def __init__(self, name: str, members: tuple[str, ...], session: Session, context: str) -> None:
        super().__init__(name, {})
        self.members = members
        self._seeds = {peer: session.seed(peer, context) for peer in (SERVER, *members)}
        self._columns: dict[str, int] = {}
        self._n_rows = -1

    def handle(self, message: Message) -> Sends:
        sender, rows = message.sender, message.integer("rows") if message.kind == SCORE_TRIPLE.kind else -1
        if sender not in self.members or sender in self._columns or rows < 0:
            raise ProtocolError(f"the dealer takes no {message.kind!r} from {sender!r} at this point")
        if self._n_rows not in (-1, rows):
            raise ProtocolError(f"{sender} scores {rows} rows, and others {self._n_rows}; refused")
        columns = message.integer("columns")
        if not 0 <= columns <= MOST_COLUMNS or rows * columns > MOST_NUMBERS:
            raise ProtocolError(f"{sender} scores {rows} rows of {columns} columns; the message is refused")
        self._columns[sender], self._n_rows = columns, rows
        if len(self._columns) < len(self.members):
            return ()
        total: Words = np.zeros(rows, dtype=np.uint64)
        for name, columns in self._columns.items():
            other = _weights(self._seeds[SERVER], name, columns)
            total += combine(other[None], _columns(self._seeds[name], columns, rows))[0]
            total -= stream(self._seeds[name], "scores", rows)
            self.effort += float(columns * rows)
        self.done = True
        self._seeds = {}
        return [SCORE_CORRECTIONS.message(self.name, SERVER, words=total.view(np.int64))]
