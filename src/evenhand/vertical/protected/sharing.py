"""Subspace rounds on shared weights: a passive party learns nothing of the labels, and the server only sums.

All that a party does in a round is linear in ν: its slope w = X_kᵀν + μθ_k, its direction d = −H⁻¹w, and the change
X_k d of every row's score. The party and the server, which works at the label holder's side, hold w, d and θ_k in
additive shares modulo 2⁶⁴. Weights are combinations of directions with coefficients that only the server knows
(`trail.py`). So four products of a matrix of the party with a vector of the server are needed: X_kᵀν, the party's
shares of directions times the coefficients of μθ_k, H⁻¹ times the server's share of w, and X_k times its share of d.
Triples of a dealer (`dealing.py`) or encryption (`encrypting.py`) give each of the two a share of the product, and
nothing else.

The sum over parties of X_k d opens to the server, under the masks of `masking.py`, and so do the sums of inner products
of directions. At the end the party's shares of directions are multiplied with the coefficients of θ_k, and each keeps
its share of θ_k. Scores of rows are one more product (`scoring.py`); with ``weights = "party"`` the server sends its
share to the party. The server's side is in `sharing_server.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from evenhand.arrays import Array, Matrix
from evenhand.errors import DataError, ProtocolError
from evenhand.models.base import Scorer
from evenhand.models.linear import LinearModel
from evenhand.models.preconditioner import make_preconditioner
from evenhand.models.weight_share import WeightShare
from evenhand.privacy.fixed_point import decode, encode
from evenhand.privacy.fixed_products import (
    DIRECTION_BITS,
    DIRECTION_CUT,
    ProductGrid,
    combine,
    cut,
    times,
    weight_share,
)
from evenhand.privacy.pairwise import Words
from evenhand.protocol.messages import Message, Vocabulary
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.messages import DIRECTION, GRADIENT_NORM, LEVERAGES, SCORES
from evenhand.vertical.problem import Party, PartyData, own_model
from evenhand.vertical.protected.messages import SHARED_DIRECTION, WEIGHT_SHARE
from evenhand.vertical.protected.trail import START
from evenhand.vertical.subspace.bands import filling
from evenhand.vertical.subspace.party import Subspace

MOST_COLUMNS: Final = 1024
"""Maximum number of columns of a party: it forms a matrix of their square."""
LEAST_RIDGE: Final = 1e-3
"""Least ridge of the curvature that directions are computed with, so that −H⁻¹ stays small in fixed point."""
MOST_REPEATED: Final = 12
"""Maximum number of repeated exchanges that a party answers in a run."""


@dataclass(frozen=True)
class Ask:
    """The public numbers of one exchange.

    Attributes
    ----------
    number
        Rises with every exchange, also with one that is repeated.
    last
        Whether only the norm of the slope is asked for.
    kept
        Numbers of the exchanges whose directions count.
    """

    round: int
    last: int
    number: int
    kept: tuple[int, ...]

    @classmethod
    def of(cls, message: Message) -> Ask:
        heads = {name: message.integer(name) for name in ("round", "last", "number")}
        return cls(**heads, kept=tuple(int(one) for one in message["kept"]))

    def fields(self) -> dict[str, Any]:
        kept = np.array(self.kept, dtype=np.int64)
        return {"round": self.round, "last": self.last, "number": self.number, "kept": kept}


def crossed(new: tuple[Words, Words], every: tuple[Words, Words]) -> Words:
    """Return x·yᵀ + y·xᵀ for new vectors (x, y) with all vectors."""
    return np.matmul(new[0], every[1].T) + np.matmul(new[1], every[0].T)


def inverse_by_bands(terms: VerticalTerms, matrix: Matrix, bands: int) -> Array:
    """(bands, m, m): H⁻¹ of a party's columns with the bound on the curvature, in parts that are all filled."""
    bound = terms.job.loss_function.curvature_bound / terms.n_rows
    solver = make_preconditioner(matrix, bound, max(terms.regulariser, LEAST_RIDGE))
    units = np.eye(matrix.shape[1])
    parts = np.array([solver.solve(one, None, bands) for one in units]).transpose(1, 2, 0)
    if bands == 1:
        return parts
    # The party does not see its slope; a random one takes its place.
    slope = np.random.default_rng(len(units)).standard_normal(len(units))
    combined = filling(np.array([matrix @ (part @ slope) for part in parts]), 0)
    return parts if combined is None else np.tensordot(combined, parts, axes=1)


class SharedParty(Party):
    """A passive party that holds shares of its slope, its directions and its weights.

    Attributes
    ----------
    numbers
        Numbers of the exchanges whose directions count.
    shares
        (bands · numbers, columns): the party's shares of these directions.
    final
        The party's share of its weights, once training has ended.
    """

    state_fields: ClassVar = {
        "numbers": list[int],
        "shares": Words,
        "final": Words,
        "number": int,
        "exchanged": int,
        "repeated": int,
    }
    model: LinearModel

    def __init__(self, terms: VerticalTerms, name: str, own: PartyData, level: Vocabulary) -> None:
        grid = ProductGrid(terms.n_rows)
        model = own_model(terms, name, PartyData(grid.on_grid(own.matrix), own.weights))
        assert isinstance(model, LinearModel)
        super().__init__(terms, name, model)
        self.vocabulary = Vocabulary(SCORES, LEVERAGES, SHARED_DIRECTION, WEIGHT_SHARE, *level)
        self.grid, self.columns = grid, model.columns
        if not self.columns:
            raise DataError(
                f"{name} has no columns, which protection {terms.job.protection!r} needs; leave the party out"
            )
        if self.columns > MOST_COLUMNS:
            raise DataError(
                f"{name} has {self.columns} columns; protection {terms.job.protection!r} takes at most {MOST_COLUMNS}. "
                "Leave out columns, or choose protection 'masked'"
            )
        options = terms.job.settings(Subspace)
        bands, history = options.bands_asked(terms), options.steps_kept(terms)
        self.bands, self.numbers = bands, [START]
        self.sizes = {**self.sizes, "bands": bands, "basis": bands + history, "columns": self.columns}
        self.words = grid.columns(model.matrix, name)
        self.matrix = grid.matrix(self._inverse(bands))
        start = np.vstack([model.weights, np.zeros((bands - 1, self.columns))])
        self.shares: Words = encode(start, DIRECTION_BITS)
        self.final: Words = np.zeros(0, dtype=np.uint64)
        model.weights = decode(self.shares[0], DIRECTION_BITS)
        self.number = self.exchanged = self.repeated = 0

    def _inverse(self, bands: int) -> Array:
        """(bands · m, m): H⁻¹ with the bound on the curvature, by bands of its spectrum."""
        return inverse_by_bands(self.terms, self.model.matrix, bands).reshape(-1, self.columns)

    def start(self) -> Sends:
        sends = [self.leverages(self.model)] if self.terms.job.settings(Subspace).leaves_out(self.terms) else []
        if not self.terms.warm:
            return sends
        body = {"scores": self.model.scores(), "squared_norm": self.model.squared_norm(), "squared_move": 0.0}
        return [*sends, SCORES.message(self.name, SERVER, round=0, sequence=1, **body)]

    def handle(self, message: Message) -> Sends:
        if message.kind == WEIGHT_SHARE.kind and len(self.final) and not self.done:
            other = WeightShare(message["words"].view(np.uint64), self.grid.column_bits)
            self.model.weights = WeightShare(self.final, self.grid.column_bits).joined(other).weights
            self.done = True
            return ()
        raise ProtocolError(f"{self.name} takes no {message.kind!r} at this point")

    def end(self, products: Words) -> None:
        """Keep the share of the weights, from shares of the products of limbs of coefficients with directions."""
        self.final = weight_share(products, first=False)
        self.forget()
        self.done = self.terms.shares_weights

    @property
    def trained(self) -> Scorer:
        return WeightShare(self.final, self.grid.column_bits) if self.terms.shares_weights else self.model

    def asked(self, message: Message) -> Ask:
        """Read and check what is asked. A number is answered once, and rounds only as often as the terms say."""
        ask, numbers = Ask.of(message), tuple(self.numbers)
        if len(self.final):
            raise ProtocolError(f"{self.name} has ended training; number {ask.number} is refused")
        if ask.number <= self.number:
            raise ProtocolError(f"{self.name} has answered number {self.number}; number {ask.number} is refused")
        again = len(numbers) > 1 and numbers[:-1] == ask.kept
        most = self.terms.job.max_rounds + (1 if ask.last else 0)
        if self.repeated >= MOST_REPEATED if again else self.exchanged >= most:
            raise ProtocolError(f"{self.name} has answered {self.exchanged} exchanges, as many as the terms allow")
        if ask.kept != numbers and not again:
            raise ProtocolError(f"{self.name}: the server counts other directions than it was given; refused")
        return ask

    def answer(self, ask: Ask, slope: Words, of_slope: Words, of_directions: Words) -> Sends:
        """Answer an exchange.

        Parameters
        ----------
        slope, of_slope, of_directions
            The party's shares of X_kᵀν with the coefficients of μθ_k times its shares of directions, of −H⁻¹ times the
            server's share of the slope, and of X_k times the server's shares of the directions.
        """
        bands = self.bands
        self.shares = self.counted(ask)
        if ask.kept != tuple(self.numbers):
            self.numbers.pop()
            self.repeated += 1
        else:
            self.exchanged += 1
        self.number, self.round = ask.number, ask.round
        slope = cut(slope, self.grid.slope_cut, first=False)
        new, opened = np.zeros((0, self.columns), dtype=np.uint64), np.zeros(0, dtype=np.uint64)
        if not ask.last:
            new = cut(times(self.matrix, slope) + of_slope, DIRECTION_CUT, first=False).reshape(bands, -1)
            opened = (combine(new, self.words) + of_directions).ravel()
        every = np.concatenate([self.shares, new])
        cross, sends = self.cross(ask, slope[None], new, every)
        inner = np.append(np.matmul(new, every.T).ravel(), times(slope[None], slope))
        if not ask.last:
            self.numbers.append(ask.number)
            self.shares = every
        self.effort += float((1 + 2 * bands) * self.words.size)
        words = np.concatenate([opened, inner + cross, self.checks(ask, new)]).view(np.int64)
        answer = SHARED_DIRECTION.message(self.name, SERVER, number=ask.number, words=words)
        # What the sum of these words opens to: the party's policy applies to it.
        inner_kind = GRADIENT_NORM.kind if ask.last else DIRECTION.kind
        return [*sends, answer.hiding([Message(self.name, SERVER, inner_kind, {})])]

    def counted(self, ask: Ask) -> Words:
        """Return the party's shares of the directions that count in an exchange."""
        return self.shares[: self.bands * len(ask.kept)]

    @abstractmethod
    def cross(self, ask: Ask, slope: Words, new: Words, every: Words) -> tuple[Words, Sends]:
        """Return shares of the inner products of this party's shares with the server's, and messages for the server.

        Those of the new directions with all directions come first, and that of the slope with itself last.
        """

    def checks(self, ask: Ask, new: Words) -> Words:
        """Return words by which the server checks the products, if the level has any; their sum over parties opens."""
        return np.zeros(0, dtype=np.uint64)

    def forget(self) -> None:
        """Delete the shares of directions and all secrets at the end."""
        self.shares = np.zeros((0, self.columns), dtype=np.uint64)
