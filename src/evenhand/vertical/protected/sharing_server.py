"""Server's side of subspace rounds on shared weights: see `sharing.py`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Final

import numpy as np

from evenhand.arrays import Array
from evenhand.errors import ProtocolError, RunError
from evenhand.models.weight_share import WeightShare
from evenhand.privacy.fixed_point import decode
from evenhand.privacy.fixed_products import (
    DIRECTION_BITS,
    DIRECTION_CUT,
    MOST_LENGTHENED,
    ProductGrid,
    cut,
    in_range,
    limb_factors,
    times,
    weight_share,
)
from evenhand.privacy.pairwise import Words
from evenhand.protocol.messages import Message, Vocabulary
from evenhand.protocol.roles import SERVER, Role, Sends
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.messages import COEFFICIENTS, DERIVATIVE, DIRECTION, GO_BACK, GRADIENT_NORM, SCORES
from evenhand.vertical.protected.layer import Layer
from evenhand.vertical.protected.messages import SHARED_DIRECTION, WEIGHT_SHARE
from evenhand.vertical.protected.sharing import Ask
from evenhand.vertical.protected.trail import Trail
from evenhand.vertical.subspace.party import Subspace

MOST_REPEATS: Final = 6
"""Maximum number of exchanges in a row that fail the range check."""
SHORTER: Final = 4
"""By how many powers of two directions are shortened when an exchange is repeated."""
LONGER: Final = 4
"""By how many powers of two directions may be lengthened from one exchange to the next: ν may grow again."""
WRAPS: Final = 2.0**58
"""From this squared norm of a slope on, in words, its sum may have wrapped round."""
LEAST_CHANGE: Final = 2.0**-13
"""Least change of a score along a direction that is used. Shorter directions are rounding errors for the most part, and
a coefficient of millions would turn them into scores.
"""


class SharedServer(Layer):
    """Server's side: stands for all passive parties as `together`, and holds its shares of their directions.

    Attributes
    ----------
    final
        The server's share of each party's weights, once training has ended.
    """

    state_fields: ClassVar = {
        "trail": Trail,
        "number": int,
        "shares": dict[str, Words],
        "gram": Array,
        "final": dict[str, Words],
        "length": float,
        "repeats": int,
        "_waiting": Message | None,
        "_sum": Message | None,
        "_words": Words,
        "_exponent": int,
        "_longer": int,
    }

    def __init__(self, inner: Role, terms: VerticalTerms, together: str, level: Vocabulary) -> None:
        super().__init__(inner, Vocabulary(SHARED_DIRECTION, WEIGHT_SHARE, *level))
        options = terms.job.settings(Subspace)
        self.trail = Trail(options.bands_asked(terms), options.steps_kept(terms))
        self.grid, self.members, self.together = ProductGrid(terms.n_rows), terms.passive, together
        self.terms, self.regulariser = terms, terms.regulariser
        self.number = 0
        self.final: dict[str, Words] = {}
        self.shares: dict[str, Words] = {}
        self.gram: Array = np.zeros((self.trail.bands, self.trail.bands))
        self.length = 1.0
        self.repeats = 0
        self._waiting: Message | None = None
        self._sum: Message | None = None
        self._words: Words = np.zeros(0, dtype=np.uint64)
        self._exponent = self._longer = 0

    def inwards(self, message: Message) -> Sends:
        if message.kind == SCORES.kind and message.sender == self.together:
            self.gram[0, 0] = message.number("squared_norm")
        return super().inwards(message)

    def outwards(self, messages: Sends) -> Sends:
        """Hold back ν and the coefficients of the steps that the inner server takes."""
        sends: list[Message] = []
        for one in messages:
            if one.receiver != self.together:
                sends.append(one)
                continue
            if one.kind == DERIVATIVE.kind:
                self._waiting, self.repeats = one, 0
                sends += self._ask_next()
            elif one.kind == COEFFICIENTS.kind:
                self.trail.go(one["coefficients"], keep=bool(one.integer("keep")))
            elif one.kind == GO_BACK.kind:
                self.trail.go_back()
            else:
                sends.append(one)
        return sends

    def _ask_next(self) -> Sends:
        self.number += 1
        return [*self.request(), *self.proceed()]

    def request(self) -> Sends:
        """Request what the next exchange needs from others."""
        return ()

    def ask(self, message: Message) -> Ask:
        return Ask(message.integer("round"), message.integer("last"), self.number, tuple(self.trail.numbers))

    def proceed(self) -> Sends:
        """Begin the exchange about the waiting ν, if everything that it needs has arrived."""
        if self._waiting is None or not self.ready:
            return ()
        ask = self.ask(self._waiting)
        longest = min(self._longer + LONGER, MOST_LENGTHENED)
        # The last exchange opens a norm only, which no check of the range covers.
        self._longer = 0 if ask.last else min(int(np.floor(-np.log2(self.length))), longest)
        self._exponent = self._longer - SHORTER * self.repeats - self.grid.scale(self._waiting["nu"])
        nu = self.grid.nu(self._waiting["nu"], self._exponent)
        self.begin_exchange(ask)
        bands = self.trail.bands
        pull = self.grid.pull(self.trail.weights, self.regulariser, self._exponent)
        opened = np.zeros((0 if ask.last else bands, self.grid.rows), dtype=np.uint64)
        inner = np.zeros(1, dtype=np.uint64) if ask.last else np.zeros(1 + bands * (len(pull) + bands), np.uint64)
        sends: list[Message] = []
        for name in self.members:
            slope = self.slope_share(name, ask, nu, pull) + times(self.shares[name].T, pull)
            slope = cut(slope, self.grid.slope_cut, first=True)
            new = np.zeros((0, len(slope)), dtype=np.uint64)
            if not ask.last:
                product = self.direction_share(name, ask, slope)
                new = cut(product, DIRECTION_CUT, first=True).reshape(bands, -1)
                opened += self.scores_share(name, ask, new)
                self.shares[name] = np.concatenate([self.shares[name], new])
            inner += np.append(np.matmul(new, self.shares[name].T).ravel(), times(slope[None], slope))
            sends.append(self.told(name, ask, slope, new))
            self.spent += float((1 + bands) * self.grid.rows * len(slope))
        self._words = np.concatenate([opened.ravel(), inner, np.zeros(self.n_checks(ask), dtype=np.uint64)])
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
        told, message = self._sum["words"].view(np.uint64), self._waiting
        words = told + self._words
        bands, rows = self.trail.bands, self.grid.rows
        last = bool(message.integer("last"))
        size, end = 0 if last else bands * rows, len(words) - self.n_checks(self.ask(message))
        self.check_products(told[:size].reshape(-1, rows), told[end:])
        words = words[:end]
        words[size:] += self.cross(last)
        self._sum, self._words = None, np.zeros(0, dtype=np.uint64)
        lengthened = 2.0**self._exponent
        unit = self.grid.slope_unit / lengthened
        squared = float(decode(words[-1:], 0)[0]) * unit**2
        if last:
            self._waiting = None
            return self.found(GRADIENT_NORM.message(self.together, SERVER, squared_gradient=max(squared, 0.0)))
        scores = decode(words[:size].reshape(bands, rows), self.grid.column_bits + DIRECTION_BITS)
        products = decode(words[size:-1].reshape(bands, -1), 2 * DIRECTION_BITS)
        if not in_range(scores) or self._wraps(message["nu"], scores, products, squared, unit):
            return self._repeat()
        self._waiting = None
        largest = np.abs(scores).max(axis=1)
        scores[largest < LEAST_CHANGE] = 0.0
        self.length = min(max(float(largest.max()) / lengthened, 1e-12), 1.0)
        return self.found(self._direction(message, scores, products, squared, lengthened))

    def _wraps(self, nu: Array, scores: Array, products: Array, squared: float, unit: float) -> bool:
        """Return whether the squared norm of the slope is smaller than its products with directions allow."""
        slopes = scores @ nu + self.regulariser * products @ self.trail.weights
        length = float(products[:, -self.trail.bands :].sum())
        least = float(slopes.sum()) ** 2 / length if length > 0.0 else 0.0
        return least > WRAPS * unit**2 and squared < 0.5 * least

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
        """Ask for one last product: of the parties' shares of directions with the coefficients of the final weights."""
        if not self.terms.shares_weights and self.trail.steps_taken == 1:
            raise RunError(
                "the model is one step away from its start, so that a party's weights would be exact sums of labels; "
                "they are not sent. Train for more rounds, or choose weights = 'shared'"
            )
        self.number += 1
        return self.request_final()

    @property
    def factors(self) -> Words:
        """Limbs of the coefficients of the final weights."""
        return limb_factors(self.trail.weights)

    def end(self, products: Mapping[str, Words]) -> Sends:
        """Keep the server's share of each party's weights, or send it to the party if the terms say so.

        Parameters
        ----------
        products
            The server's shares of the products of `factors` with the parties' shares of directions.
        """
        factors = self.factors
        for name, one in products.items():
            self.final[name] = weight_share(one + np.matmul(factors, self.shares[name]), first=True)
        self.shares = {}
        if self.terms.shares_weights:
            return ()
        found, self.final = self.final, dict.fromkeys(self.members, np.zeros(0, dtype=np.uint64))
        return [WEIGHT_SHARE.message(SERVER, name, words=found[name].view(np.int64)) for name in self.members]

    @property
    def closed(self) -> bool:
        return len(self.final) == len(self.members)

    @property
    def weight_shares(self) -> dict[str, WeightShare]:
        """The server's share of each passive party's weights, where nobody has the weights."""
        return {name: WeightShare(words, self.grid.column_bits) for name, words in self.final.items() if len(words)}

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether the next exchange can begin."""

    def begin_exchange(self, ask: Ask) -> None:
        """Prepare an exchange."""

    def n_checks(self, ask: Ask) -> int:
        """Return the number of words by which the products of an exchange are checked."""
        return 0

    def check_products(self, scores: Words, checks: Words) -> None:
        """Refuse products that do not fit.

        Parameters
        ----------
        scores
            Sum of the parties' shares of the changes of scores, (bands, rows).
        checks
            Sum of the words by which parties vouch for them.
        """

    def dropped(self) -> None:
        """Forget what was kept of the last exchange."""

    @abstractmethod
    def slope_share(self, name: str, ask: Ask, nu: Words, pull: Words) -> Words:
        """Return the server's share of X_kᵀν, with `pull` times the party's shares of directions."""

    @abstractmethod
    def request_final(self) -> Sends:
        """Begin the last product; its shares go to `end`."""

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
