"""Shares of products by encryption, without a third party (`privacy/lattice.py`).

An exchange has two questions and two answers. The server first encrypts random words b₁ to b₄, one vector for each
product. The party multiplies them with its matrices and covers the results, so that each of the two has a share of

    X_kᵀb₁,    −H⁻¹b₂,    X_k b₃,    Dᵀb₄,

where D are the party's shares of directions. Then the server sends ν, its share of the slope, its shares of the
directions and the coefficients of μθ, each minus its random words. The party multiplies these differences in the clear
and adds them to its shares. With the same message the server encrypts its shares themselves, and the party answers with
covered inner products of its shares and the server's. At the end the server encrypts the coefficients of θ, and the
party answers with covered products of D with them.

Random words are used for one number of an exchange only, and each question has a secret key and randomness of its own.
A resumed run has a new session, and so new words and keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, Final

import numpy as np

from evenhand.errors import DataError, ProtocolError
from evenhand.privacy import lattice, rings
from evenhand.privacy.fixed_products import LIMBS, combine, times
from evenhand.privacy.key_exchange import Session
from evenhand.privacy.lattice import EncryptedQuestion, Key, Pair, ProductPacking
from evenhand.privacy.pairwise import Words, stream
from evenhand.privacy.rings import Residues
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Role, Sends
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.problem import PartyData
from evenhand.vertical.protected.messages import (
    BLINDED_DERIVATIVE,
    CIPHERTEXTS,
    COLUMN_COUNT,
    ENCRYPTED_COEFFICIENTS,
    ENCRYPTED_INNER_PRODUCTS,
    ENCRYPTED_PRODUCTS,
    ENCRYPTED_SHARE,
    ENCRYPTED_WORDS,
)
from evenhand.vertical.protected.sharing import MOST_COLUMNS, Ask, SharedParty
from evenhand.vertical.protected.sharing_server import SharedServer

LIMB: Final = 22
"""Bits of the two parts that shares are multiplied in, so that noise stays small. Cut shares have at most 43."""
NO_WORDS: Final[Words] = np.zeros(0, dtype=np.uint64)


def product_packings(columns: int, rows: int, bands: int, last: bool) -> list[ProductPacking]:
    """Return the packings of X_kᵀν, −H⁻¹w and X_k d, one for each vector of the server."""
    slope = ProductPacking.of(columns, rows)
    if last:
        return [slope]
    return [slope, ProductPacking.of(bands * columns, columns), *[ProductPacking.of(rows, columns)] * bands]


def inner_packings(columns: int, vectors: int) -> tuple[ProductPacking, ProductPacking]:
    """Return the packings of inner products with all directions, and of that of the slope with itself."""
    return ProductPacking.of(max(vectors, 1), columns), ProductPacking.of(1, columns)


def limbs(words: Words) -> list[Words]:
    """Return x₀ and x₁ with x = x₀ + 2²²·x₁, both small, as words."""
    whole, half = words.view(np.int64), 1 << (LIMB - 1)
    low = ((whole + half) & ((1 << LIMB) - 1)) - half
    return [low.view(np.uint64), ((whole - low) >> LIMB).view(np.uint64)]


def limb_products(packing: ProductPacking, words: Words, vectors: Sequence[Pair]) -> Pair:
    """Multiply a matrix of shares, in limbs, with an encrypted vector in both lifts."""
    parts = zip(limbs(words), vectors, strict=True)
    return _total([lattice.times_both(packing.matrix(one), vector) for one, vector in parts])


def lifted(words: Words) -> list[Words]:
    """Return x and 2²²·x, which the two limbs are multiplied with."""
    return [words, words << np.uint64(LIMB)]


def _context(terms: VerticalTerms, session: Session) -> str:
    return f"{terms.digest} {session.tag}"


class EncryptedParty(SharedParty):
    """Multiplies what it cannot read with its columns, and covers every answer with uniform numbers.

    Attributes
    ----------
    _held
        The party's shares of the products with random words, from the answer until ν is asked about.
    """

    state_fields: ClassVar = {"_question": int, "_held": Words}

    def __init__(self, terms: VerticalTerms, name: str, own: PartyData, session: Session) -> None:
        super().__init__(terms, name, own, CIPHERTEXTS)
        self._context, self._tag = f"{_context(terms, session)} {name}", session.tag
        self._secret = session.secret(f"covers {terms.digest}")
        self._question = 0
        self._held: Words = NO_WORDS
        for packing, words in zip(self._packings(False), (self.words, self.matrix, self.words.T), strict=False):
            if packing.noise_bits(words) > lattice.MOST_NOISE:
                raise DataError(
                    f"{name}: its columns are too large for encryption, and results would be wrong. Scale them "
                    "(scale=True does), or choose protection 'dealer'"
                )

    def start(self) -> Sends:
        return [COLUMN_COUNT.message(self.name, SERVER, columns=self.columns), *super().start()]

    def resumed(self) -> Sends:
        self._held = NO_WORDS
        if len(self.final):
            return ()
        return [COLUMN_COUNT.message(self.name, SERVER, columns=self.columns), *super().resumed()]

    def handle(self, message: Message) -> Sends:
        if message.kind == ENCRYPTED_WORDS.kind:
            return self._multiply(message)
        if message.kind == BLINDED_DERIVATIVE.kind:
            return self._complete(message)
        if message.kind == ENCRYPTED_COEFFICIENTS.kind:
            return self._end(message)
        return super().handle(message)

    def _end(self, message: Message) -> Sends:
        """Answer with the products of the party's shares of directions and the coefficients of the final weights."""
        number = message.integer("number")
        if len(self.final) or len(self._held) or number <= max(self._question, self.number):
            raise ProtocolError(f"{self.name} answers no question {number} at this point; it is refused")
        packing = ProductPacking.of(self.columns, len(self.shares))
        sizes = [packing.chunks] * (2 * LIMBS)
        asked = EncryptedQuestion.read(message, sum(sizes), f"{self._context} weights {number}")
        parts, covered = asked.parts(sizes), list[tuple[Residues, Residues, Words]]()
        for place in range(LIMBS):
            products = limb_products(packing, self.shares.T, parts[2 * place : 2 * place + 2])
            covered.append(lattice.cover(packing, products, asked.public, self._cover(f"weights {number} {place}")))
        self.end(np.stack([share for _, _, share in covered]))
        answers = lattice.answered([(c0, c1) for c0, c1, _ in covered])
        return [ENCRYPTED_SHARE.message(self.name, SERVER, number=number, **answers)]

    def _packings(self, last: bool) -> list[ProductPacking]:
        return product_packings(self.columns, self.grid.rows, self.bands, last)

    @cached_property
    def _matrices(self) -> list[Residues]:
        """X_kᵀ, −H⁻¹ and X_k in polynomials."""
        given = (self.words, self.matrix, self.words.T)
        return [one.matrix(words) for one, words in zip(self._packings(False), given, strict=False)]

    def _multiply(self, message: Message) -> Sends:
        """Answer about random words. A number is answered once, and no other is while it is open."""
        number, last, vectors = message.integer("number"), bool(message.integer("last")), message.integer("vectors")
        if message.integer("session") != self._tag:
            # The server wrote it before it was resumed. It asks again under the keys of this attempt.
            return ()
        if len(self.final) or len(self._held) or number <= max(self._question, self.number):
            raise ProtocolError(f"{self.name} answers no question {number} at this point; it is refused")
        if vectors not in (len(self.shares), len(self.shares) - self.bands) or vectors <= 0:
            raise ProtocolError(f"{self.name}: {vectors} directions are not those that it was given; refused")
        packings, pull = self._packings(last), ProductPacking.of(self.columns, vectors)
        sizes = [one.chunks for one in (*packings, pull, pull)]
        asked = EncryptedQuestion.read(message, sum(sizes), f"{self._context} words {number}")
        *parts, low, high = asked.parts(sizes)
        covered = []
        for place, (packing, vector) in enumerate(zip(packings, parts, strict=True)):
            matrix = self._matrices[min(place, 2)]
            covered.append(
                lattice.cover(
                    packing, lattice.times_both(matrix, vector), asked.public, self._cover(f"words {number} {place}")
                )
            )
            self.effort += float(2 * matrix.size)
        products = limb_products(pull, self.shares[:vectors].T, (low, high))
        covered.append(lattice.cover(pull, products, asked.public, self._cover(f"pull {number}")))
        self._question, self._held = number, np.concatenate([share for _, _, share in covered])
        answers = lattice.answered([(c0, c1) for c0, c1, _ in covered])
        return [ENCRYPTED_PRODUCTS.message(self.name, SERVER, number=number, **answers)]

    def _cover(self, label: str) -> bytes:
        """Return the secret of one cover. Two products may be equal, and their covers must not be."""
        return stream(self._secret, label, lattice.SEED_BYTES // 8).tobytes()

    def _complete(self, message: Message) -> Sends:
        ask, bands, told = self.asked(message), self.bands, message["shares"].view(np.uint64)
        counted, pull = self.counted(ask), message["pull"].view(np.uint64)
        ends = np.cumsum([*(one.rows for one in self._packings(bool(ask.last))), self.columns])
        if ask.number != self._question or len(self._held) != ends[-1]:
            raise ProtocolError(f"{self.name} has answered no question {ask.number}; the message is refused")
        if len(told) != (0 if ask.last else 1 + bands) or len(pull) != len(counted):
            raise ProtocolError(f"{self.name}: the server sends {len(told)} shares; the message is refused")
        vectors = 0 if ask.last else bands * (len(ask.kept) + 1)
        self._inner = EncryptedQuestion.read(
            message, _inner_count(self.columns, bands, vectors), self._inner_context(ask)
        )
        *held, pulled = np.split(self._held, ends[:-1])
        self._held = NO_WORDS
        slope = times(self.words, message["nu"].view(np.uint64)) + held[0] + times(counted.T, pull) + pulled
        of_slope = of_directions = NO_WORDS
        if not ask.last:
            of_slope = times(self.matrix, told[0]) + held[1]
            of_directions = combine(told[1:], self.words) + np.stack(held[2:])
        return self.answer(ask, slope, of_slope, of_directions)

    def _inner_context(self, ask: Ask) -> str:
        return f"{self._context} inner {ask.number}"

    def cross(self, ask: Ask, slope: Words, new: Words, every: Words) -> tuple[Words, Sends]:
        """Multiply the server's encrypted shares with this party's, in two limbs."""
        asked, covered = self._inner, list[tuple[Residues, Residues, Words]]()
        whole, single = inner_packings(self.columns, len(every) if len(new) else 0)
        parts = iter(asked.parts(_inner_sizes(self.columns, len(new), len(every))))
        if len(new):
            matrices = [_grouped(next(parts), whole) for _ in range(2)]
            own = [whole.matrix(one) for one in limbs(every)]
            for one in new:
                vectors = [lattice.clear(whole.lay_vector(part)) for part in limbs(one)]
                terms = [
                    *(
                        lattice.times_both(mine, theirs)
                        for mine, theirs in zip(own, (next(parts), next(parts)), strict=True)
                    ),
                    *(_both_of(theirs, mine) for theirs, mine in zip(matrices, vectors, strict=True)),
                ]
                secret = self._cover(f"inner {ask.number} {len(covered)}")
                covered.append(lattice.cover(whole, _total(terms), asked.public, secret))
        products = limb_products(single, slope << np.uint64(1), list(parts))
        covered.append(lattice.cover(single, products, asked.public, self._cover(f"slope {ask.number}")))
        answers = lattice.answered([(c0, c1) for c0, c1, _ in covered])
        sent = ENCRYPTED_INNER_PRODUCTS.message(self.name, SERVER, number=ask.number, **answers)
        return np.concatenate([share for _, _, share in covered]), [sent]

    def forget(self) -> None:
        super().forget()
        self._secret, self._held = b"", NO_WORDS
        self.__dict__.pop("_matrices", None)


def _both_of(matrix: Pair, vector: Residues) -> Pair:
    return lattice.times(matrix[0], vector), lattice.times(matrix[1], vector)


def _grouped(pair: Pair, packing: ProductPacking) -> Pair:
    shape = packing.groups, packing.chunks, *pair[0].shape[1:]
    return pair[0].reshape(shape), pair[1].reshape(shape)


def _total(terms: Sequence[Pair]) -> Pair:
    first, second = terms[0]
    for one, other in terms[1:]:
        first, second = rings.added(first, one), rings.added(second, other)
    return first, second


def _inner_sizes(columns: int, new: int, every: int) -> list[int]:
    """Return the numbers of polynomials: all shares, each new one, and the slope, each for both limbs."""
    whole, single = inner_packings(columns, every if new else 0)
    directions = [whole.groups * whole.chunks] * 2 + [whole.chunks] * (2 * new) if new else []
    return [*directions, single.chunks, single.chunks]


def _inner_count(columns: int, bands: int, vectors: int) -> int:
    return sum(_inner_sizes(columns, bands if vectors else 0, vectors))


class EncryptedServer(SharedServer):
    """Encrypts random words, and sends ν and its shares minus these words.

    Attributes
    ----------
    _counts
        Numbers of columns of the parties that have joined this attempt.
    _answers, _crossed
        What parties have answered in this exchange, about random words and about shares.
    _products
        At the end: the server's shares of the products with coefficients.
    """

    state_fields: ClassVar = {
        "_counts": dict[str, int],
        "_answers": dict[str, Message],
        "_crossed": dict[str, Message],
        "_products": dict[str, Words],
    }

    def __init__(self, inner: Role, terms: VerticalTerms, together: str, session: Session) -> None:
        super().__init__(inner, terms, together, CIPHERTEXTS)
        self._context, self._tag = _context(terms, session), session.tag
        self._secret = session.secret(f"products {terms.digest}")
        self._counts: dict[str, int] = {}
        self._answers: dict[str, Message] = {}
        self._crossed: dict[str, Message] = {}
        self._products: dict[str, Words] = {}
        self._found: dict[str, list[Words]] = {}

    def resumed(self) -> Sends:
        # A question that the last attempt left behind is under its keys: parties ignore it, and get another.
        self._counts, self._answers, self.number = {}, {}, self.number + 1
        return super().resumed()

    def take(self, message: Message) -> Sends:
        sender, kind = message.sender, message.kind
        if kind == COLUMN_COUNT.kind and sender in self.members and sender not in self._counts and not self.closed:
            return self._join(sender, message.integer("columns"))
        current = sender in self._counts and message.kind != COLUMN_COUNT.kind and self._is_current(message)
        if kind == ENCRYPTED_PRODUCTS.kind and current and sender not in self._answers and not len(self._words):
            lattice.read_answers(message, [*self._packings(sender), self._pull_packing(sender)])
            self._answers[sender] = message
            return self.proceed()
        if kind == ENCRYPTED_INNER_PRODUCTS.kind and current and sender not in self._crossed and len(self._words):
            lattice.read_answers(message, self._inner_packings(sender))
            self._crossed[sender] = message
            return self.open()
        if kind == ENCRYPTED_SHARE.kind and self.ending and sender in self._counts and sender not in self._products:
            return self._take_share(sender, message)
        return super().take(message)

    def _take_share(self, sender: str, message: Message) -> Sends:
        if message.integer("number") != self.number:
            raise ProtocolError(f"{sender} answers a question that was not asked; refused")
        key, packings = self._key(sender, "weights"), [self._pull_packing(sender)] * LIMBS
        answers = zip(packings, lattice.read_answers(message, packings), strict=True)
        self._products[sender] = np.stack([key.share(packing, c0, c1) for packing, (c0, c1) in answers])
        if len(self._products) < len(self.members):
            return ()
        sends, self._products, self._secret = self.end(self._products), {}, b""
        self._answers, self._crossed, self._counts = {}, {}, {}
        return sends

    def _is_current(self, message: Message) -> bool:
        return self._waiting is not None and message.integer("number") == self.number

    def _join(self, sender: str, columns: int) -> Sends:
        if not 0 < columns <= MOST_COLUMNS:
            raise ProtocolError(f"{sender} has {columns} columns; the message is refused")
        self._counts[sender] = columns
        self.shares.setdefault(sender, np.zeros((self.trail.bands, columns), dtype=np.uint64))
        if self.shares[sender].shape[1] != columns:
            raise ProtocolError(f"{sender} has another number of columns than before; the message is refused")
        return [self._asked(sender)] if self._waiting is not None else ()

    @property
    def _last(self) -> bool:
        return self._waiting is not None and bool(self._waiting.integer("last"))

    def _packings(self, name: str) -> list[ProductPacking]:
        return product_packings(self._counts[name], self.grid.rows, self.trail.bands, self._last)

    def _pull_packing(self, name: str) -> ProductPacking:
        return ProductPacking.of(self._counts[name], len(self.trail.weights))

    def _inner_packings(self, name: str) -> list[ProductPacking]:
        whole, single = inner_packings(self._counts[name], len(self.shares[name]))
        return [single] if self._last else [*[whole] * self.trail.bands, single]

    def _key(self, name: str, purpose: str) -> Key:
        return Key(stream(self._secret, f"key {purpose} {self.number} {name}", 4).tobytes())

    def _random(self, name: str, place: int, size: int) -> Words:
        return stream(self._secret, f"words {place} {self.number} {name}", size)

    def _asked(self, name: str) -> Message:
        pull = self._pull_packing(name)
        packings = [*self._packings(name), pull]
        random = [self._random(name, place, one.columns) for place, one in enumerate(packings)]
        polynomials = [one.lay_vector(words) for one, words in zip(packings[:-1], random, strict=False)]
        polynomials += [pull.lay_vector(one) for one in lifted(random[-1])]
        context = f"{self._context} {name} words {self.number}"
        body = EncryptedQuestion.asked(self._key(name, "words"), np.concatenate(polynomials), context)
        heads = {"session": self._tag, "number": self.number, "last": int(self._last), "vectors": pull.columns}
        return ENCRYPTED_WORDS.message(SERVER, name, **heads, **body)

    def request(self) -> Sends:
        self._answers, self._crossed = {}, {}
        return [self._asked(name) for name in self.members if name in self._counts]

    @property
    def ready(self) -> bool:
        return len(self._answers) == len(self.members)

    def begin_exchange(self, ask: Ask) -> None:
        for name in self.members:
            key, packings = self._key(name, "words"), [*self._packings(name), self._pull_packing(name)]
            answers = lattice.read_answers(self._answers[name], packings)
            self._found[name] = [
                key.share(packing, c0, c1) for packing, (c0, c1) in zip(packings, answers, strict=True)
            ]
            self.spent += float(sum(c1.size for _, c1 in answers))
        self._answers = {}

    def slope_share(self, name: str, ask: Ask, nu: Words, pull: Words) -> Words:
        self._nu, self._pull = nu, pull
        return self._found[name][0] + self._found[name][-1]

    def direction_share(self, name: str, ask: Ask, slope: Words) -> Words:
        return self._found[name][1]

    def scores_share(self, name: str, ask: Ask, new: Words) -> Words:
        return np.stack(self._found[name][2:-1])

    def told(self, name: str, ask: Ask, slope: Words, new: Words) -> Message:
        del self._found[name]
        asked = [self._nu, slope, *new, self._pull] if len(new) else [self._nu, self._pull]
        nu, *shares, pull = (one - self._random(name, place, len(one)) for place, one in enumerate(asked))
        told = np.array(shares, dtype=np.uint64).reshape(-1, len(slope))
        body = {"nu": nu.view(np.int64), "pull": pull.view(np.int64), "shares": told.view(np.int64)}
        every = self.shares[name]
        whole, single = inner_packings(len(slope), len(every))
        parts = []
        if len(new):
            parts += [whole.lay_matrix(one) for one in lifted(every)]
            parts += [whole.lay_vector(part) for one in new for part in lifted(one)]
        parts += [single.lay_vector(part) for part in lifted(slope)]
        context = f"{self._context} {name} inner {self.number}"
        question = EncryptedQuestion.asked(self._key(name, "inner"), np.concatenate(parts), context)
        return BLINDED_DERIVATIVE.message(SERVER, name, **ask.fields(), **body, **question)

    @property
    def crossed_all(self) -> bool:
        return len(self._crossed) == len(self.members)

    def cross(self, last: bool) -> Words:
        total = np.zeros(1, dtype=np.uint64)
        for name in self.members:
            key, packings = self._key(name, "inner"), self._inner_packings(name)
            answers = lattice.read_answers(self._crossed[name], packings)
            found = [key.share(packing, c0, c1) for packing, (c0, c1) in zip(packings, answers, strict=True)]
            total = total + np.concatenate(found)
        self._crossed = {}
        return total

    def request_final(self) -> Sends:
        sends = []
        for name in self.members:
            packing = self._pull_packing(name)
            parts = [packing.lay_vector(part) for one in self.factors for part in lifted(one)]
            context = f"{self._context} {name} weights {self.number}"
            body = EncryptedQuestion.asked(self._key(name, "weights"), np.concatenate(parts), context)
            sends.append(ENCRYPTED_COEFFICIENTS.message(SERVER, name, number=self.number, **body))
        return sends
