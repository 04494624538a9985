"""Rows and columns as the FairVFL paper divides them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pandas as pd

from evenhand.arrays import Integers
from evenhand.data.public.catalog import lookup
from evenhand.errors import InputError

_ADULT: Final = (19, 17, 17, 17, 17, 17)

# Encoded features for the active party and each of the five passive ones, by version of the FairVFL paper.
PARTY_SIZES: Final[Mapping[str, Mapping[str, tuple[int, ...]]]] = MappingProxyType(
    {
        "journal": MappingProxyType(
            {"adult": _ADULT, "compas": (16, 2, 2, 2, 2, 2), "communities-crime": (49, 10, 10, 10, 10, 10)}
        ),
        "first": MappingProxyType(
            {"adult": _ADULT, "compas": (6, 4, 4, 4, 4, 4), "communities-crime": (19, 16, 16, 16, 16, 16)}
        ),
    }
)

# Training and test rows in the FairVFL paper, both versions.
PAPER_ROWS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {"adult": (40_000, 5_222), "compas": (4_800, 478), "communities-crime": (1_200, 794)}
)


def papers_split(name: str, seed: int) -> tuple[Integers, Integers]:
    """Draw training and test row ids uniformly, in the numbers FairVFL used; both come sorted."""
    key = lookup(name).name
    if key not in PAPER_ROWS:
        raise InputError(f"the papers do not split {key}; they split {', '.join(PAPER_ROWS)}")
    train, test = PAPER_ROWS[key]
    order = np.random.default_rng(seed).permutation(train + test).astype(np.int64)
    return np.sort(order[:train]), np.sort(order[train:])


def party_sizes(name: str, version: str = "journal") -> tuple[int, ...]:
    """Return a row of ``PARTY_SIZES``: the active party's number of encoded features, then each passive party's."""
    key = lookup(name).name
    if version not in PARTY_SIZES or key not in PARTY_SIZES[version]:
        known = ", ".join(PARTY_SIZES["journal"])
        raise InputError(f"no party sizes for {key!r}, version {version!r}: versions are journal and first, of {known}")
    return PARTY_SIZES[version][key]


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


def _names(columns: Sequence[str] | pd.DataFrame) -> np.ndarray[Any, np.dtype[np.object_]]:
    return np.asarray(list(columns.columns if isinstance(columns, pd.DataFrame) else columns), dtype=object)


def _equal_sizes(count: int, parties: int) -> list[int]:
    if not 1 <= parties <= count:
        raise InputError(f"{count} columns cannot be shared between {parties} parties so that each gets one")
    small, larger = divmod(count, parties)
    return [small + (k < larger) for k in range(parties)]
