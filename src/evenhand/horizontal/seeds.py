"""Random numbers that depend on who draws them, in which round and for what, and on nothing else.

So the order of clients, who else takes part and where a run was taken up again change nothing.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import numpy as np

_PURPOSES = ("batches", "protection", "layers", "participants", "crops")
Purpose = Literal["batches", "protection", "layers", "participants", "crops"]


def generator(seed: int, name: str, round_number: int, purpose: Purpose) -> np.random.Generator:
    """Random numbers of a client (or of the server) in one round."""
    who = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    return np.random.default_rng([seed, who, round_number, _PURPOSES.index(purpose)])
