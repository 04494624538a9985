"""Random numbers that depend on who draws them, in which round and for what, and on nothing but a seed or a secret.

So the order of clients, who else takes part and where a run was taken up again change nothing.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

_PURPOSES = ("batches", "protection", "layers", "participants", "crops")
Purpose = Literal["batches", "protection", "layers", "participants", "crops"]


def generator(seed: int, name: str, round_number: int, purpose: Purpose) -> np.random.Generator:
    """Random numbers of a client (or of the server) in one round."""
    who = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    return np.random.default_rng([seed, who, round_number, _PURPOSES.index(purpose)])


def secret_generator(
    secret: bytes | None, seed: int, name: str, round_number: int, purpose: Purpose, *asked: npt.NDArray[Any]
) -> np.random.Generator:
    """Random numbers that nobody else can work out, where the client has a secret of its own; else `generator`'s, which
    follow from the job's seed: a simulation can be repeated, and whoever knows the seed knows them.

    With the same secret a round that is gone through again after an interruption draws the same: nothing is released
    twice. `asked` is what the draws are an answer to. Another question in the same round, which an honest server never
    has, gets others: two answers with the same noise would tell their difference.
    """
    if secret is None:
        return generator(seed, name, round_number, purpose)
    sum_of_all = hashlib.blake2b(key=secret, digest_size=16)
    for part in (name, str(round_number), purpose):
        sum_of_all.update(hashlib.blake2b(part.encode()).digest())
    for array in asked:
        sum_of_all.update(hashlib.blake2b(array.tobytes()).digest())
    return np.random.Generator(np.random.Philox(key=int.from_bytes(sum_of_all.digest(), "little")))
