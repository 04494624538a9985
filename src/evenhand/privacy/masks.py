"""Masks that hide perfectly and cancel exactly: uniform over 64 bits, added modulo 2⁶⁴ to fixed-point numbers.

A real-valued mask of finite spread hides a number only partly, and rounding keeps it from cancelling. A fixed-point
value (`fixed_point.py`) plus a uniform mask of 64 bits is itself uniform, for any value.

**Origin of masks.** A party derives its masks from its secret of the attempt (`secret_masks`, `key_exchange.py`), in
one process too. No other participant can compute them, and they cancel, so results do not depend on them. Masks may
also be agreed between two participants (`pairwise.py`). The compiled generator (`compiled.py`) is statistical, not
cryptographic: one of its numbers, or the seed, reveals all others. It draws simulated delays, and hides nothing.
"""

from __future__ import annotations

import hashlib
import os
from typing import Final

import numpy as np
from numpy.typing import NDArray

SECRET_WORDS: Final = 4
"""Words of a party's secret: 256 bits."""


def fresh_masks(rows: int) -> NDArray[np.uint64]:
    """Draw masks from the operating system's cryptographic generator, for deployments."""
    return np.frombuffer(os.urandom(8 * rows), dtype=np.uint64).copy()


def secret_masks(secret: NDArray[np.uint64], number: int, rows: int) -> NDArray[np.uint64]:
    """Return masks by number from SHAKE-256; they are uniform without the secret (four words)."""
    key = secret.astype("<u8").tobytes() + number.to_bytes(8, "little")
    drawn = hashlib.shake_256(b"evenhand masks 1" + key).digest(8 * rows)
    return np.frombuffer(drawn, dtype="<u8").astype(np.uint64)


def mask_states(seed: int, parties: int) -> NDArray[np.uint64]:
    """Return the initial states of the parties' streams, for `next_mask` (`compiled.py`)."""
    return np.random.SeedSequence(seed).generate_state(parties, dtype=np.uint64).astype(np.uint64)
