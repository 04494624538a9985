"""Compute Xᵀ diag(w) X and the rows' xᵀFx, with few operations where columns are indicators of categories.

Columns of zeros and ones of which at most one is 1 in each row form a *block*, such as the levels of one category. A
few blocks share a *code*: a number for each row that tells the level of every block. Two codes meet in a table of sums
of weights, one entry for each pair of values, and the sums of columns follow from those of the table. A dense product
has one multiplication for each pair of columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Final

import numpy as np
import scipy.sparse as sp

from evenhand.arrays import Array, Booleans, Integers, Matrix

PART: Final = 1 << 14
"""Rows at a time, so that their codes and weights stay in the processor's cache."""
PRICE = 20.0
"""What adding a weight to a table costs, in multiplications of a dense product."""
SPARSE_PRICE = 20.0
"""What a multiplication of a sparse product costs, in those of a dense one."""
MOST_VALUES: Final = 256
"""Most values of a code of several blocks, so that a table of two stays in the cache."""


@dataclass(frozen=True, eq=False)
class _Block:
    """Adjacent columns of which at most one is 1 in each row; the level of a row without any is the last."""

    start: int
    width: int
    levels: Integers


@dataclass(frozen=True, eq=False)
class _Code:
    """Levels of one block or more in one number for each row.

    Attributes
    ----------
    columns
        The columns of its blocks.
    ones
        (values, columns): what the columns are where the code has a value.
    """

    values: Integers
    columns: Integers
    ones: Array

    @classmethod
    def of(cls, block: _Block) -> _Code:
        ones = np.eye(block.width + 1)[:, :-1]
        return cls(block.levels, np.arange(block.start, block.start + block.width), ones)

    def __len__(self) -> int:
        return len(self.ones)

    def joined(self, other: _Code) -> _Code:
        ones = np.hstack([np.repeat(self.ones, len(other), axis=0), np.tile(other.ones, (len(self), 1))])
        columns = np.concatenate([self.columns, other.columns])
        return _Code(self.values * len(other) + other.values, columns, ones)


class WeightedGram:
    """Xᵀ diag(w) X for weights of either sign, as a function of w.

    Parameters
    ----------
    matrix
        X, (n, d), dense or sparse.
    """

    def __init__(self, matrix: Matrix) -> None:
        sparse = sp.issparse(matrix)
        blocks, rest = _sparse_blocks(sp.csc_array(matrix)) if sparse else _blocks(matrix)
        codes = _joined([_Code.of(block) for block in blocks], matrix.shape[0])
        tables = len(codes) * (len(codes) + 1) / 2.0 + len(codes) * len(rest)
        plain = SPARSE_PRICE * _pairs(matrix) if sparse else float(matrix.shape[1]) ** 2
        self.by_tables = bool(codes) and PRICE * tables + float(len(rest)) ** 2 < plain
        self._matrix: Matrix = matrix
        self._codes: list[_Code] = codes if self.by_tables else []
        if self.by_tables:
            self._numbers: Array = matrix[:, rest].toarray() if sparse else matrix[:, rest]
            # Tables are filled in an order of their own: numbers, then the columns of each code.
            self._columns: Integers = np.concatenate([rest, *(code.columns for code in codes)])
            self._order: Integers = np.argsort(self._columns)
            ends = np.cumsum([len(rest), *(len(code.columns) for code in codes)])
            self._places = [slice(first, last) for first, last in pairwise(ends)]
            self._pairs = list(combinations(range(len(codes)), 2))
            self._stride = max(map(len, codes))

    def __call__(self, weights: Array) -> Array:
        """Return (k, d, d) for weights (k, n)."""
        if self.by_tables:
            return self._by_tables(weights)
        if sp.issparse(self._matrix):
            return np.array([_sparse_product(self._matrix, one) for one in weights])
        return np.array([self._matrix.T @ (self._matrix * one[:, None]) for one in weights])

    def _by_tables(self, weights: Array) -> Array:
        count, numbers, size = len(weights), self._numbers.shape[1], self._matrix.shape[1]
        found = np.zeros((count, size, size))
        singles = [np.zeros((count, 1 + numbers, len(code))) for code in self._codes]
        tables = [np.zeros((count, len(self._codes[first]) * self._stride)) for first, _ in self._pairs]
        for start in range(0, weights.shape[1], PART):
            part = slice(start, start + PART)
            self._add_singles(part, weights[:, part], found[:, :numbers, :numbers], singles)
            self._add_pairs(part, weights[:, part], tables)
        places = self._places
        for place, single, code in zip(places, singles, self._codes, strict=True):
            found[:, place, place] = code.ones.T @ (single[:, 0, :, None] * code.ones)
            found[:, :numbers, place] = single[:, 1:] @ code.ones
        # With zeros for values that a code does not have, tables are multiplied as they lie in memory.
        ones = [np.pad(code.ones, ((0, self._stride - len(code)), (0, 0))) for code in self._codes]
        for (first, second), table in zip(self._pairs, tables, strict=True):
            for onto, sums in zip(found, table.reshape(count, -1, self._stride), strict=True):
                onto[places[first], places[second]] = self._codes[first].ones.T @ (sums @ ones[second])
        whole = np.triu(found) + np.triu(found, 1).transpose(0, 2, 1)
        return np.asarray(whole[:, self._order[:, None], self._order])

    def forms(self, form: Array) -> Array:
        """Return xᵢᵀ F xᵢ of every row, for a symmetric F, (d, d)."""
        if self.by_tables:
            return self._forms_by_tables(form)
        found = np.zeros(self._matrix.shape[0])
        for start in range(0, len(found), PART):
            rows = self._matrix[start : start + PART]
            dense: Array = rows.toarray() if sp.issparse(rows) else rows
            found[start : start + PART] = np.einsum("ij,ij->i", dense @ form, dense)
        return found

    def _forms_by_tables(self, form: Array) -> Array:
        """Look up what each code and each pair of codes adds."""
        ordered, count = form[np.ix_(self._columns, self._columns)], self._numbers.shape[1]
        known = list(zip(self._codes, self._places, strict=True))
        own = [np.einsum("ij,ij->i", code.ones @ ordered[place, place], code.ones) for code, place in known]
        with_numbers = [2.0 * ordered[:count, place] @ code.ones.T for code, place in known]
        pairs = []
        for first, second in self._pairs:
            (code, place), (other, there) = known[first], known[second]
            pairs.append(2.0 * code.ones @ ordered[place, there] @ other.ones.T)
        found = np.zeros(len(self._numbers))
        for start in range(0, len(found), PART):
            part = slice(start, start + PART)
            numbers, values = self._numbers[part], [code.values[part] for code in self._codes]
            sums = np.einsum("ij,ij->i", numbers @ ordered[:count, :count], numbers)
            for level, alone, table in zip(values, own, with_numbers, strict=True):
                sums += alone[level]
                for column, line in zip(numbers.T, table, strict=True):
                    sums += column * line[level]
            for (first, second), table in zip(self._pairs, pairs, strict=True):
                sums += table.ravel()[values[first] * table.shape[1] + values[second]]
            found[part] = sums
        return found

    def _add_singles(self, part: slice, weights: Array, square: Array, singles: list[Array]) -> None:
        """Add the products of numbers, and for each code the sums of the weights and of the numbers."""
        numbers = self._numbers[part]
        for place, own in enumerate(weights):
            scaled = numbers.T * own
            square[place] += scaled @ numbers
            for single, code in zip(singles, self._codes, strict=True):
                for line, values in zip(single[place], (own, *scaled), strict=True):
                    line += np.bincount(code.values[part], values, len(code))

    def _add_pairs(self, part: slice, weights: Array, tables: list[Array]) -> None:
        """Add the sums of weights for each pair of codes; all weights share the cells."""
        high = [code.values[part] * self._stride for code in self._codes]
        for (first, second), table in zip(self._pairs, tables, strict=True):
            cells = high[first] + self._codes[second].values[part]
            for line, own in zip(table, weights, strict=True):
                line += np.bincount(cells, own, len(line))


def _sparse_product(matrix: Matrix, weights: Array) -> Array:
    rows = sp.csr_array(matrix)
    scaled = sp.csr_array((rows.data * np.repeat(weights, np.diff(rows.indptr)), rows.indices, rows.indptr), rows.shape)
    return np.asarray((rows.T @ scaled).toarray())


def _pairs(matrix: Matrix) -> float:
    """Return the mean over rows of the number of pairs of entries."""
    return float((np.diff(sp.csr_array(matrix).indptr).astype(np.float64) ** 2).mean())


def _joined(codes: list[_Code], rows: int) -> list[_Code]:
    """Join codes of few values, as long as tables stay small beside the rows that they sum."""
    most = min(MOST_VALUES, int(rows**0.5))
    found: list[_Code] = []
    for code in sorted(codes, key=len):
        if found and len(found[-1]) * len(code) <= most:
            found[-1] = found[-1].joined(code)
        else:
            found.append(code)
    return found


def _blocks(matrix: Array) -> tuple[list[_Block], Integers]:
    """Divide the columns of a dense matrix into blocks of indicators and all others."""
    indicator = np.ones(matrix.shape[1], dtype=bool)
    for start in range(0, len(matrix), PART):
        part = matrix[start : start + PART]
        indicator &= ((part == 0.0) | (part == 1.0)).all(axis=0)
        if not indicator.any():
            return [], np.arange(matrix.shape[1])
    return _divided(len(matrix), indicator, lambda column: np.flatnonzero(matrix[:, column]))


def _sparse_blocks(matrix: Matrix) -> tuple[list[_Block], Integers]:
    """Divide the columns of a CSC array into blocks of indicators and all others."""
    ends = matrix.indptr
    others = np.concatenate([[0], np.cumsum(matrix.data != 1.0)])
    indicator = np.diff(others[ends]) == 0
    return _divided(matrix.shape[0], indicator, lambda column: matrix.indices[ends[column] : ends[column + 1]])


def _divided(rows: int, indicator: Booleans, ones: Callable[[int], Integers]) -> tuple[list[_Block], Integers]:
    """Make blocks of adjacent indicators as long as no row has two ones; `ones` returns the rows of a column's."""
    blocks: list[_Block] = []
    first = 0
    while first < len(indicator):
        if not indicator[first]:
            first += 1
            continue
        levels = np.full(rows, -1, dtype=np.int64)
        last = first
        while last < len(indicator) and indicator[last]:
            here = ones(last)
            if (levels[here] >= 0).any():
                break
            levels[here] = last - first
            last += 1
        levels[levels < 0] = last - first
        blocks.append(_Block(first, last - first, levels))
        first = last
    return blocks, np.flatnonzero(~indicator)
