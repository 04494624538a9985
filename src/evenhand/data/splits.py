"""Split columns among parties, and rows into training and test."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Booleans, Integers
from evenhand.errors import InputError


def split_columns(
    columns: int | Sequence[str] | pd.DataFrame, parties: int | Sequence[int], seed: int
) -> list[Integers]:
    """Split encoded features among parties at random, as the papers do.

    Parameters
    ----------
    columns : the features, or how many there are.
    parties : the number of features of each party, or the number of parties, for shares as equal as possible.
    seed : seed of the random draw.

    Returns
    -------
    For each party the sorted positions of its features.
    """
    count = columns if isinstance(columns, int) else _names(columns).size
    sizes = _equal_sizes(count, parties) if isinstance(parties, int) else list(parties)
    if sum(sizes) != count or min(sizes, default=0) < 1:
        raise InputError(
            f"shares {sizes} sum to {sum(sizes)}, but there are {count} features; each share is at least 1"
        )
    order = np.random.default_rng(seed).permutation(count).astype(np.int64)
    return [np.sort(share) for share in np.split(order, np.cumsum(sizes)[:-1])]


def held_out(ids: Sequence[Any] | pd.Index, fraction: float, seed: int) -> Booleans:
    """Tell for each id whether it belongs to the test rows.

    The answer depends only on the id and the seed. Parties that share the seed therefore hold out the same people
    without a message, in whatever order their rows are. The share is `fraction` on average.
    """
    if not 0.0 < fraction < 1.0:
        raise InputError(f"the test fraction is between 0 and 1, not {fraction}")
    return np.asarray(_places(ids, seed) < fraction)


def fold_numbers(ids: Sequence[Any] | pd.Index, folds: int, seed: int) -> Integers:
    """Tell for each id which of `folds` folds it belongs to, by the same rule as :func:`held_out`."""
    if folds < 2:
        raise InputError(f"folds is {folds}; there must be at least two")
    return np.floor(_places(ids, seed) * folds).astype(np.int64)


def _places(ids: Sequence[Any] | pd.Index, seed: int) -> Array:
    """Return a pseudo-random number between 0 and 1 for each id, always the same."""
    key = hashlib.blake2b(str(int(seed)).encode(), digest_size=32).digest()
    # Parties have the text of an id in common: 7 from a CSV file and numpy's int64(7) must agree.
    digests = b"".join(hashlib.blake2b(str(one).encode(), digest_size=8, key=key).digest() for one in ids)
    # The top 53 of 64 bits fill a float exactly.
    return (np.frombuffer(digests, dtype=">u8") >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _names(columns: Sequence[str] | pd.DataFrame) -> np.ndarray[Any, np.dtype[np.object_]]:
    return np.asarray(list(columns.columns if isinstance(columns, pd.DataFrame) else columns), dtype=object)


def _equal_sizes(count: int, parties: int) -> list[int]:
    if not 1 <= parties <= count:
        raise InputError(f"{count} columns cannot be shared between {parties} parties so that each gets one")
    small, larger = divmod(count, parties)
    return [small + (k < larger) for k in range(parties)]
