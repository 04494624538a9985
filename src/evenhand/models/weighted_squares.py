"""Compute Xᵀ diag(w) X of a block of columns, for weights that change from round to round."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np
import scipy.sparse as sp

from evenhand.arrays import ALL, Array, Matrix, Rows

SPARSE_PRICE = 20.0
"""What a multiplication of a sparse product costs, in those of a dense one."""
ROWS_FOR_EACH_COLUMN = 200
"""Rows of a tall dense block to take the curvature from, for each column: the direction is then about a tenth off."""
MOST_PAIRS = 3e6
"""Most pairs of entries of a sparse block to keep in a list: about 50 MB."""


class WeightedSquare(Protocol):
    """Xᵀ diag(w) X, as a function of w."""

    products: float
    """Multiplications that it takes."""
    rows: Rows
    """Of which rows it asks for w."""

    def __call__(self, weights: Array) -> Array: ...


def weighted_square(matrix: Matrix) -> WeightedSquare:
    """Choose the cheapest form for this block."""
    rows, columns = matrix.shape
    if not sp.issparse(matrix):
        few = 2 * ROWS_FOR_EACH_COLUMN * columns < rows
        return _SampledSquare(matrix) if few else _DenseSquare(matrix)
    filled = np.bincount(matrix.tocsc().indices, minlength=rows).astype(np.float64)
    pairs = float(filled @ filled)
    return _PairedSquare(matrix, pairs) if pairs <= MOST_PAIRS else _SparseSquare(matrix, pairs)


class _DenseSquare:
    rows: Rows = ALL

    def __init__(self, matrix: Array) -> None:
        self._matrix = matrix
        self.products = float(matrix.shape[0]) * float(matrix.shape[1]) ** 2

    def __call__(self, weights: Array) -> Array:
        roots = np.sqrt(weights)
        total = np.zeros((self._matrix.shape[1], self._matrix.shape[1]))
        for start in range(0, len(roots), 1 << 16):
            # In blocks: a scaled copy of a large table might not fit in memory.
            part = self._matrix[start : start + (1 << 16)] * roots[start : start + (1 << 16), None]
            total += part.T @ part
        return total


class _SampledSquare:
    """Estimate from some rows of a tall block, drawn with a fixed seed.

    Columns are scaled to their size in all rows. Otherwise a column with a few large entries that were not drawn would
    look almost empty, and steps along it would be far too long.
    """

    def __init__(self, matrix: Array) -> None:
        rows, columns = matrix.shape
        count = ROWS_FOR_EACH_COLUMN * columns
        self.rows: Rows = np.sort(np.random.default_rng(0).choice(rows, count, replace=False, shuffle=False))
        some = np.asfortranarray(matrix[self.rows])
        self._sizes = np.array([column @ column for column in matrix.T])
        drawn = np.array([column @ column for column in some.T])
        some *= np.sqrt(np.divide(self._sizes, drawn, out=np.zeros(columns), where=drawn > 0.0))
        self._lacking = np.where(drawn > 0.0, 0.0, self._sizes)
        self._some = _DenseSquare(some)
        self.products = self._some.products

    def __call__(self, weights: Array) -> Array:
        square = self._some(weights)
        diagonal = square.diagonal()
        # Columns that are equal in the sample may differ in other rows.
        apart = len(diagonal) / len(weights) * diagonal + float(weights.mean()) * self._lacking
        square[np.diag_indices_from(square)] += apart
        return square


class _SparseSquare:
    rows: Rows = ALL

    def __init__(self, matrix: Matrix, pairs: float) -> None:
        self._matrix = matrix
        self.products = SPARSE_PRICE * pairs

    def __call__(self, weights: Array) -> Array:
        columns, roots = self._matrix.tocsc(), np.sqrt(weights)
        data = columns.data * roots[columns.indices]
        scaled = sp.csc_array((data, columns.indices, columns.indptr), self._matrix.shape)
        return np.asarray((scaled.T @ scaled).toarray())


class _PairedSquare:
    """One product with w: the pairs of entries that share a row of a sparse block do not change between rounds."""

    rows: Rows = ALL

    def __init__(self, matrix: Matrix, pairs: float) -> None:
        self._matrix = matrix
        self.products = pairs

    @cached_property
    def _pairs(self) -> Matrix:
        """(columns², rows): the product of two columns in each row, for one of each two orders."""
        by_row = self._matrix.tocsr()
        size, columns = by_row.shape
        filled = np.diff(by_row.indptr)
        row = np.repeat(np.arange(size, dtype=np.int32), filled)
        firsts = [np.arange(len(row), dtype=np.int32)]
        for apart in range(1, int(filled.max(initial=0))):
            # Entries so many places before another of their row.
            firsts.append(np.flatnonzero(row[:-apart] == row[apart:]).astype(np.int32))
        first = np.concatenate(firsts)
        second = first + np.repeat(np.arange(len(firsts), dtype=np.int32), [len(part) for part in firsts])
        # Short integers are sorted many times faster.
        code = by_row.indices.astype(np.int64 if columns > 255 else np.uint16)
        place = code[first] * code.dtype.type(columns) + code[second]
        order = np.argsort(place, kind="stable")
        first, second = first[order], second[order]
        ends = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=columns**2))]).astype(np.int32)
        products = by_row.data[first] * by_row.data[second]
        return sp.csr_array((products, row[first], ends), shape=(columns**2, size))

    def __call__(self, weights: Array) -> Array:
        columns = self._matrix.shape[1]
        half: Array = (self._pairs @ weights).reshape(columns, columns)
        # By way of rows in which indices are out of order, a pair may be on either side of the diagonal.
        return half + half.T - np.diag(half.diagonal())
