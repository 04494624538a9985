"""Masks that hide perfectly and cancel exactly: uniform over all 64 bits, added modulo 2⁶⁴ to fixed point.

A real mask of any finite spread hides a real number only partly, and rounding keeps it from cancelling. A value in
fixed point (`fixed_point.py`) plus a mask that is uniform over all 64 bits is itself uniform, whatever the value.

**Where masks come from.** The compiled generator (`compiled.py`) makes simulated runs repeatable. It is statistical,
not cryptographic: whoever sees one of its masks can work out the others, and who knows the seed needs not even that.
Outside simulation a party draws a secret from the operating system's generator (`fresh_masks`) and takes its masks from
that (`secret_masks`): nobody else can work them out, and a party that went down and came back sends what it had sent.
Or masks are agreed on by two (`pairwise.py`).
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
