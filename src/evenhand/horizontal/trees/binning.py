"""Where columns are cut into bins, from counts that add up over clients.

A number's bits, with the sign turned, stand in the order of numbers. The first twelve of a number in single precision
(sign, exponent, three binary digits) cut the line into cells, whatever units a column is in; the fullest cells are cut
into 256 more. Clients count their values in cells, counts are added up, and edges follow from the sums: they are those
of the pooled rows, whoever has which.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Integers
from evenhand.models.binned_trees import MOST_BINS, Edges, single

CELLS = 1 << 12
"""Cells of the whole line."""
FULLEST = 64
"""Cells of a column that are cut once more."""
PARTS = 256
"""Parts of such a cell."""
NONE = -1
"""In place of a cell, where there are fewer."""

Keys = npt.NDArray[np.uint32]


def keys(values: Any) -> Keys:
    """Numbers in single precision as whole ones in the same order; there must be no gaps."""
    bits = (single(values) + np.float32(0.0)).view(np.uint32)
    return np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))


def values_of(numbers: Keys) -> Edges:
    bits = np.where(numbers >> 31, numbers ^ np.uint32(1 << 31), ~numbers).astype(np.uint32)
    return bits.view(np.float32)


def coarse_counts(features: Any) -> Integers:
    """(columns, CELLS): how many values are in each cell; missing ones are in none."""
    found = [np.bincount(keys(_known(column)) >> 20, minlength=CELLS) for column in features.T]
    return np.array(found, dtype=np.int64).reshape(-1, CELLS)


def fullest_cells(counts: Integers) -> Integers:
    """(columns, FULLEST): which cells are to be cut once more, in order; `NONE` where there are fewer."""
    found = np.full((len(counts), FULLEST), NONE)
    for column, here in enumerate(counts):
        order = np.argsort(-here, kind="stable")[:FULLEST]
        cells = np.sort(order[here[order] > 0])
        found[column, : len(cells)] = cells
    return found


def fine_counts(features: Any, cells: Integers) -> Integers:
    """(columns, FULLEST, PARTS): how many values are in each part of these cells."""
    found = np.zeros((len(cells), FULLEST, PARTS), dtype=np.int64)
    for column, wanted in enumerate(cells):
        numbers = keys(_known(features[:, column]))
        place = np.full(CELLS, NONE)
        place[wanted[wanted != NONE]] = np.flatnonzero(wanted != NONE)
        at = place[numbers >> 20]
        inside = at != NONE
        part = (numbers[inside] >> 12) & (PARTS - 1)
        found[column] = np.bincount(at[inside] * PARTS + part, minlength=FULLEST * PARTS).reshape(FULLEST, PARTS)
    return found


def edges_of(coarse: Integers, cells: Integers, fine: Integers) -> list[Edges]:
    """Of each column at most `MOST_BINS` − 1 edges: one between any two values, or bins of about as many rows each."""
    found = []
    for counts, wanted, parts in zip(coarse, cells, fine, strict=True):
        wanted = wanted[wanted != NONE]
        whole = counts.copy()
        whole[wanted] = 0
        starts = np.concatenate([np.arange(CELLS) << 20, (wanted[:, None] << 20 | np.arange(PARTS) << 12).ravel()])
        sizes = np.concatenate([np.full(CELLS, 1 << 20), np.full(len(wanted) * PARTS, 1 << 12)])
        held = np.concatenate([whole, parts[: len(wanted)].ravel()])
        order = np.argsort(starts, kind="stable")
        order = order[held[order] > 0]
        found.append(_cut(starts[order], sizes[order], held[order]))
    return found


def _cut(starts: Integers, sizes: Integers, held: Integers) -> Edges:
    bins = np.arange(len(held)) if len(held) <= MOST_BINS else (np.cumsum(held) - held) * MOST_BINS // held.sum()
    after = np.flatnonzero(np.diff(bins)) + 1
    # In the middle of the gap before the cell, so that new values between two known ones go to the nearer.
    ends = starts[after - 1] + sizes[after - 1]
    middle = np.minimum((ends + starts[after] + 1) // 2, starts[after])
    return values_of(middle.astype(np.uint32))


def bin_counts(edges: Sequence[Edges]) -> Integers:
    """How many bins each column has, the one of missing values among them."""
    return np.array([len(cuts) + 2 for cuts in edges], dtype=np.int64)


def _known(column: Any) -> Any:
    return column[~np.isnan(column)]
