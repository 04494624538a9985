"""An attack on encrypted answers: what the owner of the key reads below the product.

The server decrypts answers, so it also sees what lies below q/t. If nothing covered it, this would be noise: the
product of the errors of its own question with the party's columns. A transcript holds no key. So the attack asks about
each party's columns once more with a key of its own, by the functions of the protocol (`privacy/lattice.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from evenhand.arrays import Array
from evenhand.auditing.cases import Case
from evenhand.auditing.findings import Finding
from evenhand.auditing.learners import dense, regress
from evenhand.privacy import lattice, rings
from evenhand.privacy.fixed_products import ProductGrid
from evenhand.privacy.lattice import EncryptedQuestion, Key, Pair, ProductPacking
from evenhand.privacy.pairwise import Words
from evenhand.privacy.rings import DEGREE, MODULUS, PRIMES, Residues
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER

MOST_COLUMNS: Final = 4
"""Columns of a party that are asked about."""
_LIFTS: Final = [(MODULUS // p) * pow(MODULUS // p, -1, p) for p in PRIMES]
Covers = Callable[[ProductPacking, Pair, Pair, bytes], tuple[Residues, Residues, Words]]
"""Covers a product, as `lattice.cover` does."""


def by_noise(column: Words, rng: np.random.Generator, covers: Covers = lattice.cover) -> Array:
    """Return an estimate of a column of at most DEGREE words from the noise of one encrypted answer."""
    packing, key, word = ProductPacking(len(column), 1, 1), Key(rng.bytes(lattice.SEED_BYTES)), _words(rng, 1)
    body = EncryptedQuestion.asked(key, packing.lay_vector(word), "audit")
    question = EncryptedQuestion.read(Message(SERVER, "", "encrypted-words", body), 1, "audit")
    products = lattice.times_both(packing.matrix(column[:, None]), question.vectors)
    c0, c1, _ = covers(packing, products, question.public, rng.bytes(lattice.SEED_BYTES))
    noise = _below_words(_lifted(rings.added(c0, rings.transform_back(key.times(c1)))[0]))
    a, b = question.vectors
    inside = rings.transform_back(rings.added(b, key.times(a)))[0]
    errors = _lifted(rings.subtracted(inside, lattice.scaled_up(packing.lay_vector(word))[0])).astype(np.float64)
    # The noise is the product of the errors and the column modulo X^DEGREE + 1: divide at the roots of that.
    turn = np.exp(1j * np.pi * np.arange(DEGREE) / DEGREE)
    found = np.fft.ifft(np.fft.fft(noise * turn) / np.fft.fft(errors * turn)) / turn
    return np.asarray(found.real[: len(column)], dtype=np.float64)


def without_cover(packing: ProductPacking, products: Pair, _: Pair, secret: bytes) -> tuple[Residues, Residues, Words]:
    """Hide the product by random multiples of q/t, and nothing below it, as the control."""
    mask = lattice.seeded(secret, "mask")(packing.lines)
    c0 = rings.added(rings.transform_back(products[1])[..., packing.places], lattice.scaled_up(mask[None]))
    return c0, products[0], np.negative(mask)


def _words(rng: np.random.Generator, count: int) -> Words:
    return rng.integers(0, 2**64, count, dtype=np.uint64)


def _lifted(residues: Residues) -> Any:
    """Return the whole numbers in (−q/2, q/2] of residues (4, n)."""
    total = sum(line.astype(object) * factor for line, factor in zip(residues, _LIFTS, strict=True)) % MODULUS
    return np.where(total > MODULUS // 2, total - MODULUS, total)


def _below_words(phase: Any) -> Array:
    """Return what is left of a phase without the nearest multiple of q/t."""
    words = (2 * phase * 2**64 + MODULUS) // (2 * MODULUS)
    return np.asarray((phase - (2 * MODULUS * words + 2**64) // 2**65).astype(np.float64))


def noise(case: Case) -> Iterator[Finding]:
    """Divide the noise of encrypted answers by the errors of the question, which the server knows."""
    kinds = {one.sender: one.kind for one in case.view.mail if one.kind == "encrypted-products"}
    unit = 2.0 ** ProductGrid(len(case.scene.labels)).column_bits
    for other in kinds if case.view.knows_labels else ():
        wanted = dense(case.columns(other))[:, :MOST_COLUMNS]
        columns = np.rint(wanted * unit).astype(np.int64).view(np.uint64)
        blocks = np.arange(DEGREE, len(columns), DEGREE)
        told = np.stack(
            [np.concatenate([by_noise(part, case.rng) for part in np.split(one, blocks)]) for one in columns.T], axis=1
        )
        told /= np.maximum(told.std(axis=0), 1e-300)
        yield case.explained(f"the first columns of {other}", kinds[other], 1, told, wanted, regress, alone=True)[0]
