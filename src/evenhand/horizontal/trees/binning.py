"""Choose the bin edges of columns from counts that add up over clients.

The bits of a number, with the sign flipped, are ordered like the numbers. The first twelve bits in single precision
(sign, exponent, three binary digits) divide the real line into intervals, independent of the units of a column. The
fullest intervals are divided into 256 parts. Clients count their values in intervals, the server adds the counts, and
the edges follow from the sums. They equal those of the pooled rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Integers
from evenhand.models.binned_trees import MOST_BINS, Edges, single

COARSE_BINS = 1 << 12
"""Intervals of the real line."""
FULLEST = 64
"""Intervals of a column that are divided further."""
PARTS = 256
"""Parts of such an interval."""
NONE = -1
"""Placeholder if a column has fewer intervals."""

Keys = npt.NDArray[np.uint32]


def keys(values: Any) -> Keys:
    """Map numbers in single precision to integers in the same order; there must be no missing values."""
    bits = (single(values) + np.float32(0.0)).view(np.uint32)
    return np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))


def values_of(numbers: Keys) -> Edges:
    bits = np.where(numbers >> 31, numbers ^ np.uint32(1 << 31), ~numbers).astype(np.uint32)
    return bits.view(np.float32)


def coarse_counts(features: Any) -> Integers:
    """Return (columns, COARSE_BINS): the number of values in each interval, without missing values."""
    found = [np.bincount(keys(_known(column)) >> 20, minlength=COARSE_BINS) for column in features.T]
    return np.array(found, dtype=np.int64).reshape(-1, COARSE_BINS)


def fullest_bins(counts: Integers) -> Integers:
    """Return (columns, FULLEST): intervals to divide further, in order; padded with `NONE`."""
    found = np.full((len(counts), FULLEST), NONE)
    for column, here in enumerate(counts):
        order = np.argsort(-here, kind="stable")[:FULLEST]
        bins = np.sort(order[here[order] > 0])
        found[column, : len(bins)] = bins
    return found


def fine_counts(features: Any, bins: Integers) -> Integers:
    """Return (columns, FULLEST, PARTS): the number of values in each part of these intervals."""
    found = np.zeros((len(bins), FULLEST, PARTS), dtype=np.int64)
    for column, wanted in enumerate(bins):
        numbers = keys(_known(features[:, column]))
        place = np.full(COARSE_BINS, NONE)
        place[wanted[wanted != NONE]] = np.flatnonzero(wanted != NONE)
        at = place[numbers >> 20]
        inside = at != NONE
        part = (numbers[inside] >> 12) & (PARTS - 1)
        found[column] = np.bincount(at[inside] * PARTS + part, minlength=FULLEST * PARTS).reshape(FULLEST, PARTS)
    return found


def edges_of(coarse: Integers, bins: Integers, fine: Integers) -> list[Edges]:
    """Return at most `MOST_BINS` − 1 edges a column: between any two values, or for bins of about equal counts."""
    found = []
    for counts, wanted, parts in zip(coarse, bins, fine, strict=True):
        wanted = wanted[wanted != NONE]
        whole = counts.copy()
        whole[wanted] = 0
        starts = np.concatenate(
            [np.arange(COARSE_BINS) << 20, (wanted[:, None] << 20 | np.arange(PARTS) << 12).ravel()]
        )
        sizes = np.concatenate([np.full(COARSE_BINS, 1 << 20), np.full(len(wanted) * PARTS, 1 << 12)])
        held = np.concatenate([whole, parts[: len(wanted)].ravel()])
        order = np.argsort(starts, kind="stable")
        order = order[held[order] > 0]
        found.append(_cut(starts[order], sizes[order], held[order]))
    return found


def _cut(starts: Integers, sizes: Integers, held: Integers) -> Edges:
    bins = np.arange(len(held)) if len(held) <= MOST_BINS else (np.cumsum(held) - held) * MOST_BINS // held.sum()
    after = np.flatnonzero(np.diff(bins)) + 1
    # The edge is in the middle between occupied intervals, so new values go to the nearer bin.
    ends = starts[after - 1] + sizes[after - 1]
    middle = np.minimum((ends + starts[after] + 1) // 2, starts[after])
    return values_of(middle.astype(np.uint32))


def bin_counts(edges: Sequence[Edges]) -> Integers:
    """Return the number of bins of each column, including the bin of missing values."""
    return np.array([len(cuts) + 2 for cuts in edges], dtype=np.int64)


def _known(column: Any) -> Any:
    return column[~np.isnan(column)]
