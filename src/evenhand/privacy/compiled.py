"""Fixed-point numbers (`fixed_point.py`) and simulated draws, one at a time, for compiled loops.

They are in a separate module so that only compiled code loads the compiler. LLVM inlines these functions; arithmetic on
uint64 wraps, as intended.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray


@numba.njit(cache=True, nogil=True)
def encode_scalar(value: float, scale: float) -> np.uint64:
    """Encode one number, with scale = 2^fraction_bits.

    Unchecked: the caller ensures abs(value) <= largest(parties, fraction_bits), which is false for NaN.
    """
    return np.uint64(np.int64(np.rint(value * scale)))


@numba.njit(cache=True, nogil=True)
def decode_scalar(total: np.uint64, scale: float) -> float:
    """Decode one number, with scale = 2^fraction_bits."""
    return np.int64(total) / scale


@numba.njit(cache=True, nogil=True)
def next_mask(states: NDArray[np.uint64], party: int) -> np.uint64:
    """Return the next mask of one party (splitmix64) and advance its entry of `states`; for simulation only.

    A single mask reveals the state, and so all later masks.
    """
    states[party] += np.uint64(0x9E3779B97F4A7C15)
    mixed = states[party]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
