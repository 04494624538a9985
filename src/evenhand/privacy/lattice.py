"""Shares of a product of one's matrix M with the other's vector v, modulo t = 2⁶⁴, by encryption on a ring lattice.

The asker encrypts v under a secret s of its own: (a, b = −as + e + (q/t)v) with a uniform and e small (Lyubashevsky,
Peikert and Regev 2010; Brakerski 2012 and Fan and Vercauteren 2012 for the scale q/t). The answerer multiplies by M,
which it holds in the clear, and re-randomises with the asker's public key (a', b' = −a's + e'):

    c₁ = M·a + a'w + e'',    c₀ = M·b + b'w + u,

with w ternary and e'' small, both fresh, and u **uniform modulo q**. The asker's share is ⌊t(c₀ + c₁s)/q⌉, and the
answerer's is −⌊tu/q⌉. They add up to Mv, because c₀ + c₁s = (q/t)Mv + u + noise.

**What the asker learns from an answer: nothing.** c₀ is uniform whatever M is, since u is: no noise is left to be
drowned. c₁ is a sample of ring learning with errors with secret w, so it cannot be told from a uniform one, also by
somebody who knows s. The polynomial a' is derived from a public label by both sides, so this holds for every question,
also for one with noise, polynomials or a public key of the asker's choice.

**What it learns when the shares are added up**: Mv, each result with its rounding. An asker that chooses b' may read w
from the result as well. c₁ is M·a + e'' to it then. Here a comes from a hash of its seed, so M is the secret of another
sample: a guess of M can be verified, and a column with a few entries can be guessed.

**What the answerer learns: nothing.** It sees samples of ring learning with errors with secret s, one secret for each
question.

**Rounding.** Both round by themselves. A result is off by one unit, of 2⁶⁴ units, if noise carries t(u + noise)/q over
a half. This has probability |noise|·t/q. `ProductPacking.noise_bits` states the noise.

Results lie in single coefficients (`ProductPacking`), so no rotation and no key for one is needed. Secrets are ternary
and errors centred binomial with variance 21/2, as the Homomorphic Encryption Standard assumes.

**Random numbers** are derived (BLAKE2b, ChaCha20) from a secret of the session, which the operating system drew, and
from all that they hide. So a role that is restored within an attempt sends the same bytes again, and no two different
questions or answers ever share a random number.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import ProtocolError
from evenhand.privacy import rings
from evenhand.privacy.pairwise import Words, stream
from evenhand.privacy.rings import DEGREE, MODULUS, PRIME_ARRAY, PRIMES, Residues
from evenhand.protocol.messages import Message

SEED_BYTES: Final = 32
DELTA_BITS: Final = math.log2(MODULUS) - 64
"""Bits of q/t, the room for noise."""
MOST_NOISE: Final = DELTA_BITS - 8
"""Most bits of noise: a result is then off by one unit with probability 2⁻⁸ or less."""
_BINOMIAL: Final = 21
_INVERSES: Final = np.array([pow(MODULUS // p, -1, p) for p in PRIMES], dtype=np.uint64)
_INVERSES_64: Final = np.array([pow(2**64, -1, p) for p in PRIMES], dtype=np.uint64)
_MODULUS_64: Final = np.uint64(MODULUS % 2**64)
Pair = tuple[Residues, Residues]
"""Both halves of a ciphertext, or of a key."""
Draw = Callable[[int], Words]
"""Returns as many random words as asked for."""


def fresh(count: int) -> Words:
    """Draw words from the operating system's generator."""
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def seeded(seed: bytes, label: str) -> Draw:
    """Return a source of words that both sides derive from a seed."""
    turns = iter(range(2**62))
    return lambda count: stream(seed, f"{label} {next(turns)}", count)


def uniform(size: int, draw: Draw = fresh) -> Residues:
    """Return numbers that are uniform modulo q, (4, size): residues are drawn again if too large."""
    found = np.empty((len(PRIMES), size), dtype=np.uint32)
    for line, prime in zip(found, PRIMES, strict=True):
        filled, low = 0, np.uint32((1 << prime.bit_length()) - 1)
        while filled < size:
            words = draw((size - filled) // 2 + 64).view(np.uint32) & low
            good = words[words < prime][: size - filled]
            line[filled : filled + len(good)] = good
            filled += len(good)
    return found


def polynomials(count: int, draw: Draw = fresh) -> Residues:
    """Return uniform polynomials, (count, 4, DEGREE)."""
    drawn = uniform(count * DEGREE, draw)
    return np.ascontiguousarray(drawn.reshape(len(PRIMES), count, DEGREE).transpose(1, 0, 2))


def _errors(count: int, draw: Draw = fresh) -> Residues:
    """Return polynomials with small coefficients: the difference of two counts of 21 bits."""
    drawn = draw(count * DEGREE * 3 // 4).view(np.uint8).reshape(count, DEGREE, 6)
    bits = np.unpackbits(drawn, axis=-1)
    counts = [bits[..., start : start + _BINOMIAL].sum(axis=-1, dtype=np.int64) for start in (0, _BINOMIAL)]
    return rings.residues_of_small(counts[0] - counts[1])


def _ternary(count: int, draw: Draw = fresh) -> Residues:
    """Return polynomials with coefficients −1, 0 and 1, each as likely."""
    size, filled = count * DEGREE, 0
    found = np.empty(size, dtype=np.int64)
    while filled < size:
        drawn = draw((size - filled) // 8 + 16).view(np.uint8)
        good = drawn[drawn < 255][: size - filled]
        found[filled : filled + len(good)] = good % 3
        filled += len(good)
    return rings.residues_of_small(found.reshape(count, DEGREE) - 1)


def scaled_up(words: Words) -> Residues:
    """Return round(q·v / 2⁶⁴) of coefficients (k, n) modulo the primes. With r = q·v mod 2⁶⁴ it is (q·v − r) / 2⁶⁴."""
    used = words.any(axis=0)
    left = rings.residues_of((words[:, used] * _MODULUS_64).view(np.int64)).astype(np.uint64)
    primes = PRIME_ARRAY[:, None]
    found = np.zeros((len(words), len(PRIMES), words.shape[1]), dtype=np.uint32)
    found[..., used] = (primes - left) * _INVERSES_64[:, None] % primes
    return found


def rounded(residues: Residues) -> Words:
    """Return round(2⁶⁴·x / q) modulo 2⁶⁴ of residues (..., 4, n): x / q is a sum of fractions over the primes."""
    total = np.zeros(residues.shape[:-2] + residues.shape[-1:], dtype=np.uint64)
    rest = np.zeros(total.shape)
    by = np.uint64(32)
    for line, prime, inverse in zip(np.moveaxis(residues, -2, 0), PRIME_ARRAY, _INVERSES, strict=True):
        high, left = np.divmod((line.astype(np.uint64) * inverse % prime) << by, prime)
        low, left = np.divmod(left << by, prime)
        total += (high << by) + low
        rest += left / float(prime)
    return total + np.floor(rest + 0.5).astype(np.uint64)


@dataclass(frozen=True)
class ProductPacking:
    """How a matrix (rows, columns) and a vector lie in polynomials.

    A polynomial of the vector holds `length` entries. One of the matrix holds the same columns of DEGREE / length rows.
    Entry i of the vector is the coefficient of Xⁱ. Entry i of row w is that of X^(w·length + length − 1 − i). So the
    product with row w is the coefficient of X^(w·length + length − 1).
    """

    rows: int
    columns: int
    length: int

    @classmethod
    def of(cls, rows: int, columns: int) -> ProductPacking:
        """Return the packing that sends the fewest polynomials."""
        lengths = [1 << bits for bits in range(DEGREE.bit_length())]
        return min((cls(rows, columns, one) for one in lengths), key=lambda one: one.chunks + one.groups)

    @property
    def lines(self) -> int:
        """Rows in a polynomial."""
        return DEGREE // self.length

    @property
    def chunks(self) -> int:
        """Polynomials of the vector."""
        return -(-self.columns // self.length)

    @property
    def groups(self) -> int:
        """Polynomials of the result."""
        return -(-self.rows // self.lines)

    @property
    def places(self) -> slice:
        """Coefficients that hold results."""
        return slice(self.length - 1, None, self.length)

    def lay_matrix(self, matrix: Words) -> Words:
        """Return the coefficients of a matrix, (groups · chunks, DEGREE)."""
        block = np.zeros((self.groups * self.lines, self.chunks * self.length), dtype=np.uint64)
        block[: self.rows, : self.columns] = matrix
        parts = block.reshape(self.groups, self.lines, self.chunks, self.length)[..., ::-1]
        return parts.transpose(0, 2, 1, 3).reshape(-1, DEGREE)

    def lay_vector(self, words: Words) -> Words:
        """Return the coefficients of a vector, (chunks, DEGREE)."""
        padded = np.zeros(self.chunks * self.length, dtype=np.uint64)
        padded[: self.columns] = words
        filled = np.zeros((self.chunks, DEGREE), dtype=np.uint64)
        filled[:, : self.length] = padded.reshape(self.chunks, self.length)
        return filled

    def matrix(self, matrix: Words) -> Residues:
        """Return a matrix in the clear, as `times` takes it, (groups, chunks, 4, DEGREE)."""
        found = np.empty((self.groups, self.chunks, len(PRIMES), DEGREE), dtype=np.uint32)
        for group, into in enumerate(found):
            part = matrix[group * self.lines : (group + 1) * self.lines]
            into[:] = clear(ProductPacking(len(part), self.columns, self.length).lay_matrix(part))
        return found

    def noise_bits(self, matrix: Words) -> float:
        """Return the bits of the noise's standard deviation in the worst result. `MOST_NOISE` is the most."""
        squares = np.square(matrix.view(np.int64).astype(np.float64)).sum(axis=1)
        worst = max(float(squares[start : start + self.lines].sum()) for start in range(0, self.rows, self.lines))
        own = 2 * DEGREE * 2 / 3
        return 0.5 * math.log2((_BINOMIAL / 2 + 1 / 12) * (worst + own))


class Key:
    """The asker's secret for one question.

    Parameters
    ----------
    seed
        32 bytes that nobody else has; one seed for each question.
    """

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._secret = rings.transform(_ternary(1, seeded(seed, "secret")))[0]

    def derived(self, content: bytes) -> bytes:
        """Return 32 bytes that depend on the secret and on a content."""
        return hashlib.blake2b(content, digest_size=SEED_BYTES, key=self._seed).digest()

    def encrypt(self, words: Words, a: Residues, draw: Draw = fresh) -> Residues:
        """Return b = −as + e + (q/t)v for coefficients v, (k, DEGREE); no a is used twice."""
        noisy = rings.added(_errors(len(words), draw), scaled_up(words))
        return rings.subtracted(rings.transform(noisy), self.times(a))

    def times(self, polynomials: Residues) -> Residues:
        """Multiply polynomials with the secret."""
        return rings.multiplied(polynomials, self._secret)

    def share(self, packing: ProductPacking, c0: Residues, c1: Residues) -> Words:
        """Return the asker's share of a product, (rows,)."""
        phase = rings.transform_back(self.times(c1))[..., packing.places]
        return rounded(rings.added(c0, phase)).reshape(-1)[: packing.rows]


def clear(words: Words) -> Residues:
    """Return polynomials with these coefficients, read as signed integers, transformed."""
    return rings.transform(rings.residues_of(words.view(np.int64)))


def times(matrix: Residues, vector: Residues) -> Residues:
    """Multiply a matrix (groups, chunks, 4, DEGREE) with a vector (chunks, 4, DEGREE); one of them is encrypted."""
    found = np.empty((len(matrix), *vector.shape[1:]), dtype=np.uint32)
    for group, into in zip(matrix, found, strict=True):
        into[:] = rings.summed_products(group, vector)
    return found


def times_both(matrix: Residues, vector: Pair) -> Pair:
    """Multiply a matrix in the clear with both halves of an encrypted vector."""
    return times(matrix, vector[0]), times(matrix, vector[1])


def cover(packing: ProductPacking, products: Pair, public: Pair, secret: bytes) -> tuple[Residues, Residues, Words]:
    """Return c₀ at the places of results (groups, 4, lines), c₁ (groups, 4, DEGREE), and the answerer's share (rows,).

    The same products get the same cover again, as after a crash; others get an independent one.

    Parameters
    ----------
    products
        M·a and M·b, (groups, 4, DEGREE) each.
    public
        a' and b' of the asker's public key, (4, DEGREE) each.
    secret
        32 bytes that nobody else has; one for each answer.
    """
    count = packing.groups
    seed = hashlib.blake2b(digest_size=SEED_BYTES, key=secret, person=b"evenhand cover 1")
    for one in (*products, *public):
        seed.update(one.tobytes())
    small, large = (seeded(seed.digest(), label) for label in ("small", "mask"))
    random = rings.transform(_ternary(count, small))
    c1 = rings.added(products[0], rings.multiplied(random, public[0]))
    c1 = rings.added(c1, rings.transform(_errors(count, small)))
    c0 = rings.added(products[1], rings.multiplied(random, public[1]))
    opened = rings.transform_back(c0)[..., packing.places]
    mask = _mask(count * packing.lines, large).reshape(len(PRIMES), count, packing.lines).transpose(1, 0, 2)
    return rings.added(opened, mask), c1, np.negative(rounded(mask).reshape(-1)[: packing.rows])


def _mask(size: int, draw: Draw) -> Residues:
    """Return u, uniform modulo q."""
    return uniform(size, draw)


@dataclass(frozen=True)
class EncryptedQuestion:
    """Encrypted vectors with the public key of their secret.

    Attributes
    ----------
    vectors
        a and b, (k, 4, DEGREE) each.
    public
        a' and b', (4, DEGREE) each. Both sides derive a' from the context, so that the asker cannot choose it.
    """

    vectors: Pair
    public: Pair

    @classmethod
    def asked(cls, key: Key, words: Words, context: str) -> dict[str, NDArray[Any]]:
        """Return the fields of a message that asks about vectors with these coefficients, (k, DEGREE)."""
        own = key.derived(words.tobytes())
        seed = stream(own, "public", SEED_BYTES // 8).tobytes()
        found = key.encrypt(words, polynomials(len(words), seeded(seed, "question")), seeded(own, "errors"))
        # One context has one a', and so one error, whatever is asked: two would tell their difference.
        errors = seeded(key.derived(context.encode()), "errors of the key")
        public = key.encrypt(np.zeros((1, DEGREE), dtype=np.uint64), _public_part(context), errors)
        return {
            "seed": np.frombuffer(seed, dtype=np.uint8),
            "key": packed(public[0]),
            "polynomials": packed(found),
        }

    @classmethod
    def read(cls, message: Message, count: int, context: str) -> EncryptedQuestion:
        """Return the question in a message; refuse one with another number of polynomials."""
        if len(message["polynomials"]) != count:
            raise ProtocolError(
                f"{message.sender} encrypts {len(message['polynomials'])} polynomials, not {count}; refused"
            )
        b, key = (unpacked(message[name], message.sender) for name in ("polynomials", "key"))
        a = polynomials(count, seeded(message["seed"].tobytes(), "question"))
        return cls((a, b), (_public_part(context)[0], key))

    def parts(self, counts: Sequence[int]) -> list[Pair]:
        """Return the vectors in groups of these sizes."""
        ends = np.cumsum(counts)[:-1]
        return list(zip(*(np.split(one, ends) for one in self.vectors), strict=True))


def _public_part(context: str) -> Residues:
    seed = hashlib.blake2b(context.encode(), digest_size=SEED_BYTES, person=b"evenhand a 1").digest()
    return polynomials(1, seeded(seed, "public"))


def answered(parts: Sequence[Pair]) -> dict[str, NDArray[Any]]:
    """Return the fields of a message with answers: c₀ and c₁ of each."""
    return {
        "polynomials": packed(np.concatenate([c1 for _, c1 in parts])),
        "places": packed(np.concatenate([c0.ravel() for c0, _ in parts])),
    }


def read_answers(message: Message, packings: Sequence[ProductPacking]) -> list[Pair]:
    """Return c₀ and c₁ of each answer in a message; refuse other sizes, and polynomials that hide nothing."""
    sizes = [len(PRIMES) * one.groups * one.lines for one in packings]
    words, groups = message["places"].view(np.uint32), [one.groups for one in packings]
    if len(words) != sum(sizes) or len(message["polynomials"]) != sum(groups):
        raise ProtocolError(f"{message.sender}: an encrypted answer has another size than asked for; refused")
    c1 = unpacked(message["polynomials"], message.sender)
    if not c1.any(axis=(1, 2)).all():
        raise ProtocolError(f"{message.sender}: a ciphertext is not encrypted; the message is refused")
    places = [
        unpacked(part.reshape(one.groups, len(PRIMES), one.lines), message.sender)
        for part, one in zip(np.split(words, np.cumsum(sizes)[:-1]), packings, strict=True)
    ]
    return list(zip(places, np.split(c1, np.cumsum(groups)[:-1]), strict=True))


def packed(residues: Residues) -> NDArray[np.int64]:
    """Return residues for a message, two in a word."""
    return np.ascontiguousarray(residues).view(np.int64)


def unpacked(words: NDArray[Any], sender: str) -> Residues:
    """Return the residues (..., 4, n) of a message; refuse numbers beyond the modulus."""
    found: Residues = np.ascontiguousarray(words).view(np.uint32)
    if (found >= PRIME_ARRAY[:, None]).any():
        raise ProtocolError(f"{sender}: a ciphertext has coefficients beyond the modulus; the message is refused")
    return found
