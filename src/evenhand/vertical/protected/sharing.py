"""Subspace rounds on shared weights: a passive party learns nothing of the labels, and the server only sums.

All that a party does in a round is linear in ν: its slope w = X_kᵀν + μθ_k, its direction d = −H⁻¹w, and the change
X_k d of every row's score. The party and the server, which works at the label holder's side, hold w, d and θ_k in
additive shares modulo 2⁶⁴. Three products of a matrix of the party with a vector of the server are needed: X_kᵀν,
H⁻¹ times the server's share of w, and X_k times its share of d. Triples of a dealer (`dealing.py`) or encryption
(`encrypting.py`) give each of the two a share of the product, and nothing else.

The sum over parties of X_k d opens to the server, under the masks of `masking.py`, and so do the sums of inner products
of directions. Coefficients return in the clear. At the end the server sends each party its share of θ_k.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.losses import LOSSES
from evenhand.errors import DataError, ProtocolError, RunError
from evenhand.models.linear import LinearModel
from evenhand.models.preconditioner import make_preconditioner
from evenhand.privacy.fixed_point import decode, encode
from evenhand.privacy.fixed_products import (
    DIRECTION_BITS,
    DIRECTION_CUT,
    WEIGHT_BITS,
    ProductGrid,
    combine,
    cut,
    in_range,
    times,
    weight_words,
)
from evenhand.privacy.pairwise import Words
from evenhand.protocol.messages import Message, Vocabulary
from evenhand.protocol.roles import SERVER, Role, Sends
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.messages import COEFFICIENTS, DERIVATIVE, DIRECTION, GO_BACK, GRADIENT_NORM, SCORES
from evenhand.vertical.problem import Party, PartyData, own_model
from evenhand.vertical.protected.layer import Layer
from evenhand.vertical.protected.messages import SHARED_DIRECTION, WEIGHT_SHARE
from evenhand.vertical.protected.trail import Trail
from evenhand.vertical.subspace.options import Subspace

MOST_COLUMNS: Final = 1024
"""Maximum number of columns of a party: it forms a matrix of their square."""
LEAST_RIDGE: Final = 1e-3
"""Least ridge of the curvature that directions are computed with, so that −H⁻¹ stays small in fixed point."""
MOST_REPEATS: Final = 6
"""Maximum number of exchanges in a row that fail the range check."""
MOST_REPEATED: Final = 12
"""Maximum number of repeated exchanges that a party answers in a run."""
SHORTER: Final = 4
"""By how many powers of two directions are shortened when an exchange is repeated."""
MOST_LENGTHENED: Final = 16
"""Maximum power of two by which directions are lengthened near the optimum, where they would lose their digits."""


@dataclass(frozen=True)
class Ask:
    """The public numbers of one exchange.

    Attributes
    ----------
    number
        Rises with every exchange, also with one that is repeated.
    last
        Whether only the norm of the slope is asked for.
    scale, lengthen
        Powers of two by which ν was scaled down, and by which directions are lengthened.
    kept
        Numbers of the exchanges whose directions count.
    """

    round: int
    last: int
    number: int
    scale: int
    lengthen: int
    kept: tuple[int, ...]

    @classmethod
    def of(cls, message: Message) -> Ask:
        heads = {name: message.integer(name) for name in ("round", "last", "number", "scale", "lengthen")}
        return cls(**heads, kept=tuple(int(one) for one in message["kept"]))

    def fields(self) -> dict[str, Any]:
        heads = {name: getattr(self, name) for name in ("round", "last", "number", "scale", "lengthen")}
        return heads | {"kept": np.array(self.kept, dtype=np.int64)}

    def direction(self, product: Words, spare: int, *, first: bool) -> Words:
        """Cut a share of −H⁻¹w to the binary places of directions."""
        longer = product << np.uint64(max(self.lengthen, 0))
        return cut(longer, DIRECTION_CUT + spare - min(self.lengthen, 0), first=first)


def crossed(new: tuple[Words, Words], every: tuple[Words, Words]) -> Words:
    """Return x·yᵀ + y·xᵀ for new vectors (x, y) with all vectors."""
    return np.matmul(new[0], every[1].T) + np.matmul(new[1], every[0].T)


class SharedParty(Party):
    """A passive party that holds shares of its slope, its directions and its weights.

    Attributes
    ----------
    spare
        Low binary places that products have on top of those of the grid.
    shares
        (bands · numbers, columns): the party's shares of all directions that count.
    """

    spare: ClassVar[int] = 0
    state_fields: ClassVar = {"trail": Trail, "shares": Words, "number": int, "exchanged": int, "repeated": int}
    model: LinearModel

    def __init__(self, terms: VerticalTerms, name: str, own: PartyData, level: Vocabulary) -> None:
        grid = ProductGrid(terms.n_rows)
        model = own_model(terms, name, PartyData(grid.on_grid(own.matrix), own.weights))
        assert isinstance(model, LinearModel)
        super().__init__(terms, name, model)
        self.vocabulary = Vocabulary(SCORES, COEFFICIENTS, GO_BACK, SHARED_DIRECTION, WEIGHT_SHARE, *level)
        self.grid, self.columns = grid, model.columns
        if self.columns > MOST_COLUMNS:
            raise DataError(
                f"{name} has {self.columns} columns; protection {terms.job.protection!r} takes at most {MOST_COLUMNS}. "
                "Leave out columns, or choose protection 'masked'"
            )
        options = terms.job.settings(Subspace)
        bands, history = options.bands_asked(terms), options.steps_kept(terms)
        self.sizes = {**self.sizes, "bands": bands, "basis": bands + history, "columns": self.columns}
        self.words = grid.columns(model.matrix, name)
        self.matrix = grid.matrix(self._inverse(bands))
        self.trail = Trail(bands, history)
        start = np.vstack([model.weights, np.zeros((bands - 1, self.columns))])
        self.shares: Words = encode(start, DIRECTION_BITS)
        model.weights = decode(self.shares[0], DIRECTION_BITS)
        self.number = self.exchanged = self.repeated = 0

    def _inverse(self, bands: int) -> Array:
        """(bands · m, m): H⁻¹ with the bound on the curvature, by bands of its spectrum."""
        bound = LOSSES[self.terms.job.loss].curvature_bound / self.terms.n_rows
        ridge = max(self.model.regulariser, LEAST_RIDGE)
        solver = make_preconditioner(self.model.matrix, bound, ridge)
        found = np.array([solver.solve(one, None, bands) for one in np.eye(self.columns)])
        return found.transpose(1, 2, 0).reshape(bands * self.columns, self.columns)

    def start(self) -> Sends:
        if not self.terms.warm:
            return ()
        body = {"scores": self.model.scores(), "squared_norm": self.model.squared_norm(), "squared_move": 0.0}
        return [SCORES.message(self.name, SERVER, round=0, sequence=1, **body)]

    def handle(self, message: Message) -> Sends:
        if message.kind == COEFFICIENTS.kind:
            self.round = message.integer("round")
            self.trail.go(message["coefficients"], keep=bool(message.integer("keep")))
            return ()
        if message.kind == GO_BACK.kind:
            self.trail.go_back()
            return ()
        if message.kind == WEIGHT_SHARE.kind:
            own = times(self.shares.T, weight_words(self.trail.weights))
            self.model.weights = decode(own + message["words"].view(np.uint64), DIRECTION_BITS + WEIGHT_BITS)
            self.forget()
            self.done = True
            return ()
        raise ProtocolError(f"{self.name} takes no {message.kind!r} at this point")

    def asked(self, message: Message) -> Ask:
        """Read and check what is asked. A number is answered once, and rounds only as often as the terms say."""
        ask, trail = Ask.of(message), self.trail
        if ask.number <= self.number:
            raise ProtocolError(f"{self.name} has answered number {self.number}; number {ask.number} is refused")
        again = tuple(trail.numbers[:-1]) == ask.kept and not trail.weights[-trail.bands :].any()
        most = self.terms.job.max_rounds + (1 if ask.last else 0)
        if self.repeated >= MOST_REPEATED if again else self.exchanged >= most:
            raise ProtocolError(f"{self.name} has answered {self.exchanged} exchanges, as many as the terms allow")
        if ask.kept != tuple(trail.numbers) and not again:
            raise ProtocolError(f"{self.name}: the server counts other directions than it was given; refused")
        if not -32 <= ask.lengthen <= MOST_LENGTHENED or not 0 <= ask.scale <= 40:
            raise ProtocolError(f"{self.name}: no direction has such a length; the message is refused")
        return ask

    def answer(self, ask: Ask, slope: Words, of_slope: Words, of_directions: Words) -> Sends:
        """Answer an exchange.

        Parameters
        ----------
        slope, of_slope, of_directions
            The party's shares of X_kᵀν, of −H⁻¹ times the server's share of the slope, and of X_k times the server's
            shares of the directions.
        """
        trail, bands, spare = self.trail, self.trail.bands, np.uint64(self.spare)
        if ask.kept != tuple(trail.numbers):
            self._drop_last()
            self.repeated += 1
        else:
            self.exchanged += 1
        self.number, self.round = ask.number, ask.round
        pull = times(self.shares.T, self.grid.pull(trail.weights, self.terms.regulariser, ask.scale))
        slope = cut(slope + (pull << spare), self.grid.slope_cut + self.spare, first=False)
        new, opened = np.zeros((0, self.columns), dtype=np.uint64), np.zeros(0, dtype=np.uint64)
        if not ask.last:
            product = (times(self.matrix, slope) << spare) + of_slope
            new = ask.direction(product, self.spare, first=False).reshape(bands, -1)
            opened = ((combine(new, self.words) << spare) + of_directions).ravel()
        every = np.concatenate([self.shares, new])
        cross, sends = self.cross(ask, slope[None], new, every)
        inner = np.append(np.matmul(new, every.T).ravel(), times(slope[None], slope)) << spare
        if not ask.last:
            trail.extend(ask.number)
            self.shares = every
        self.effort += float((1 + 2 * bands) * self.words.size)
        words = np.concatenate([opened, inner + cross]).view(np.int64)
        answer = SHARED_DIRECTION.message(self.name, SERVER, number=ask.number, words=words)
        # What the sum of these words opens to: the party's policy applies to it.
        inner_kind = GRADIENT_NORM.kind if ask.last else DIRECTION.kind
        return [*sends, answer.hiding([Message(self.name, SERVER, inner_kind, {})])]

    def _drop_last(self) -> None:
        self.trail.drop_last()
        self.shares = self.shares[: -self.trail.bands]

    @abstractmethod
    def cross(self, ask: Ask, slope: Words, new: Words, every: Words) -> tuple[Words, Sends]:
        """Return shares of the inner products of this party's shares with the server's, and messages for the server.

        Those of the new directions with all directions come first, and that of the slope with itself last.
        """

    def forget(self) -> None:
        """Delete all shares and secrets once the weights are known."""
        self.shares = np.zeros((0, self.columns), dtype=np.uint64)


class SharedServer(Layer):
    """Server's side: stands for all passive parties as `together`, and holds its shares of their directions."""

    spare: ClassVar[int] = 0
    state_fields: ClassVar = {
        "trail": Trail,
        "number": int,
        "shares": dict[str, Words],
        "gram": Array,
        "length": float,
        "repeats": int,
        "_waiting": Message | None,
        "_sum": Message | None,
        "_words": Words,
        "_lengthen": int,
    }

    def __init__(self, inner: Role, terms: VerticalTerms, together: str, level: Vocabulary) -> None:
        super().__init__(inner, Vocabulary(SHARED_DIRECTION, WEIGHT_SHARE, *level))
        options = terms.job.settings(Subspace)
        self.trail = Trail(options.bands_asked(terms), options.steps_kept(terms))
        self.grid, self.members, self.together = ProductGrid(terms.n_rows), terms.passive, together
        self.regulariser = terms.regulariser
        self.number = 0
        self.shares: dict[str, Words] = {}
        self.gram: Array = np.zeros((self.trail.bands, self.trail.bands))
        self.length = 1.0
        self.repeats = 0
        self._waiting: Message | None = None
        self._sum: Message | None = None
        self._words: Words = np.zeros(0, dtype=np.uint64)
        self._lengthen = 0

    def inwards(self, message: Message) -> Sends:
        if message.kind == SCORES.kind and message.sender == self.together:
            self.gram[0, 0] = message.number("squared_norm")
        return super().inwards(message)

    def outwards(self, messages: Sends) -> Sends:
        """Hold back ν, and follow the steps that the inner server takes."""
        sends: list[Message] = []
        for one in messages:
            if one.receiver != self.together:
                sends.append(one)
                continue
            if one.kind == DERIVATIVE.kind:
                self._waiting, self.repeats = one, 0
                sends += self._ask_next()
                continue
            if one.kind == COEFFICIENTS.kind:
                self.trail.go(one["coefficients"], keep=bool(one.integer("keep")))
            elif one.kind == GO_BACK.kind:
                self.trail.go_back()
            sends.append(one)
        return sends

    def _ask_next(self) -> Sends:
        self.number += 1
        return [*self.request(), *self.proceed()]

    def request(self) -> Sends:
        """Request what the next exchange needs from others."""
        return ()

    def ask(self, message: Message, scale: int) -> Ask:
        return Ask(
            message.integer("round"),
            message.integer("last"),
            self.number,
            scale,
            self._lengthen,
            tuple(self.trail.numbers),
        )

    def proceed(self) -> Sends:
        """Begin the exchange about the waiting ν, if everything that it needs has arrived."""
        if self._waiting is None or not self.ready:
            return ()
        nu, scale = self.grid.nu(self._waiting["nu"])
        wanted = int(np.floor(-np.log2(max(self.length, 1e-12)))) + scale
        self._lengthen = int(np.clip(wanted, -SHORTER, MOST_LENGTHENED)) - SHORTER * self.repeats
        ask = self.ask(self._waiting, scale)
        self.begin_exchange(ask)
        spare, bands = np.uint64(self.spare), self.trail.bands
        pull = self.grid.pull(self.trail.weights, self.regulariser, scale)
        opened = np.zeros((0 if ask.last else bands, self.grid.rows), dtype=np.uint64)
        inner = np.zeros(1, dtype=np.uint64) if ask.last else np.zeros(1 + bands * (len(pull) + bands), np.uint64)
        sends: list[Message] = []
        for name in self.members:
            slope = self.slope_share(name, ask, nu) + (times(self.shares[name].T, pull) << spare)
            slope = cut(slope, self.grid.slope_cut + self.spare, first=True)
            new = np.zeros((0, len(slope)), dtype=np.uint64)
            if not ask.last:
                product = self.direction_share(name, ask, slope)
                new = ask.direction(product, self.spare, first=True).reshape(bands, -1)
                opened += self.scores_share(name, ask, new)
                self.shares[name] = np.concatenate([self.shares[name], new])
            inner += np.append(np.matmul(new, self.shares[name].T).ravel(), times(slope[None], slope)) << spare
            sends.append(self.told(name, ask, slope, new))
            self.spent += float((1 + bands) * self.grid.rows * len(slope))
        self._words = np.concatenate([opened.ravel(), inner])
        if not ask.last:
            self.trail.extend(ask.number)
        return sends

    def take(self, message: Message) -> Sends:
        if message.kind == SHARED_DIRECTION.kind and message.sender == self.together:
            if self._sum is not None or message.integer("number") != self.number or not len(self._words):
                raise ProtocolError("the parties answer an exchange that was not asked for; refused")
            if len(message["words"]) != len(self._words):
                raise ProtocolError(f"the parties send {len(message['words'])} words, not {len(self._words)}; refused")
            self._sum = message
            return self.open()
        raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender!r} at this point")

    def open(self) -> Sends:
        """Open the sums of an exchange once everything of it has arrived, and hand them to the inner server."""
        if self._sum is None or self._waiting is None or not self.crossed_all:
            return ()
        words, message = self._sum["words"].view(np.uint64) + self._words, self._waiting
        bands, rows = self.trail.bands, self.grid.rows
        last = bool(message.integer("last"))
        size = 0 if last else bands * rows
        words[size:] += self.cross(last)
        self._sum, self._words = None, np.zeros(0, dtype=np.uint64)
        scale = self.grid.nu(message["nu"])[1]
        unit = self.grid.slope_unit * 2.0**scale
        squared = float(decode(words[-1:], self.spare)[0]) * unit**2
        if last:
            self._waiting = None
            return self.found(GRADIENT_NORM.message(self.together, SERVER, squared_gradient=max(squared, 0.0)))
        scores = decode(words[:size].reshape(bands, rows), self.grid.column_bits + DIRECTION_BITS + self.spare)
        if not in_range(scores):
            return self._repeat()
        self._waiting = None
        lengthened = 2.0 ** (self._lengthen - scale)
        self.length = min(max(float(np.abs(scores).max(initial=0.0)) / lengthened, 1e-12), 1.0)
        products = decode(words[size:-1].reshape(bands, -1), 2 * DIRECTION_BITS + self.spare)
        return self.found(self._direction(message, scores, products, squared, lengthened))

    def _repeat(self) -> Sends:
        """Repeat an exchange with new shares and shorter directions: a share was cut wrongly."""
        self.repeats += 1
        if self.repeats > MOST_REPEATS:
            raise RunError(
                f"directions are out of range in {self.repeats} exchanges in a row; scale the columns (scale=True does)"
            )
        self.trail.drop_last()
        for name in self.members:
            self.shares[name] = self.shares[name][: -self.trail.bands]
        self.dropped()
        return self._ask_next()

    def _direction(
        self, message: Message, scores: Array, products: Array, squared: float, lengthened: float
    ) -> Message:
        """Return what all passive parties together would have sent without protection."""
        trail, bands = self.trail, self.trail.bands
        gram = np.zeros((len(trail.weights), len(trail.weights)))
        gram[:-bands, :-bands] = self.gram
        gram[-bands:], gram[:, -bands:] = products, products.T
        self.gram = gram
        basis, full = trail.basis, np.zeros((bands + trail.history, len(trail.weights)))
        full[: len(basis)] = basis
        linear = full @ gram @ trail.weights
        slopes = scores @ message["nu"] + self.regulariser * linear[:bands]
        return DIRECTION.message(
            self.together,
            SERVER,
            round=message.integer("round"),
            scores=scores,
            gram=full @ gram @ full.T,
            linear=linear,
            squared_norm=trail.weights @ gram @ trail.weights,
            squared_gradient=max(squared, 0.0),
            decrement=-0.5 * float(slopes.sum()) / lengthened,
        )

    def ended(self) -> Sends:
        """Send each party the server's share of its weights, and delete all others."""
        factors = weight_words(self.trail.weights)
        sends = [
            WEIGHT_SHARE.message(SERVER, name, words=times(self.shares[name].T, factors).view(np.int64))
            for name in self.members
        ]
        self.shares = {}
        return sends

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether the next exchange can begin."""

    def begin_exchange(self, ask: Ask) -> None:
        """Prepare an exchange."""

    def dropped(self) -> None:
        """Forget what was kept of the last exchange."""

    @abstractmethod
    def slope_share(self, name: str, ask: Ask, nu: Words) -> Words:
        """Return the server's share of X_kᵀν."""

    @abstractmethod
    def direction_share(self, name: str, ask: Ask, slope: Words) -> Words:
        """Return the server's share of −H⁻¹ times its share of the slope."""

    @abstractmethod
    def scores_share(self, name: str, ask: Ask, new: Words) -> Words:
        """Return the server's share of X_k times its shares of the directions, (bands, rows)."""

    @abstractmethod
    def told(self, name: str, ask: Ask, slope: Words, new: Words) -> Message:
        """Return the message that gives a party its shares of the three products."""

    @property
    @abstractmethod
    def crossed_all(self) -> bool:
        """Whether all parties have sent what the inner products need."""

    @abstractmethod
    def cross(self, last: bool) -> Words:
        """Return the server's shares of the inner products of the parties' shares with its own, summed over parties."""


def joined(members: Sequence[str], words: dict[str, Words]) -> Words:
    """Return the words of all members, one after the other."""
    return np.concatenate([words[name].ravel() for name in members])
