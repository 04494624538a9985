"""Rows and columns as the FairVFL paper divides them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

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
