"""Score rows with weights that stay in shares: X_kθ_k is the party's own product plus one with the server's share.

A passive party has X_k and its share p of θ_k, and the server has the other share s. The party computes X_k p alone.
Triples of a dealer (`dealt_scores.py`) or encryption give each of the two a share of X_k s. The party adds its shares
and sends them behind the masks of `masking.py`. So the server learns Σ_k X_kθ_k, and nobody learns X_kθ_k or θ_k.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from evenhand.arrays import Matrix
from evenhand.errors import ProtocolError, RunError
from evenhand.models.weight_share import WeightShare
from evenhand.privacy.fixed_point import decode
from evenhand.privacy.fixed_products import FINAL_BITS, combine, row_words
from evenhand.privacy.pairwise import Words
from evenhand.protocol.messages import Message, Vocabulary
from evenhand.protocol.roles import SERVER, Role, Sends
from evenhand.protocol.scoring import PARTIAL_SCORES, SCORED, ScoreServer
from evenhand.vertical.protected.layer import Layer
from evenhand.vertical.protected.messages import SHARED_SCORES


class SharedScoreParty(Role):
    """A passive party that scores rows by its share of the weights.

    Attributes
    ----------
    words
        (m, n): the columns of the rows to score.
    share
        The party's share of its weights.
    """

    vocabulary = Vocabulary(SHARED_SCORES, SCORED)

    def __init__(self, name: str, share: WeightShare, matrix: Matrix) -> None:
        super().__init__(name, {"rows": matrix.shape[0], "columns": share.columns})
        self.words, self.share = row_words(matrix, share.column_bits, name), share

    def handle(self, message: Message) -> Sends:
        if message.kind != SCORED.kind or message.sender != SERVER:
            raise ProtocolError(f"{self.name} takes no {message.kind!r} from {message.sender!r} at this point")
        self.done = True
        return ()

    def answer(self, product: Words) -> Message:
        """Return the party's share of its scores.

        Parameters
        ----------
        product
            The party's share of X_k times the server's share of the weights.
        """
        own = combine(self.share.words[None], self.words)[0] + product
        self.effort += float(self.words.size)
        message = SHARED_SCORES.message(self.name, SERVER, words=own.view(np.int64))
        # What the sum of these words opens to: the party's policy applies to it.
        return message.hiding([Message(self.name, SERVER, PARTIAL_SCORES.kind, {})])


class SharedScoreServer(Layer):
    """The server: adds its shares of all products to the sum of the parties' shares.

    Parameters
    ----------
    inner
        Scores of the label holder and of `together`.
    shares
        The server's share of each passive party's weights.
    own
        Kinds of messages of the products.

    Attributes
    ----------
    product
        Sum over parties of the server's shares of X_k s, once it is known.
    """

    state_fields: ClassVar = {"product": Words | None, "_sum": Words | None}

    def __init__(self, inner: ScoreServer, shares: Mapping[str, WeightShare], together: str, own: Vocabulary) -> None:
        super().__init__(inner, Vocabulary(SHARED_SCORES, *own))
        self.shares, self.together = dict(shares), together
        self.product: Words | None = None
        self._sum: Words | None = None

    def take(self, message: Message) -> Sends:
        rows = self.inner.sizes["rows"]
        if message.kind != SHARED_SCORES.kind or message.sender != self.together or self._sum is not None:
            raise ProtocolError(f"the server takes no {message.kind!r} from {message.sender!r} at this point")
        if len(message["words"]) != rows:
            raise ProtocolError(f"the parties send {len(message['words'])} scores of {rows} rows; refused")
        self._sum = message["words"].view(np.uint64)
        return self.open()

    def open(self) -> Sends:
        """Open the sum of the scores once all shares are there."""
        if self._sum is None or self.product is None:
            return ()
        (bits,) = {one.column_bits for one in self.shares.values()}
        scores = decode(self._sum + self.product, FINAL_BITS + bits)
        return self.found(PARTIAL_SCORES.message(self.together, SERVER, scores=scores))


def shares_of(weights: Mapping[str, WeightShare], members: tuple[str, ...]) -> dict[str, WeightShare]:
    """Return the server's shares of all passive parties' weights."""
    if missing := [name for name in members if name not in weights]:
        raise RunError(f"the server has no share of the weights of {', '.join(missing)}; its run folder was changed")
    return {name: weights[name] for name in members}
