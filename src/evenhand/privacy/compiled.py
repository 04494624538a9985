"""One number at a time, for compiled loops: fixed point as in `fixed_point.py`, and the masks of simulated runs.

Apart from the rest of both, so that only those who compile load the compiler. LLVM inlines these; arithmetic on uint64
wraps round, as it must.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray


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
