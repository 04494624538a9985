"""Compute Xᵀν in fixed point modulo 2⁶⁴: the same integers in the clear, from shares, or encrypted.

Columns have `column_bits` fraction bits, and n·ν has `nu_bits`. Both are chosen from the number of rows so that no sum
can overflow: columns may have a mean magnitude of `MOST_MEAN`, and entries of n·ν one of `MOST_NU`. Larger n·ν are
scaled down by a power of two that all participants know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy.sparse as sp

from evenhand.arrays import Array, Matrix
from evenhand.errors import DataError
from evenhand.privacy.fixed_point import decode, encode
from evenhand.privacy.pairwise import Words

MOST_MEAN: Final = 2.0
"""Maximum mean magnitude of a column's entries; standardised columns and indicators are below 1."""
MOST_NU: Final = 64.0
"""Largest entry of n·ν before it is scaled down."""
MOST_NUMBERS: Final = 2**27
"""Maximum number of entries of a party's columns: a gigabyte of words."""


@dataclass(frozen=True)
class ProductGrid:
    """Fraction bits of columns and of n·ν for a number of rows."""

    rows: int

    @property
    def _bits(self) -> int:
        """Fraction bits of a product, so that sums fit into 58 bits, which every way of computing them supports."""
        return 58 - int(np.ceil(np.log2(self.rows * MOST_MEAN * MOST_NU)))

    @property
    def column_bits(self) -> int:
        return self._bits // 2

    @property
    def nu_bits(self) -> int:
        return self._bits - self.column_bits

    def on_grid(self, matrix: Matrix) -> Matrix:
        """Return the rounded columns, so that scores and gradients use the same columns."""
        unit = 2.0**self.column_bits
        if sp.issparse(matrix):
            rounded = sp.csc_array(matrix, dtype=np.float64, copy=True)
            rounded.data = np.rint(rounded.data * unit) / unit
            return rounded
        return np.rint(np.asarray(matrix, dtype=np.float64) * unit) / unit

    def columns(self, matrix: Matrix, owner: str) -> Words:
        """Return columns as words, (m, n); refuse columns that could overflow a sum."""
        if matrix.shape[0] * matrix.shape[1] > MOST_NUMBERS:
            raise DataError(
                f"{owner} has {matrix.shape[1]:,} columns of {matrix.shape[0]:,} rows, too many to hide each entry; "
                "leave out columns, or choose protection 'masked'"
            )
        dense = np.ascontiguousarray((matrix.toarray() if sp.issparse(matrix) else matrix).T)
        means = np.abs(dense).mean(axis=1) if dense.size else np.zeros(0)
        if (means > MOST_MEAN).any():
            raise DataError(
                f"{owner}: column {int(np.argmax(means))} has entries of mean size {means.max():.3g}; products in "
                f"fixed point take at most {MOST_MEAN:g}. Scale the columns (scale=True does)"
            )
        return encode(dense, self.column_bits)

    def nu(self, nu: Array) -> tuple[Words, int]:
        """Return n·ν as words, and the power of two by which it was scaled down."""
        scaled = self.rows * nu
        scale = max(0, int(np.ceil(np.log2(max(float(np.abs(scaled).max(initial=0.0)), 1.0) / MOST_NU))))
        return encode(scaled * 2.0**-scale, self.nu_bits), scale

    def product(self, words: Words, scale: int) -> Array:
        """Decode Xᵀν from its words."""
        return decode(words, self.column_bits + self.nu_bits) * (2.0**scale / self.rows)


def times(columns: Words, vector: Words) -> Words:
    """Multiply (m, n) by (n,) modulo 2⁶⁴."""
    return np.matmul(columns, vector)
