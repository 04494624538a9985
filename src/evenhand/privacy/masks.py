"""Masks that hide perfectly and cancel exactly: fixed point modulo 2⁶⁴.

A real mask of any finite spread hides a real number only partly, and rounding keeps it from cancelling. So a value
becomes an integer (times 2^fraction_bits, rounded), integers are added modulo 2⁶⁴, and a mask is uniform over all 64
bits: value plus mask is then itself uniform, whatever the value, and sums are exact in any order.

With the default 32 fraction bits a sum may reach ±2³¹ (about 2.1·10⁹), and a sum of q values is off by at most q·2⁻³³
through rounding. Decoding to float64 is exact up to sums of 2²¹ and rounds to 53 bits beyond.

**Where masks come from.** The seeded generators here make simulated runs repeatable. They are statistical, not
cryptographic: whoever sees a few of their masks can work out the others. A deployment takes `fresh_masks`, drawn from
the operating system's generator, and uses none twice.
"""

from __future__ import annotations

import os

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.errors import InputError

FRACTION_BITS = 32
SCALE = 2.0**FRACTION_BITS
"""One, in the default fixed point: what `encode_scalar` and `decode_scalar` take as `scale`."""


def largest(parties: int, fraction_bits: int = FRACTION_BITS) -> float:
    """The largest magnitude a value may have so that a sum of `parties` such values cannot wrap round."""
    if parties < 1 or not 0 <= fraction_bits <= 62:
        raise InputError(
            f"no fixed point with {fraction_bits} fraction bits (0 to 62) for {parties} parties (1 or more)"
        )
    # Rounded down to a float strictly below 2⁶³/q, then to an integer: rounding a value below cannot pass it.
    return float(np.floor(np.nextafter(2.0**63 / parties, 0.0))) * 2.0**-fraction_bits


def encode(values: ArrayLike, fraction_bits: int = FRACTION_BITS, parties: int = 1) -> NDArray[np.uint64]:
    """Fixed point, two's complement: the nearest multiple of 2^−fraction_bits, counted modulo 2⁶⁴.

    Parameters
    ----------
    values
        Finite numbers of magnitude up to `largest(parties, fraction_bits)`; others are refused.
    fraction_bits
        Binary places kept; the error of one value is at most 2^−(fraction_bits+1).
    parties
        How many encoded values will be added.
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
    """The real numbers that these sums of encoded values stand for."""
    integers = np.ascontiguousarray(sums, dtype=np.uint64).view(np.int64)
    return integers.reshape(np.shape(sums)).astype(np.float64) * 2.0**-fraction_bits


def fresh_masks(rows: int) -> NDArray[np.uint64]:
    """Masks from the operating system's cryptographic generator: for deployments."""
    return np.frombuffer(os.urandom(8 * rows), dtype=np.uint64).copy()


def mask_generator(seed: int, party: int) -> np.random.Generator:
    """A party's own repeatable stream, independent of the other parties': for simulation only."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=(party,))))


def seeded_masks(generator: np.random.Generator, rows: int) -> NDArray[np.uint64]:
    """The next masks of a simulated party, uniform over all 64 bits."""
    return generator.integers(0, 2**64, size=rows, dtype=np.uint64)


def mask_states(seed: int, parties: int) -> NDArray[np.uint64]:
    """Where the parties' streams start, for `next_mask`."""
    return np.random.SeedSequence(seed).generate_state(parties, dtype=np.uint64).astype(np.uint64)


# The compiled loops take these; LLVM inlines them. Arithmetic on uint64 wraps round, as it must.


@numba.njit(cache=True, nogil=True)
def next_mask(states: NDArray[np.uint64], party: int) -> np.uint64:
    """The next mask of one party (splitmix64), whose entry of `states` moves on: for simulation only.

    A mask tells the state: one who sees a single mask knows all that follow.
    """
    states[party] += np.uint64(0x9E3779B97F4A7C15)
    mixed = states[party]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@numba.njit(cache=True, nogil=True)
def encode_scalar(value: float, scale: float) -> np.uint64:
    """`encode` for one number, with scale = 2^fraction_bits.

    Unchecked: the caller makes sure that abs(value) <= largest(parties, fraction_bits), which is false for NaN.
    """
    return np.uint64(np.int64(np.rint(value * scale)))


@numba.njit(cache=True, nogil=True)
def decode_scalar(total: np.uint64, scale: float) -> float:
    """`decode` for one number, with scale = 2^fraction_bits."""
    return np.int64(total) / scale
