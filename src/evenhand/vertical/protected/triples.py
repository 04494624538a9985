"""Random words that two participants draw from a common seed, and the dealer that knows all of them (`dealing.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from evenhand.errors import ProtocolError
from evenhand.privacy.fixed_products import LIMBS, combine, times
from evenhand.privacy.key_exchange import Session
from evenhand.privacy.pairwise import Words, stream
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER, Role, Sends
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.protected.checking import CHECKS, Sketch
from evenhand.vertical.protected.flatness import BLOCKS, answer_of, block_sums
from evenhand.vertical.protected.messages import AUDIT, AUDITED, CORRECTIONS, DEALT, JOINING, NEXT_TRIPLE, TRIPLES
from evenhand.vertical.protected.sharing import MOST_COLUMNS, crossed
from evenhand.vertical.protected.trail import START
from evenhand.vertical.subspace.party import Subspace

NO_MORE: Final = -1
"""Number of a triple that means: no more triples are needed."""
FINAL: Final = 2
"""In place of `last`: the triple is for the coefficients of the final weights."""


def as_words(array: Any) -> Words:
    """Return integers of a message as words."""
    return np.asarray(array).view(np.uint64)


class PartySeed:
    """Random words that a party and the dealer both draw."""

    def __init__(self, seed: bytes, columns: int, rows: int, bands: int) -> None:
        self._seed, self._columns, self._rows, self._bands = seed, columns, rows, bands

    def columns(self) -> Words:
        """(m, n): what hides the columns."""
        return self._draw("columns", self._columns, self._rows)

    def matrix(self) -> Words:
        """(bands · m, m): what hides −H⁻¹."""
        return self._draw("matrix", self._bands * self._columns, self._columns)

    def shares(self, number: int) -> Words:
        """(1 + bands, m): what hides the shares of the slope and of the directions."""
        return self._draw(f"shares {number}", 1 + self._bands, self._columns)

    def slope(self, number: int) -> Words:
        return self._draw(f"slope {number}", self._columns)

    def directions(self, number: int) -> Words:
        return self._draw(f"directions {number}", self._bands * self._columns)

    def scores(self, number: int) -> Words:
        return self._draw(f"scores {number}", self._bands, self._rows)

    def weights(self, number: int) -> Words:
        """(LIMBS, m): what hides the products of directions with coefficients."""
        return self._draw(f"weights {number}", LIMBS, self._columns)

    def kept(self, numbers: Iterable[int]) -> Words:
        """(bands · numbers, m): what hides the shares of the directions of these exchanges."""
        return np.concatenate([self.shares(number)[1:] for number in numbers])

    def products(self, number: int, size: int) -> Words:
        return self._draw(f"products {number}", size)

    def checked(self) -> tuple[Words, Words]:
        """(m, CHECKS) each: what hides the party's sketch of its random words, and the dealer's."""
        return self._draw("checks of the dealer", self._columns, CHECKS), self._draw("checks", self._columns, CHECKS)

    def checks(self, number: int) -> tuple[Words, Words]:
        """(bands, CHECKS) each: what hides the checks of one exchange."""
        drawn = self._draw(f"checks {number}", 2, self._bands, CHECKS)
        return drawn[0], drawn[1]

    def _draw(self, label: str, *shape: int) -> Words:
        return stream(self._seed, label, int(np.prod(shape))).reshape(shape)


class ServerSeed:
    """Random words that the server and the dealer both draw."""

    def __init__(self, seed: bytes, rows: int, bands: int) -> None:
        self._seed, self._rows, self._bands = seed, rows, bands

    def nu(self, number: int) -> Words:
        """What hides ν."""
        return stream(self._seed, f"derivative {number}", self._rows)

    def pull(self, number: int, size: int) -> Words:
        """What hides the coefficients of the weights so far."""
        return stream(self._seed, f"pull {number}", size)

    def factors(self, number: int, size: int) -> Words:
        """(LIMBS, size): what hides the coefficients of the final weights."""
        return stream(self._seed, f"factors {number}", LIMBS * size).reshape(LIMBS, size)

    def shares(self, name: str, columns: int, number: int) -> Words:
        """(1 + bands, m): what hides the server's shares of one party's slope and directions."""
        drawn = stream(self._seed, f"shares {number} {name}", (1 + self._bands) * columns)
        return drawn.reshape(1 + self._bands, columns)

    def checked(self, name: str, columns: int) -> Words:
        """(m, CHECKS): what hides the server's sketch of one party's hidden columns."""
        return stream(self._seed, f"checks {name}", columns * CHECKS).reshape(columns, CHECKS)

    def sketch(self) -> Sketch:
        """What the parties' words are checked with."""
        return Sketch(self._seed, "scores", self._rows)


class DealerRole(Role):
    """Deals matching random numbers. It has no data, and knows only the numbers of rows, columns and rounds."""

    vocabulary = TRIPLES
    state_fields: ClassVar = {
        "_columns": dict[str, int],
        "_asked": Message | None,
        "_number": int,
        "_answered": int,
        "_checked": bool,
        "_audited": dict[str, int],
    }

    def __init__(self, name: str, terms: VerticalTerms, session: Session) -> None:
        self.bands = terms.job.settings(Subspace).bands_asked(terms)
        super().__init__(name, {"rows": terms.n_rows, "bands": self.bands})
        self.rows, self.members = terms.n_rows, terms.passive
        self._seeds = {peer: session.seed(peer, f"triples {terms.digest}") for peer in (SERVER, *self.members)}
        self._columns: dict[str, int] = {}
        self._masks: dict[str, tuple[Words, Words, Words]] = {}
        self._checked = False
        self._audited: dict[str, int] = {}
        self._asked: Message | None = None
        self._number = self._answered = 0

    def handle(self, message: Message) -> Sends:
        sender = message.sender
        if self.done:
            raise ProtocolError(f"the dealer has ended and takes no {message.kind!r} from {sender!r}")
        if message.kind == JOINING.kind and sender in self.members and sender not in self._columns:
            if not 0 <= message.integer("columns") <= MOST_COLUMNS:
                raise ProtocolError(f"{sender} has {message.integer('columns')} columns; the message is refused")
            self._columns[sender] = message.integer("columns")
            return self._answer()
        if message.kind == NEXT_TRIPLE.kind and sender == SERVER and self._asked is None:
            if message.integer("number") == NO_MORE:
                self.done = True
                self._seeds, self._masks, self._columns = {}, {}, {}
                return ()
            # A number that came before would give the server two products under the same random words.
            if message.integer("number") > self._number and self._may_keep(message):
                self._asked, self._number = message, message.integer("number")
                return self._answer()
        if message.kind == AUDIT.kind and sender in self._columns and self._may_audit(sender, message):
            self._audited[sender] = self._number
            hidden = ServerSeed(self._seeds[SERVER], self.rows, self.bands).nu(self._number)
            sums = as_words(message["sums"]) + block_sums(hidden, message["seed"].tobytes())
            return [AUDITED.message(self.name, sender, number=self._number, answer=answer_of(sums, self.rows))]
        raise ProtocolError(f"the dealer takes no {message.kind!r} from {sender!r} at this point")

    def _may_keep(self, message: Message) -> bool:
        """Return whether the directions that count are of earlier exchanges, each once."""
        kept = message["kept"]
        fits = 0 < len(kept) <= 1 + self._answered and kept[0] == START and kept[-1] < message.integer("number")
        return bool(fits and (kept[1:] > kept[:-1]).all())

    def _may_audit(self, sender: str, message: Message) -> bool:
        """Return whether a party asks about the present exchange, for the first time."""
        fits = message.integer("number") == self._number and len(message["sums"]) == BLOCKS
        return fits and self._asked is None and self._audited.get(sender, 0) < self._number

    def _answer(self) -> Sends:
        """Return the requested triple once all participants have joined."""
        if self._asked is None or len(self._columns) < len(self.members):
            return ()
        asked, self._asked = self._asked, None
        self._answered += 1
        return [self._final(asked) if asked.integer("last") == FINAL else self._corrections(asked)]

    def _party(self, name: str) -> PartySeed:
        return PartySeed(self._seeds[name], self._columns[name], self.rows, self.bands)

    def _final(self, asked: Message) -> Message:
        """Return the triple for the coefficients of the final weights."""
        number, kept = asked.integer("number"), asked["kept"].tolist()
        factors = ServerSeed(self._seeds[SERVER], self.rows, self.bands).factors(number, self.bands * len(kept))
        parts = [np.matmul(factors, one.kept(kept)) - one.weights(number) for one in map(self._party, self.members)]
        return self._sent(number, slopes=[one.ravel() for one in parts])

    def _sent(self, number: int, **parts: Sequence[Words]) -> Message:
        body = {key: _joined(parts.get(key, ())).view(np.int64) for key in DEALT}
        return CORRECTIONS.message(self.name, SERVER, number=number, **body)

    def _corrections(self, asked: Message) -> Message:
        number, last = asked.integer("number"), bool(asked.integer("last"))
        kept = asked["kept"].tolist()
        server = ServerSeed(self._seeds[SERVER], self.rows, self.bands)
        nu, pull = server.nu(number), server.pull(number, self.bands * len(kept))
        slopes, directions, tags, sketch = [], [], [], server.sketch()
        checks = np.zeros((2, 0 if last else self.bands, CHECKS), dtype=np.uint64)
        scores = np.zeros((0 if last else self.bands, self.rows), dtype=np.uint64)
        products = np.zeros(1 if last else 1 + self.bands**2 * (len(kept) + 1), dtype=np.uint64)
        every = np.zeros_like(scores)
        for name in self.members:
            columns = self._columns[name]
            party = self._party(name)
            if name not in self._masks:
                hidden = party.columns()
                self._masks[name] = hidden, party.matrix(), sketch(hidden)
            masks, matrix, sketched = self._masks[name]
            first, second = party.checked()
            if not self._checked:
                tags.append((sketched + second).ravel())
            earlier = party.kept(kept)
            slopes.append(times(masks, nu) + times(earlier.T, pull) - party.slope(number))
            one, other = party.shares(number), server.shares(name, columns, number)
            inner = np.zeros(0, dtype=np.uint64)
            if not last:
                directions.append(times(matrix, other[0]) - party.directions(number))
                drawn = party.scores(number)
                scores += combine(other[1:], masks) - drawn
                extra, fresh = party.checks(number)
                checks[0] += np.matmul(other[1:], first) - extra
                checks[1] += fresh + np.matmul(one[1:], sketched - server.checked(name, columns))
                every += drawn
                ones = np.concatenate([earlier, one[1:]])
                others = np.concatenate([server.shares(name, columns, old)[1:] for old in (*kept, number)])
                inner = crossed((one[1:], other[1:]), (ones, others)).ravel()
            inner = np.append(inner, crossed((one[:1], other[:1]), (one[:1], other[:1])))
            products += inner - party.products(number, len(inner))
            self.effort += float((1 + self.bands) * columns * self.rows)
        checks[1] += sketch(every)
        self._checked = True
        found = {"slopes": slopes, "directions": directions, "scores": [scores.ravel()], "products": [products]}
        return self._sent(number, **found, checks=[checks.ravel()], tags=tags)

    def resumed(self) -> Sends:
        """Wait for everybody to join again: the attempt has new seeds."""
        self._columns, self._checked = {}, False
        return ()

    def restored(self) -> None:
        self._masks = {}


def _joined(parts: Sequence[Words]) -> Words:
    return np.concatenate([np.zeros(0, dtype=np.uint64), *parts])
