"""Draw random numbers that depend only on a seed or secret, the participant, the round and the purpose.

So the order of clients, the set of other clients, and an interruption of the run do not change them.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

_PURPOSES = ("batches", "protection", "layers", "participants", "crops")
Purpose = Literal["batches", "protection", "layers", "participants", "crops"]


def generator(seed: int, name: str, round_number: int, purpose: Purpose) -> np.random.Generator:
    """Return the random generator of one participant in one round."""
    who = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    return np.random.default_rng([seed, who, round_number, _PURPOSES.index(purpose)])


def secret_generator(
    secret: bytes | None, seed: int, name: str, round_number: int, purpose: Purpose, *asked: npt.NDArray[Any]
) -> np.random.Generator:
    """Return a random generator that only this client can reproduce, if it has a secret.

    Without a secret it is that of `generator`, from the job's seed. A simulation is then reproducible, but everyone who
    knows the seed knows the draws.

    A round that is repeated after an interruption draws the same numbers, so nothing is released twice. `asked` is the
    request that the draws answer. A different request in the same round gets different draws: two answers with the same
    noise would reveal their difference. An honest server never makes such a request.
    """
    if secret is None:
        return generator(seed, name, round_number, purpose)
    sum_of_all = hashlib.blake2b(key=secret, digest_size=16)
    for part in (name, str(round_number), purpose):
        sum_of_all.update(hashlib.blake2b(part.encode()).digest())
    for array in asked:
        sum_of_all.update(hashlib.blake2b(array.tobytes()).digest())
    return np.random.Generator(np.random.Philox(key=int.from_bytes(sum_of_all.digest(), "little")))
