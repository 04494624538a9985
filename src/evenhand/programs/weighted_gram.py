"""Compute Xᵀ diag(w) X, with few operations where columns are indicators of categories.

Columns of zeros and ones of which at most one is 1 in each row form a *block*, such as the levels of one category. Two
blocks meet in a table of sums of weights, one entry for each pair of levels, whatever the number of levels. A dense
product has one multiplication for each pair of columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from evenhand.arrays import Array, Integers

PART: Final = 1 << 14
"""Rows at a time, so that their codes and weights stay in the processor's cache."""
PRICE = 20.0
"""What adding a weight to a table costs, in multiplications of a dense product."""


@dataclass(frozen=True, eq=False)
class _Block:
    """Adjacent columns of which at most one is 1 in each row; the code of a row without any is the last."""

    start: int
    width: int
    codes: Integers

    @property
    def place(self) -> slice:
        return slice(self.start, self.start + self.width)

    @property
    def levels(self) -> int:
        return self.width + 1


class WeightedGram:
    """Xᵀ diag(w) X for weights of either sign, as a function of w.

    Parameters
    ----------
    matrix
        X, (n, d), dense.
    """

    def __init__(self, matrix: Array) -> None:
        self._matrix = matrix
        blocks, rest = _blocks(matrix)
        tables = len(blocks) * (len(blocks) + 1) / 2.0 + len(blocks) * len(rest)
        dense = float(matrix.shape[1]) ** 2
        self.by_tables = bool(blocks) and PRICE * tables + len(rest) ** 2 < dense
        self._blocks: list[_Block] = blocks if self.by_tables else []
        self._rest: Integers = rest
        self._numbers: Array = matrix[:, rest] if self.by_tables else matrix
        self.products = PRICE * tables + float(len(rest)) ** 2 if self.by_tables else dense
        """Multiplications for each row of data."""

    def __call__(self, weights: Array) -> Array:
        """Return (k, d, d) for weights (k, n)."""
        if not self.by_tables:
            return np.array([self._matrix.T @ (self._matrix * one[:, None]) for one in weights])
        size = self._matrix.shape[1]
        total = np.zeros((len(weights), size, size))
        for start in range(0, weights.shape[1], PART):
            part = slice(start, start + PART)
            self._add(total, part, weights[:, part])
        # Each pair of blocks, and of a number and a block, was added on one side of the diagonal.
        return np.triu(total) + np.triu(total, 1).transpose(0, 2, 1)

    def _add(self, total: Array, part: slice, weights: Array) -> None:
        numbers = self._numbers[part]
        scaled = [numbers.T * one for one in weights]
        for onto, own in zip(total, scaled, strict=True):
            onto[np.ix_(self._rest, self._rest)] += own @ numbers
        for place, block in enumerate(self._blocks):
            codes = block.codes[part]
            for onto, own, one in zip(total, scaled, weights, strict=True):
                onto[block.place, block.place] += np.diag(_sums(codes, one, block.levels)[:-1])
                for column, values in zip(self._rest, own, strict=True):
                    sums = _sums(codes, values, block.levels)[:-1]
                    if column < block.start:
                        onto[column, block.place] += sums
                    else:
                        onto[block.place, column] += sums
            for other in self._blocks[place + 1 :]:
                # The places of a table are the same for all weights.
                cells = codes * other.levels
                cells += other.codes[part]
                for onto, one in zip(total, weights, strict=True):
                    table = _sums(cells, one, block.levels * other.levels)
                    onto[block.place, other.place] += table.reshape(block.levels, other.levels)[:-1, :-1]


def _sums(codes: Integers, values: Array, size: int) -> Array:
    return np.bincount(codes, weights=values, minlength=size).astype(np.float64, copy=False)


def _blocks(matrix: Array) -> tuple[list[_Block], Integers]:
    """Divide the columns into blocks of indicators and all others."""
    rows, columns = matrix.shape
    indicator = np.ones(columns, dtype=bool)
    for start in range(0, rows, PART):
        part = matrix[start : start + PART]
        indicator &= ((part == 0.0) | (part == 1.0)).all(axis=0)
        if not indicator.any():
            return [], np.arange(columns)
    blocks: list[_Block] = []
    first = 0
    while first < columns:
        if not indicator[first]:
            first += 1
            continue
        codes = np.full(rows, -1, dtype=np.int64)
        last = first
        while last < columns and indicator[last]:
            ones = np.flatnonzero(matrix[:, last])
            if (codes[ones] >= 0).any():
                break
            codes[ones] = last - first
            last += 1
        width = last - first
        codes[codes < 0] = width
        blocks.append(_Block(first, width, codes))
        first = last
    return blocks, np.flatnonzero(~indicator)
