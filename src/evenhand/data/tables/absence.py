"""Rows that a party lacks: zeros in all its features, and one more feature that marks them.

A linear party then adds nothing but one learned number to the score of such a row. Trees have NaN in place of zeros.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy import sparse

from evenhand.arrays import Booleans, Matrix

ABSENT: Final = "row is absent"
"""Name of the feature that marks rows that the party lacks."""


def without_rows(width: int) -> Matrix:
    """Return the encoded rows of a party that has none."""
    return np.zeros((0, width))


def with_mark(encoded: Matrix) -> Matrix:
    """Add the feature that marks absent rows, for rows that are there."""
    rows = encoded.shape[0]
    if sparse.issparse(encoded):
        return sparse.csr_array(sparse.hstack([encoded, sparse.csr_array((rows, 1))], format="csr"))
    marked = np.zeros((rows, encoded.shape[1] + 1), order="F")
    marked[:, :-1] = encoded
    return marked


def spread(encoded: Matrix, there: Booleans, *, marked: bool, as_is: bool = False) -> Matrix:
    """Return the encoded rows among those that the party lacks.

    Parameters
    ----------
    encoded
        The rows that the party has, in order.
    there
        Which rows of the result these are.
    marked
        Whether the last feature marks absent rows.
    as_is
        Whether features are for trees: those of absent rows are then NaN in place of zero.
    """
    rows, places = len(there), np.flatnonzero(there)
    absent = np.flatnonzero(~there)
    if sparse.issparse(encoded):
        taken = sparse.csr_array((np.ones(len(places)), (places, np.arange(len(places)))), shape=(rows, len(places)))
        found = sparse.csr_array(taken @ encoded)
        if not marked:
            return found
        last = np.full(len(absent), encoded.shape[1] - 1)
        marks = sparse.csr_array((np.ones(len(absent)), (absent, last)), shape=found.shape)
        return sparse.csr_array(found + marks)
    whole = np.full((rows, encoded.shape[1]), np.nan if as_is else 0.0, order="F")
    whole[places] = encoded
    if marked:
        whole[absent, -1] = 1.0
    return whole
