"""Fixed-point numbers modulo 2⁶⁴, which can be masked and added exactly, in any order.

A value becomes an integer (times 2^fraction_bits, rounded), and integers are added modulo 2⁶⁴. With the default 32
fraction bits a sum may reach ±2³¹ (about 2.1·10⁹), and a sum of q values has a rounding error of at most q·2⁻³³.
Decoding to float64 is exact up to sums of 2²¹ and rounds to 53 bits beyond.

One word has one range and one precision. For numbers that may be both large and small, such as inner products, two
words a number have the range of `HIGH_BITS` and a precision of about 2⁻⁷⁰ (`encode_wide`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.errors import InputError

FRACTION_BITS = 32
SCALE = 2.0**FRACTION_BITS
"""The number 1 in the default fixed point: the `scale` of `encode_scalar` and `decode_scalar` (`compiled.py`)."""
ROW_BITS = 50
"""Fraction bits of numbers for each row of data: sums may reach 8192, with an error of about 10⁻¹⁵."""
LEAST_COLUMN = 2.0**-20
"""Minimum of a column's largest entry; smaller columns keep too few digits. Near the optimum, sums of directions are
almost zero, and a coefficient of millions would turn their rounding into scores.
"""
HIGH_BITS = 16
"""Fraction bits of the first of two words: sums may reach ±2⁴⁷."""


def largest(parties: int, fraction_bits: int = FRACTION_BITS) -> float:
    """Return the largest magnitude of a value for which a sum of `parties` such values cannot overflow."""
    if parties < 1 or not 0 <= fraction_bits <= 62:
        raise InputError(
            f"invalid fixed point: {fraction_bits} fraction bits (0 to 62) for {parties} parties (1 or more)"
        )
    # Round down to a float strictly below 2⁶³/q, then to an integer, so that rounding a smaller value cannot exceed it.
    return float(np.floor(np.nextafter(2.0**63 / parties, 0.0))) * 2.0**-fraction_bits


def encode(values: ArrayLike, fraction_bits: int = FRACTION_BITS, parties: int = 1) -> NDArray[np.uint64]:
    """Encode as two's complement fixed point: the nearest multiple of 2^−fraction_bits, modulo 2⁶⁴.

    Parameters
    ----------
    values
        Finite numbers of magnitude up to `largest(parties, fraction_bits)`; others are refused.
    fraction_bits
        Number of fraction bits; the error of one value is at most 2^−(fraction_bits+1).
    parties
        Number of encoded values that will be added.
    """
    real = np.asarray(values, dtype=np.float64)
    limit = largest(parties, fraction_bits)
    fits = np.abs(real) <= limit  # false for NaN
    if not fits.all():
        worst = real[~fits].flat[0]
        raise InputError(
            f"{worst:g} cannot be masked: with {fraction_bits} fraction bits and {parties} parties, values are finite "
            f"and at most {limit:g} in magnitude; take fewer fraction bits or a smaller step"
        )
    return np.rint(real * 2.0**fraction_bits).astype(np.int64).view(np.uint64)


def decode(sums: NDArray[np.uint64], fraction_bits: int = FRACTION_BITS) -> NDArray[np.float64]:
    """Decode sums of encoded values."""
    integers = np.ascontiguousarray(sums, dtype=np.uint64).view(np.int64)
    real = integers.reshape(np.shape(sums)).astype(np.float64)
    real *= 2.0**-fraction_bits
    return real


def largest_score(parties: int) -> float:
    """Return the largest magnitude of a number for each row, for this many parties."""
    return largest(parties, ROW_BITS)


def encode_wide(values: ArrayLike, parties: int = 1) -> NDArray[np.uint64]:
    """Encode each number as two words, (2, ...): the rounded number, and the remainder in a far smaller unit."""
    real = np.asarray(values, dtype=np.float64)
    high = encode(real, HIGH_BITS, parties)
    left = (real - decode(high, HIGH_BITS)) * 2.0**HIGH_BITS
    return np.stack([high, encode(left, _low_bits(parties), parties)])


def decode_wide(sums: NDArray[np.uint64], parties: int = 1) -> NDArray[np.float64]:
    """Decode sums of `parties` numbers of two words."""
    return decode(sums[0], HIGH_BITS) + decode(sums[1], _low_bits(parties)) * 2.0**-HIGH_BITS


def _low_bits(parties: int) -> int:
    """Return the fraction bits of the remainder: it is at most half a unit, so a sum of it fits with this many."""
    return 62 - parties.bit_length()
