"""One holder's share of a party's weights: nobody alone can score rows with it."""

from __future__ import annotations

import numpy as np

from evenhand.arrays import Array, Matrix
from evenhand.errors import RunError
from evenhand.models.linear import LinearModel
from evenhand.privacy.fixed_point import decode, encode
from evenhand.privacy.fixed_products import FINAL_BITS
from evenhand.privacy.pairwise import Words, new_secret, stream


class WeightShare:
    """Words that add up to a party's weights, modulo 2⁶⁴, with the words of the other holder; alone they are uniform.

    Parameters
    ----------
    words
        One word a column, with `FINAL_BITS` binary places.
    column_bits
        Binary places of the columns in training.
    """

    def __init__(self, words: Words, column_bits: int) -> None:
        self.words, self.column_bits = words, column_bits

    @property
    def columns(self) -> int:
        return len(self.words)

    @property
    def weights(self) -> Array:
        raise RunError(_TOGETHER)

    @weights.setter
    def weights(self, _: Array) -> None:
        raise RunError(_TOGETHER)

    def predict(self, matrix: Matrix) -> Array:
        raise RunError(_TOGETHER)

    def joined(self, other: WeightShare) -> LinearModel:
        """Return the model, where one process has both shares."""
        model = LinearModel(np.zeros((0, self.columns)), 0.0)
        model.weights = decode(self.words + other.words, FINAL_BITS)
        return model


def split_weights(model: LinearModel, column_bits: int) -> tuple[WeightShare, WeightShare]:
    """Return fresh shares of a model's weights: the party's and the server's."""
    words = stream(new_secret(), "weights", model.columns)
    rest = encode(model.weights, FINAL_BITS) - words
    return WeightShare(words, column_bits), WeightShare(rest, column_bits)


_TOGETHER = (
    "the weights of this party are in shares between it and the server (weights = 'shared'), and nobody has them; "
    "score rows with all participants: evenhand predict --remote"
)
