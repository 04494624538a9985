"""Shares of products by Beaver triples from a third party without data, modulo 2⁶⁴.

Party and dealer share a seed, and server and dealer share another. To multiply a matrix M of the party with a vector v
of the server, the party draws A of the shape of M, and the server draws b. The party sends M − A once, and the server
sends v − b. The dealer draws r as the party does, and sends the server Ab − r. Then

    party's share = M(v − b) + r,    server's share = (M − A)b + (Ab − r),

and they add up to Mv. X_kᵀν and the party's shares of directions times coefficients are one product: their matrices
stand side by side. For inner products of shares p·s, the party sends p − a, and the server has sent s − b.

Every message is uniform to its receiver, and every random word is used for one number of an exchange only. Seeds are
those of the session (`privacy/key_exchange.py`), so a carrier of the dealer's messages learns nothing and cannot take
the dealer's place. A resumed run has new seeds: the party hides its columns and shares again, and so does the server.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from evenhand.errors import ProtocolError
from evenhand.privacy.fixed_products import LIMBS, combine, times
from evenhand.privacy.key_exchange import Session
from evenhand.privacy.pairwise import Words, new_secret
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Role, Sends
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.problem import MOST_NARROW_ROUNDS, PartyData
from evenhand.vertical.protected.checking import CHECKS, Sketch
from evenhand.vertical.protected.flatness import LEAST_AUDITED, MANY, ONE, block_sums, is_chosen
from evenhand.vertical.protected.messages import (
    AUDIT,
    AUDITED,
    CORRECTIONS,
    DEALT,
    HIDDEN_COEFFICIENTS,
    HIDDEN_COLUMNS,
    HIDDEN_DERIVATIVE,
    HIDDEN_SHARES,
    JOINING,
    NEXT_TRIPLE,
    SHARE_KEPT,
    TRIPLES,
)
from evenhand.vertical.protected.sharing import Ask, SharedParty, crossed
from evenhand.vertical.protected.sharing_server import SharedServer
from evenhand.vertical.protected.triples import FINAL, NO_MORE, PartySeed, ServerSeed, as_words


class DealtParty(SharedParty):
    """Sends its columns hidden, once, and computes its shares from the server's messages."""

    state_fields: ClassVar = {"_told": Words, "_tags": Words, "_held": Message | None}

    def __init__(self, terms: VerticalTerms, name: str, own: PartyData, dealer: str, session: Session) -> None:
        super().__init__(terms, name, own, TRIPLES)
        self._dealer = dealer
        self._seed = session.seed(dealer, f"triples {terms.digest}")
        self._told: Words = np.zeros((0, self.columns), dtype=np.uint64)
        self._tags: Words = np.zeros((0, CHECKS), dtype=np.uint64)
        self._coin = session.secret(f"audits {terms.digest}")
        self._held: Message | None = None
        # Kept from the beginning of an attempt to its first exchange, so that it is drawn once.
        self._hiding: Words | None = None

    @property
    def _random(self) -> PartySeed:
        return PartySeed(self._seed, self.columns, self.grid.rows, self.bands)

    def start(self) -> Sends:
        return [*self._joining(), *super().start()]

    def resumed(self) -> Sends:
        self._told, self._tags, self._held = self._told[:0], self._tags[:0], None
        return [*(() if len(self.final) else self._joining()), *super().resumed()]

    def check(self, message: Message) -> None:
        if message.kind == AUDITED.kind and message.sender == self._dealer:
            self.vocabulary.check(message, self.sizes)
        else:
            super().check(message)

    def handle(self, message: Message) -> Sends:
        if message.kind == HIDDEN_DERIVATIVE.kind and self._seed and self._held is None:
            number = self.asked(message).number
            if self.grid.rows < LEAST_AUDITED or not is_chosen(self._coin, number):
                return self._multiply(message)
            self._held, seed = message, new_secret()
            sums = block_sums(as_words(message["nu"]), seed).view(np.int64)
            own = {"seed": np.frombuffer(seed, dtype=np.uint8), "sums": sums}
            return [AUDIT.message(self.name, self._dealer, number=number, **own)]
        if message.kind == AUDITED.kind and message.sender == self._dealer and self._held is not None:
            held, self._held = self._held, None
            if message.integer("number") == held.integer("number"):
                self._judge(message.integer("answer"), held.integer("round"))
                return self._multiply(held)
        if message.kind == HIDDEN_COEFFICIENTS.kind and self._seed and self._held is None:
            return self._end(message)
        return super().handle(message)

    def _end(self, message: Message) -> Sends:
        number, words = message.integer("number"), as_words(message["words"])
        if len(self.final) or number <= self.number or words.shape != (LIMBS, len(self.shares)):
            raise ProtocolError(f"{self.name}: the coefficients do not fit its directions; the message is refused")
        self.end(np.matmul(words, self.shares) + self._random.weights(number))
        return [SHARE_KEPT.message(self.name, SERVER, number=number)]

    def _judge(self, answer: int, number: int) -> None:
        """End the run if the server probes few rows; a few rounds may be narrow, as with open derivatives."""
        self.narrow_rounds += answer < MANY
        if answer == ONE or self.narrow_rounds > MOST_NARROW_ROUNDS:
            raise ProtocolError(
                f"{self.name}: the hidden derivatives of round {number} concentrate on a few rows, and an answer would "
                f"describe its columns in those rows; {self.name} ends the run"
            )

    def _joining(self) -> Sends:
        """Hide columns and shares behind the seed of this attempt."""
        drawn = self._random
        self._hiding = drawn.columns()
        words = {
            "words": self.words - self._hiding,
            "matrix": self.matrix - drawn.matrix(),
            "shares": self.shares - drawn.kept(self.numbers),
        }
        return [
            JOINING.message(self.name, self._dealer, columns=self.columns),
            HIDDEN_COLUMNS.message(self.name, SERVER, **{key: one.view(np.int64) for key, one in words.items()}),
        ]

    def _multiply(self, message: Message) -> Sends:
        ask, drawn, told = self.asked(message), self._random, as_words(message["shares"])
        bands, tags, pull = self.bands, as_words(message["tags"]), as_words(message["pull"])
        if tags.shape != (0, 0) and tags.shape != (self.columns, CHECKS):
            raise ProtocolError(f"{self.name}: the server's tags do not fit its columns; the message is refused")
        if tags.size and len(self._tags):
            # A second sketch behind the same random words would tell the server sums of columns over subsets of rows.
            raise ProtocolError(f"{self.name} has answered tags of this attempt; others are refused")
        self._sketch = Sketch(message["checks"].tobytes(), "triples", self.grid.rows)
        self._own_tags = np.zeros((0, 0), dtype=np.uint64)
        if tags.size:
            hiding, self._hiding = drawn.columns() if self._hiding is None else self._hiding, None
            self._tags, self._own_tags = tags, self._sketch(hiding) + drawn.checked()[0]
        earlier = np.concatenate([self._told, as_words(message["earlier"])])[: bands * len(ask.kept)]
        sizes = 1 + (0 if ask.last else bands), bands * len(ask.kept), bands * len(ask.kept)
        if (len(told), len(earlier), len(pull)) != sizes:
            raise ProtocolError(f"{self.name}: the server sends {len(told)} shares; the message is refused")
        slope = times(self.words, as_words(message["nu"])) + times(self.counted(ask).T, pull) + drawn.slope(ask.number)
        if ask.last:
            nothing = np.zeros(0, dtype=np.uint64)
            of_slope = of_directions = nothing
        else:
            of_slope = times(self.matrix, told[0]) + drawn.directions(ask.number)
            self._drawn_scores = drawn.scores(ask.number)
            of_directions = combine(told[1:], self.words) + self._drawn_scores
        self._told = np.concatenate([earlier, told[1:]])
        self._slope, self._told_new = told[:1], told[1:]
        return self.answer(ask, slope, of_slope, of_directions)

    def cross(self, ask: Ask, slope: Words, new: Words, every: Words) -> tuple[Words, Sends]:
        told = self._told[len(self._told) - len(new) :]
        inner = np.append(crossed((new, told), (every, self._told)), crossed(*[(slope, self._slope)] * 2))
        drawn = self._random
        hidden = np.concatenate([slope, new]) - drawn.shares(ask.number)[: 1 + len(new)]
        body = {"words": hidden.view(np.int64), "tags": self._own_tags.view(np.int64)}
        sent = HIDDEN_SHARES.message(self.name, SERVER, number=ask.number, **body)
        return inner + drawn.products(ask.number, len(inner)), [sent]

    def checks(self, ask: Ask, new: Words) -> Words:
        if ask.last:
            return super().checks(ask, new)
        drawn = self._random
        extra, fresh = drawn.checks(ask.number)
        random = drawn.shares(ask.number)[1:]
        bound = np.matmul(random, self._tags) - np.matmul(self._told_new + new - random, drawn.checked()[1]) - fresh
        return np.concatenate([(self._sketch(self._drawn_scores) + extra).ravel(), bound.ravel()])

    def forget(self) -> None:
        super().forget()
        self._seed, self._told = b"", self._told[:0]


class DealtServer(SharedServer):
    """Sends ν and its shares behind random words of the dealer, with new ones for every exchange."""

    state_fields: ClassVar = {
        "_columns": dict[str, Words],
        "_matrices": dict[str, Words],
        "_hidden": dict[str, Words],
        "_slopes": dict[str, Words],
        "_corrections": Message | None,
        "_products": Words,
        "_scores": Words,
        "_checks": Words,
        "_tags": dict[str, Words],
        "_dealt_tags": dict[str, Words],
        "_answers": dict[str, Words],
        "_kept": dict[str, Words],
        "_unkept": list[str],
        "_began": bool,
    }

    def __init__(self, inner: Role, terms: VerticalTerms, together: str, dealer: str, session: Session) -> None:
        super().__init__(inner, terms, together, TRIPLES)
        self._dealer = dealer
        self._seed = session.seed(dealer, f"triples {terms.digest}")
        # What parties have hidden: columns, matrices, shares of all directions, and of the slope of this exchange.
        self._columns: dict[str, Words] = {}
        self._matrices: dict[str, Words] = {}
        self._hidden: dict[str, Words] = {}
        self._slopes: dict[str, Words] = {}
        self._corrections: Message | None = None
        self._products: Words = np.zeros(0, dtype=np.uint64)
        # At the end: shares of the products with coefficients, and parties that have not confirmed theirs.
        self._kept: dict[str, Words] = {}
        self._unkept: list[str] = []
        # For the checks of an exchange: the dealer's words, tags of parties and dealer, and the parties' vectors y.
        self._scores: Words = np.zeros((0, 0), dtype=np.uint64)
        self._checks: Words = np.zeros(0, dtype=np.uint64)
        self._tags: dict[str, Words] = {}
        self._dealt_tags: dict[str, Words] = {}
        self._answers: dict[str, Words] = {}
        self._sketched: dict[str, Words] = {}
        self._key = session.secret(f"checks {terms.digest}")
        self._began = False

    @property
    def _random(self) -> ServerSeed:
        return ServerSeed(self._seed, self.grid.rows, self.trail.bands)

    def resumed(self) -> Sends:
        self._columns, self._corrections, self._began = {}, None, False
        self._tags, self._dealt_tags, self._sketched = {}, {}, {}
        return super().resumed()

    def take(self, message: Message) -> Sends:
        sender, kind = message.sender, message.kind
        if kind == HIDDEN_COLUMNS.kind and sender in self.members and sender not in self._columns and not self.closed:
            return self._take_columns(sender, message)
        if kind == CORRECTIONS.kind and sender == self._dealer and self._lacks_corrections(message):
            self._corrections = message
            return self._send_factors(message) if self.ending else self.proceed()
        if kind == SHARE_KEPT.kind and sender in self._unkept and message.integer("number") == self.number:
            self._unkept.remove(sender)
            return () if self._unkept else self._end()
        if kind == HIDDEN_SHARES.kind and self._awaits(sender, message):
            words = as_words(message["words"])
            self._slopes[sender], self._answers[sender] = words[:1], self._answers[sender] + words[1:]
            if sender not in self._tags:
                self._tags[sender] = as_words(message["tags"])
            self._hidden[sender] = np.concatenate([self._hidden[sender], words[1:]])
            return self.open()
        return super().take(message)

    def _take_columns(self, sender: str, message: Message) -> Sends:
        bands, columns = self.trail.bands, len(message["words"])
        shapes = (bands * columns, columns), (bands * len(self.trail.numbers), columns)
        before = self.shares.get(sender, as_words(message["shares"])).shape[1]
        if (message["matrix"].shape, message["shares"].shape) != shapes or before != columns:
            raise ProtocolError(f"{sender}: its matrix does not fit its {columns} columns; the message is refused")
        self._columns[sender], self._matrices[sender] = as_words(message["words"]), as_words(message["matrix"])
        self._hidden[sender] = as_words(message["shares"])
        self.shares.setdefault(sender, np.zeros((bands, columns), dtype=np.uint64))
        return self.proceed()

    def _lacks_corrections(self, message: Message) -> bool:
        """Return whether the dealer's words belong to an exchange that has not begun."""
        waits = self._waiting is not None or (self.ending and not self.closed and not self._unkept)
        begun = not waits or self._corrections is not None or len(self._words) > 0
        return not begun and message.integer("number") == self.number

    def _awaits(self, sender: str, message: Message) -> bool:
        """Return whether a party's hidden shares belong to the exchange that is under way."""
        if sender not in self._columns or sender in self._slopes or not len(self._words):
            return False
        columns = len(self._columns[sender])
        tags = (0, 0) if sender in self._tags else (columns, CHECKS)
        shapes = (1 + (0 if self._last else self.trail.bands), columns), tags
        fits = (message["words"].shape, message["tags"].shape) == shapes
        return message.integer("number") == self.number and fits

    @property
    def _last(self) -> bool:
        return self._waiting is not None and bool(self._waiting.integer("last"))

    @property
    def ready(self) -> bool:
        return self._corrections is not None and len(self._columns) == len(self.members)

    def request(self) -> Sends:
        return [self._next_triple(int(self._last))]

    def _next_triple(self, last: int) -> Message:
        kept = np.array(self.trail.numbers, dtype=np.int64)
        return NEXT_TRIPLE.message(SERVER, self._dealer, number=self.number, last=last, kept=kept)

    def begin_exchange(self, ask: Ask) -> None:
        message, bands = self._corrections, self.trail.bands
        assert message is not None
        self._corrections, self._slopes = None, {}
        widths = [len(self._columns[name]) for name in self.members]
        shares = 0 if ask.last else bands
        self._check_sizes(
            message,
            slopes=sum(widths),
            directions=shares * sum(widths),
            scores=shares * self.grid.rows,
            products=1 + shares * bands * (len(ask.kept) + 1),
            checks=2 * shares * CHECKS,
            tags=0 if self._dealt_tags else CHECKS * sum(widths),
        )
        ends = np.cumsum(widths)[:-1]
        self._of_nu = dict(zip(self.members, np.split(as_words(message["slopes"]), ends), strict=True))
        self._of_slope = dict(zip(self.members, np.split(as_words(message["directions"]), shares * ends), strict=True))
        self._of_directions = as_words(message["scores"]).reshape(shares, self.grid.rows)
        self._products = as_words(message["products"])
        self._scores, self._checks = self._of_directions, as_words(message["checks"]).reshape(2, shares, CHECKS)
        if not self._dealt_tags:
            parts = np.split(as_words(message["tags"]), CHECKS * ends)
            self._dealt_tags = {name: one.reshape(-1, CHECKS) for name, one in zip(self.members, parts, strict=True)}
        self._nu, self._pull = self._random.nu(ask.number), self._random.pull(ask.number, bands * len(ask.kept))

    @staticmethod
    def _check_sizes(message: Message, **sizes: int) -> None:
        """Refuse another number of the dealer's words than an exchange needs."""
        for key in DEALT:
            if len(message[key]) != sizes.get(key, 0):
                raise ProtocolError(f"the dealer sends {len(message[key])} {key} for {sizes.get(key, 0)}; refused")

    def _masks(self, name: str, number: int) -> Words:
        return self._random.shares(name, len(self._columns[name]), number)

    def _kept_masks(self, name: str) -> Words:
        return np.concatenate([self._masks(name, number)[1:] for number in self.trail.numbers])

    def slope_share(self, name: str, ask: Ask, nu: Words, pull: Words) -> Words:
        self._sent_nu, self._sent_pull = (nu - self._nu).view(np.int64), (pull - self._pull).view(np.int64)
        return times(self._columns[name], self._nu) + times(self._hidden[name].T, self._pull) + self._of_nu[name]

    def direction_share(self, name: str, ask: Ask, slope: Words) -> Words:
        return times(self._matrices[name], self._masks(name, ask.number)[0]) + self._of_slope[name]

    def scores_share(self, name: str, ask: Ask, new: Words) -> Words:
        # The dealer's words are for the sum over all parties: they are added once.
        once, self._of_directions = self._of_directions, np.zeros_like(self._of_directions)
        return combine(self._masks(name, ask.number)[1:], self._columns[name]) + once

    def told(self, name: str, ask: Ask, slope: Words, new: Words) -> Message:
        shares = np.concatenate([slope[None], new])
        shares = shares - self._masks(name, ask.number)[: len(shares)]
        earlier = self.shares[name][:0]
        if not self._began:
            earlier = self.shares[name][: self.trail.bands * len(ask.kept)] - self._kept_masks(name)
        self._answers[name] = shares[1:]
        tags = np.zeros((0, 0), dtype=np.uint64)
        if not self._began:
            tags = self._sketch_of(name) + self._random.checked(name, len(self._columns[name]))
        words = {"nu": self._sent_nu, "shares": shares.view(np.int64), "earlier": earlier.view(np.int64)}
        words |= {"pull": self._sent_pull, "tags": tags.view(np.int64)}
        words |= {"checks": np.frombuffer(self._key, dtype=np.uint8)}
        if name == self.members[-1]:
            self._began = True
        return HIDDEN_DERIVATIVE.message(SERVER, name, **ask.fields(), **words)

    def _sketch_of(self, name: str) -> Words:
        """Return the sketch of a party's hidden columns, which parties are checked with."""
        if name not in self._sketched:
            self._sketched[name] = self._random.sketch()(self._columns[name])
        return self._sketched[name]

    def n_checks(self, ask: Ask) -> int:
        return 0 if ask.last else 2 * self.trail.bands * CHECKS

    def check_products(self, scores: Words, checks: Words) -> None:
        """Check the dealer's words for the changes of scores, then the parties': see `checking.py`."""
        if not len(checks):
            return
        vouched = checks.reshape(2, -1, CHECKS)
        dealt, bound = np.zeros_like(vouched[0]), vouched[1] + self._checks[1]
        for name in self.members:
            dealt += np.matmul(self._masks(name, self.number)[1:], self._tags[name])
            bound += np.matmul(self._answers[name], self._sketch_of(name) + self._dealt_tags[name])
        sketched = Sketch(self._key, "triples", self.grid.rows)(self._scores) + self._checks[0]
        if (dealt - sketched != vouched[0]).any():
            raise ProtocolError(
                f"the words of {self._dealer}, the dealer, do not fit the random words of {', '.join(self.members)}; "
                "the dealer or one of them is wrong, and the run ends"
            )
        if (self._random.sketch()(scores) != bound).any():
            raise ProtocolError(
                f"the answers of {', '.join(self.members)} do not fit the columns that they have hidden; one of them, "
                f"or {self._dealer} with its tags, is wrong, and the run ends"
            )

    @property
    def crossed_all(self) -> bool:
        return len(self._slopes) == len(self.members)

    def cross(self, last: bool) -> Words:
        total = self._products
        for name in self.members:
            slope = self._slopes[name], self._masks(name, self.number)[:1]
            inner = crossed(slope, slope)
            if not last:
                every, bands = (self._hidden[name], self._kept_masks(name)), self.trail.bands
                inner = np.append(crossed((every[0][-bands:], every[1][-bands:]), every), inner)
            total = total + inner.ravel()
        return total

    def dropped(self) -> None:
        self._hidden = {name: words[: -self.trail.bands] for name, words in self._hidden.items()}

    def request_final(self) -> Sends:
        self._corrections = None
        return [self._next_triple(FINAL)]

    def _send_factors(self, message: Message) -> Sends:
        """Send the coefficients of the final weights hidden, and compute the server's shares of the products."""
        widths = [len(self._columns[name]) for name in self.members]
        self._check_sizes(message, slopes=LIMBS * sum(widths))
        random = self._random.factors(self.number, len(self.trail.weights))
        parts = np.split(as_words(message["slopes"]), LIMBS * np.cumsum(widths)[:-1])
        for name, words in zip(self.members, parts, strict=True):
            self._kept[name] = np.matmul(random, self._hidden[name]) + words.reshape(LIMBS, -1)
        self._unkept = list(self.members)
        hidden = (self.factors - random).view(np.int64)
        return HIDDEN_COEFFICIENTS.messages(SERVER, self.members, number=self.number, words=hidden)

    def _end(self) -> Sends:
        sends, self._kept = self.end(self._kept), {}
        self._seed = b""
        self._corrections, self._columns, self._matrices, self._hidden, self._slopes = None, {}, {}, {}, {}
        self._tags, self._dealt_tags, self._answers, self._sketched = {}, {}, {}, {}
        return [*sends, NEXT_TRIPLE.message(SERVER, self._dealer, number=NO_MORE, last=1, kept=np.zeros(0, np.int64))]
