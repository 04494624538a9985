"""Scores of rows by encryption: the server encrypts its share of each party's weights (`privacy/lattice.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from evenhand.arrays import Matrix
from evenhand.errors import ProtocolError
from evenhand.models.weight_share import WeightShare
from evenhand.privacy import lattice
from evenhand.privacy.key_exchange import Session
from evenhand.privacy.lattice import EncryptedQuestion, Key, ProductPacking
from evenhand.privacy.pairwise import Words
from evenhand.protocol.messages import Message, Vocabulary
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.scoring import SCORED, ScoreServer
from evenhand.vertical.protected.messages import (
    ENCRYPTED_SCORES,
    ENCRYPTED_WEIGHTS,
    SCORE_CIPHERTEXTS,
    SHARED_SCORES,
)
from evenhand.vertical.protected.scoring import SharedScoreParty, SharedScoreServer


class EncryptedScoreParty(SharedScoreParty):
    """Multiplies the server's encrypted share of its weights with the rows to score, once."""

    state_fields: ClassVar = {"_answered": bool}
    vocabulary = Vocabulary(*SCORE_CIPHERTEXTS, SHARED_SCORES, SCORED)

    def __init__(self, name: str, share: WeightShare, matrix: Matrix, session: Session, context: str) -> None:
        super().__init__(name, share, matrix)
        self._context, self._secret = f"{context} {session.tag} {name}", session.secret(f"covers {context}")
        self._answered = False

    def handle(self, message: Message) -> Sends:
        if message.kind != ENCRYPTED_WEIGHTS.kind or message.sender != SERVER or self._answered:
            return super().handle(message)
        columns, rows = self.words.shape
        packing = ProductPacking.of(rows, columns)
        asked = EncryptedQuestion.read(message, packing.chunks, self._context)
        self._answered = True
        matrix = packing.matrix(self.words.T)
        c0, c1, share = lattice.cover(packing, lattice.times_both(matrix, asked.vectors), asked.public, self._secret)
        self.effort += float(2 * matrix.size)
        return [ENCRYPTED_SCORES.message(self.name, SERVER, **lattice.answered([(c0, c1)])), self.answer(share)]


class EncryptedScoreServer(SharedScoreServer):
    """Encrypts its shares of the weights, under one key for each party and exchange."""

    state_fields: ClassVar = {"_found": dict[str, Words]}

    def __init__(
        self, inner: ScoreServer, shares: Mapping[str, WeightShare], together: str, session: Session, context: str
    ) -> None:
        super().__init__(inner, shares, together, SCORE_CIPHERTEXTS)
        self._context = f"{context} {session.tag}"
        self._keys = {name: Key(session.secret(f"{context} {name}")) for name in shares}
        self._found: dict[str, Words] = {}

    def _packing(self, name: str) -> ProductPacking:
        return ProductPacking.of(self.inner.sizes["rows"], self.shares[name].columns)

    def start(self) -> Sends:
        asked = []
        for name, one in self.shares.items():
            words = self._packing(name).lay_vector(one.words)
            body = EncryptedQuestion.asked(self._keys[name], words, f"{self._context} {name}")
            asked.append(ENCRYPTED_WEIGHTS.message(SERVER, name, **body))
        return [*asked, *super().start()]

    def take(self, message: Message) -> Sends:
        sender = message.sender
        if message.kind != ENCRYPTED_SCORES.kind:
            return super().take(message)
        if sender not in self.shares or sender in self._found:
            raise ProtocolError(f"the server takes no {message.kind!r} from {sender!r} at this point")
        packing = self._packing(sender)
        ((c0, c1),) = lattice.read_answers(message, [packing])
        self._found[sender] = self._keys[sender].share(packing, c0, c1)
        if len(self._found) == len(self.shares):
            self.product = np.sum(list(self._found.values()), axis=0, dtype=np.uint64)
        return self.open()
