"""A random audit of hidden derivatives: does ν involve many rows, or does the server probe a few?

A party sees ν only behind random words b of server and dealer. Party and dealer together could see it. So in an
exchange that the party's own coin chooses, the party draws a seed, which gives every row a random block and a random
sign. It sends the dealer the seed and the sums by block of ν − b. The dealer adds those of b, and tells the party
whether many blocks carry weight, few, or one.

The effective number of blocks is (Σs²)² / Σs⁴ for the sums s. For a ν of k rows it is k at most. For many rows the sums
are close to normal, and the number is about a third of `BLOCKS`; it is below `NARROW` with a probability of 10⁻⁷.

The party learns one of three answers. The dealer, which knows neither columns nor ids, learns `BLOCKS` sums over random
blocks. Enough of them would tell labels: to weigh n coins takes about 2n / log₂ n sums. So the coin asks in one
exchange of eight, and in tables of `LEAST_AUDITED` rows or more only: five parties and ten rounds give 400 sums, where
1,500 are needed for 10,000 rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from evenhand.privacy.fixed_point import decode
from evenhand.privacy.fixed_products import MOST_LENGTHENED, MOST_NU, ProductGrid
from evenhand.privacy.pairwise import Words, stream
from evenhand.vertical.problem import NARROW, NARROWEST

BLOCKS: Final = 64
LEAST_AUDITED: Final = 10_000
"""Fewest rows of a table whose derivatives are audited: sums over blocks of fewer rows would tell the dealer labels."""
ONE_OF: Final = 8
"""An exchange of so many is audited, on average."""
ONE, FEW, MANY = 0, 1, 2
"""Answers of the dealer."""


def is_chosen(secret: bytes, number: int) -> bool:
    """Return whether the party's coin chooses this exchange."""
    return bool(stream(secret, f"coin {number}", 1)[0] % np.uint64(ONE_OF) == 0)


def block_sums(words: Words, seed: bytes) -> Words:
    """Return the sums of words by block, each with a random sign, modulo 2⁶⁴."""
    drawn = stream(seed, "blocks", len(words))
    signed = np.where(drawn >> np.uint64(63), words, np.negative(words))
    order = np.argsort(drawn & np.uint64(BLOCKS - 1), kind="stable")
    ends = np.searchsorted((drawn & np.uint64(BLOCKS - 1))[order], np.arange(BLOCKS))
    total = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(signed[order], dtype=np.uint64)])
    found: Words = np.diff(total[np.append(ends, len(words))])
    return found


def answer_of(sums: Words, rows: int) -> int:
    """Return what the sums by block of ν say. Sums beyond those of any ν are a probe that hides among large numbers."""
    size = decode(sums, 0)
    if np.abs(size).max(initial=0.0) > rows * MOST_NU * 2.0 ** (ProductGrid(rows).nu_bits + MOST_LENGTHENED):
        return ONE
    squares = (size / max(float(np.abs(size).max(initial=0.0)), 1.0)) ** 2
    effective = float(squares.sum() ** 2 / max(float((squares**2).sum()), 1e-300))
    if effective >= NARROW:
        return MANY
    # Sums that are all zero cancel: a ν of no row is no probe, and one of two rows is.
    return FEW if effective >= NARROWEST or not squares.any() else ONE
