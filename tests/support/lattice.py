"""The asker of an encrypted product, with everything that it can read: its secret, its errors, the noise of answers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.privacy import lattice, rings
from evenhand.privacy.lattice import EncryptedQuestion, Key, ProductPacking
from evenhand.privacy.rings import DEGREE, MODULUS, PRIMES
from evenhand.protocol.messages import Message

_CRT = [(MODULUS // p) * pow(MODULUS // p, -1, p) for p in PRIMES]


def lifted(residues: Any) -> Any:
    """Return the whole numbers in (−q/2, q/2] of residues (4, n)."""
    total = sum(line.astype(object) * factor for line, factor in zip(residues, _CRT, strict=True)) % MODULUS
    return np.where(total > MODULUS // 2, total - MODULUS, total)


@dataclass
class Asked:
    packing: ProductPacking
    key: Key
    question: EncryptedQuestion

    def answer(self, matrix: Any) -> Any:
        """Answer as the other side does: c₀, c₁ and its share."""
        found = [lattice.times(self.packing.matrix(matrix), one) for one in self.question.vectors]
        return lattice.cover(self.packing, (found[0], found[1]), self.question.public, os.urandom(32))

    def phase(self, c0: Any, c1: Any) -> Any:
        """Return c₀ + c₁s at the places of results of the first group."""
        whole = rings.transform_back(rings.multiplied(c1, self.key._secret))[..., self.packing.places]
        return lifted(rings.added(c0, whole)[0])

    def errors(self, vector: Any) -> Any:
        """Return the errors of the first polynomial of the question, which its sender knows."""
        a, b = (one[:1] for one in self.question.vectors)
        inside = rings.transform_back(rings.added(b, rings.multiplied(a, self.key._secret)))[0]
        plain = lattice.scaled_up(self.packing.lay_vector(vector)[:1])[0]
        return lifted(rings.subtracted(inside, plain))

    def noise(self, matrix: Any, vector: Any) -> Any:
        """Return the noise of an answer that is covered by nothing."""
        found = [lattice.times(self.packing.matrix(matrix), one) for one in self.question.vectors]
        phase = self.phase(rings.transform_back(found[1])[..., self.packing.places], found[0])
        size = self.packing.lines
        product = (matrix[:size] @ vector)[None]
        return lifted(rings.subtracted(rings.residues_of(phase), lattice.scaled_up(product)[0]))

    @staticmethod
    def message(body: Any) -> Message:
        return Message("shop", "server", "encrypted-products", body)


def ask(packing: ProductPacking, vector: Any, more: Any = None) -> Asked:
    """Ask about a vector; `more` is added to the first coefficients of b, as a dishonest asker may do."""
    key = Key(os.urandom(32))
    body = EncryptedQuestion.asked(key, packing.lay_vector(vector), "test")
    question = EncryptedQuestion.read(Message("server", "shop", "encrypted-words", body), packing.chunks, "test")
    if more is not None:
        extra = np.zeros((packing.chunks, DEGREE), dtype=object)
        extra[:, : len(more)] = more
        a, b = question.vectors
        question = EncryptedQuestion((a, rings.added(b, rings.transform(rings.residues_of(extra)))), question.public)
    return Asked(packing, key, question)


def share_of(asked: Asked, c0: Any, c1: Any) -> Any:
    return asked.key.share(asked.packing, c0, c1)
