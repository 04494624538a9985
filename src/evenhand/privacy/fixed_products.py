"""Linear algebra in fixed point on additive shares modulo 2⁶⁴.

A value v is shared by two holders as words v₁ + v₂ = v modulo 2⁶⁴. Each share alone is uniform. Sums and products with
public integers are local.

Columns have `column_bits` binary places and n·ν has `nu_bits`. Both follow from the number of rows, so that no sum can
wrap round. Columns may have a mean size of `MOST_MEAN`, and entries of n·ν a size of `MOST_NU`; a larger ν is scaled
down by a power of two that only the server knows.

`cut` drops binary places of shares, each holder on its own. The result is off by at most one unit. With probability
|v| / 2⁶³ it is off by 2⁶⁴ / 2^places instead, which is far out of range: the opened sum shows it (`in_range`), and the
step is repeated with new shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy.sparse as sp

from evenhand.arrays import Array, Matrix
from evenhand.errors import DataError
from evenhand.privacy.fixed_point import encode
from evenhand.privacy.pairwise import Words

MOST_MEAN: Final = 2.0
"""Maximum mean magnitude of a column's entries; standardised columns and indicators are below 1."""
MOST_NU: Final = 64.0
"""Largest entry of n·ν before it is scaled down."""
MOST_LENGTHENED: Final = 16
"""Maximum power of two by which ν is scaled up near the optimum, where directions would lose their digits."""
MOST_NUMBERS: Final = 2**27
"""Entries of a party's columns in words: a gigabyte."""
MOST_COLUMN_BITS: Final = 17
"""Most binary places of columns. Rounding changes a score by a few millionths."""
SLOPE_BITS: Final = 27
"""Binary places of slopes X_kᵀν + μθ, in units of the power of two of ν. A squared norm may reach 256."""
MATRIX_BITS: Final = 18
"""Binary places of the party's matrix that turns a slope into a direction."""
DIRECTION_BITS: Final = 24
"""Binary places of directions. A squared norm may reach 2¹¹."""
FINAL_BITS: Final = 30
"""Binary places of final weights. With columns of `MOST_COLUMN_BITS`, a score may reach 2¹⁶."""
_LIMB_BITS: Final = 9
LIMBS: Final = 3
"""Coefficients of directions are sums of so many limbs: a product with one limb stays far below 2⁶³."""
DIRECTION_CUT: Final = SLOPE_BITS + MATRIX_BITS - DIRECTION_BITS
"""Binary places to drop from a slope times a party's matrix."""
MOST_CHANGE: Final = 512.0
"""Largest change of a score along a direction. A wrong `cut` makes larger ones."""


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
        return min(MOST_COLUMN_BITS, self._bits // 2)

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
        sizes = np.asarray(abs(matrix).sum(axis=0)).ravel() / max(matrix.shape[0], 1)
        if (sizes > MOST_MEAN).any():
            raise DataError(
                f"{owner}: column {int(np.argmax(sizes))} has entries of mean size {sizes.max():.3g}; products in "
                f"fixed point take at most {MOST_MEAN:g}. Scale the columns (scale=True does)"
            )
        return row_words(matrix, self.column_bits, owner)

    def scale(self, nu: Array) -> int:
        """Return the power of two by which n·ν must be scaled down."""
        largest = self.rows * float(np.abs(nu).max(initial=0.0))
        return max(0, int(np.ceil(np.log2(max(largest, 1.0) / MOST_NU))))

    def nu(self, nu: Array, exponent: int) -> Words:
        """Return n·ν times 2^exponent as words. Sums wrap round if it is scaled up, and X_kᵀν does not if it is small.

        Parameters
        ----------
        exponent
            Only the server knows it.
        """
        return encode(self.rows * nu * 2.0**exponent, self.nu_bits)

    @property
    def slope_cut(self) -> int:
        """Binary places to drop from X_kᵀν."""
        return self._bits + int(np.floor(np.log2(self.rows))) - SLOPE_BITS

    @property
    def slope_unit(self) -> float:
        """What one unit of a slope stands for, times the power of two of ν."""
        return 2.0 ** (self.slope_cut - self._bits) / self.rows

    def matrix(self, inverse: Array) -> Words:
        """Return the words of −H⁻¹, which turn a slope into a direction of SLOPE_BITS + MATRIX_BITS binary places."""
        return _words(np.rint(-inverse * self.slope_unit * 2.0 ** (SLOPE_BITS + MATRIX_BITS)))

    def pull(self, coefficients: Array, regulariser: float, exponent: int) -> Words:
        """Return integers that turn directions into n·μθ times 2^exponent, in the units of X_kᵀν before the cut."""
        unit = regulariser * self.rows * 2.0 ** (self._bits - DIRECTION_BITS + exponent)
        return _words(np.rint(coefficients * unit))


def limb_factors(coefficients: Array) -> Words:
    """(LIMBS, t): the coefficients a_t of directions in limbs, the highest first, as words."""
    left, found = np.rint(coefficients * 2.0 ** (_LIMB_BITS * LIMBS)), list[Words]()
    for limb in reversed(range(LIMBS)):
        unit = 2.0 ** (_LIMB_BITS * limb)
        whole = np.rint(left / unit)
        left = left - whole * unit
        found.append(_words(whole))
    return np.stack(found)


def weight_share(products: Words, *, first: bool) -> Words:
    """Return a holder's share of θ = Σ_t a_t d_t with `FINAL_BITS` binary places.

    Parameters
    ----------
    products
        (LIMBS, m): its shares of the products of `limb_factors` with the directions d_t.
    first
        True for one of the two holders.
    """
    total: Words = np.zeros(products.shape[1], dtype=np.uint64)
    for place, product in enumerate(products):
        total += cut(product, DIRECTION_BITS + _LIMB_BITS * (place + 1) - FINAL_BITS, first=first)
    return total


def row_words(matrix: Matrix, column_bits: int, owner: str) -> Words:
    """Return rows of columns as words, (m, n)."""
    if matrix.shape[0] * matrix.shape[1] > MOST_NUMBERS:
        raise DataError(
            f"{owner} has {matrix.shape[1]:,} columns of {matrix.shape[0]:,} rows, too many to hide each entry; "
            "leave out columns, or choose protection 'masked'"
        )
    return encode(np.ascontiguousarray((matrix.toarray() if sp.issparse(matrix) else matrix).T), column_bits)


def _words(integers: Array) -> Words:
    if not (np.abs(integers) < 2.0**62).all():
        raise DataError("a number is too large for fixed point; scale the columns, or choose protection 'masked'")
    return integers.astype(np.int64).view(np.uint64)


def cut(shares: Words, places: int, *, first: bool) -> Words:
    """Drop binary places of one holder's shares; `first` is True for one of the two holders."""
    by = np.uint64(places)
    return shares >> by if first else np.negative(np.negative(shares) >> by)


def in_range(scores: Array) -> bool:
    """Return whether the opened changes of scores can be right: no share was cut wrongly."""
    return bool(np.abs(scores).max(initial=0.0) <= MOST_CHANGE)


def combine(vectors: Words, columns: Words) -> Words:
    """(q, m) times (m, n) modulo 2⁶⁴, column by column: numpy's own product is several times slower here."""
    total = np.zeros((len(vectors), columns.shape[1]), dtype=np.uint64)
    for factors, column in zip(vectors.T, columns, strict=True):
        for line, factor in zip(total, factors, strict=True):
            line += factor * column
    return total


def times(columns: Words, vector: Words) -> Words:
    """Multiply (m, n) by (n,) modulo 2⁶⁴."""
    return np.matmul(columns, vector)
