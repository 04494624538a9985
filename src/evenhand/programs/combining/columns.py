"""Columns of a tiny problem: the interface that its solver needs, and columns that are arrays.

Tree leaves are columns of zeros and ones with a compact form (`leaves.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from evenhand.arrays import Array, Integers, Rows

CACHED = 1 << 12
"""Rows of all columns that stay in the processor's cache: a few products with them cost little more than one."""


class Columns(Protocol):
    """C, of n rows of data and p columns."""

    width: int

    def some(self, rows: Integers) -> Columns:
        """Return these rows of data."""
        ...

    def scores(self, coefficients: Array) -> Array:
        """Return C α, (n,)."""
        ...

    def sums(self, values: Array) -> Array:
        """Return Cᵀ v, (p,)."""
        ...

    def tilted_sums(self, weights: Array, stratum: Integers, values: Array) -> Array:
        """Return (R, p): row r is Cᵀ of weights[r, stratum] · v."""
        ...

    def add_gram(self, onto: Array, weights: Array) -> Array:
        """Return `onto` + Cᵀ diag(w) C, for w ≥ 0; `ClassColumns` take matrices w between a row's scores."""
        ...

    def whitened_gram(self, root: Array, weights: Array) -> Array:
        """Return rootᵀ Cᵀ diag(w) C root, for the same w."""
        ...


class SampledColumns(NamedTuple):
    """A sample of rows of the columns, with the rows' places and sample weights."""

    columns: Columns
    rows: Rows
    stands_for: Array | float


class DenseColumns:
    """Columns as an array (n, p); an array in Fortran order is not copied."""

    def __init__(self, columns: Array) -> None:
        self._basis: Array = np.ascontiguousarray(columns.T)
        self.width = len(self._basis)

    def some(self, rows: Integers) -> DenseColumns:
        return DenseColumns(np.take(self._basis, rows, axis=1).T)

    def scores(self, coefficients: Array) -> Array:
        return coefficients @ self._basis

    def sums(self, values: Array) -> Array:
        return self._basis @ values

    def tilted_sums(self, weights: Array, stratum: Integers, values: Array) -> Array:
        if len(weights) > weights.shape[1]:
            # With many groups there are fewer strata than pairs of them: sum over strata first.
            return weights @ self.tilted_sums(np.eye(weights.shape[1]), stratum, values)
        sums = np.zeros((len(weights), self.width))
        for part, basis in self._parts(CACHED):
            sums += (weights[:, stratum[part]] * values[part]) @ basis.T
        return sums

    def add_gram(self, onto: Array, weights: Array) -> Array:
        roots, gram = np.sqrt(weights), onto.copy()
        for part, basis in self._parts(1 << 16):
            scaled = basis * roots[part]
            gram += scaled @ scaled.T
        return gram

    def whitened_gram(self, root: Array, weights: Array) -> Array:
        return root.T @ self.add_gram(np.zeros_like(root), weights) @ root

    def _parts(self, size: int) -> Iterator[tuple[slice, Array]]:
        """Split the rows of data into parts, to bound the memory of temporary copies."""
        for start in range(0, self._basis.shape[1], size):
            part = slice(start, start + size)
            yield part, self._basis[:, part]

    def cross(self, other: DenseColumns, weights: Array) -> Array:
        """Return Aᵀ diag(w) B of these columns A and others B, for any w."""
        total = np.zeros((self.width, other.width))
        for (part, basis), (_, others) in zip(self._parts(1 << 16), other._parts(1 << 16), strict=True):
            total += (basis * weights[part]) @ others.T
        return total


class ListedColumns(DenseColumns):
    """Columns anywhere in memory, in either precision, without a copy."""

    def __init__(self, columns: Sequence[Array]) -> None:
        self._list = columns
        self.width = len(columns)

    def some(self, rows: Integers) -> DenseColumns:
        return DenseColumns(np.array([column[rows] for column in self._list], dtype=np.float64).T)

    def scores(self, coefficients: Array) -> Array:
        scores = np.empty(len(self._list[0]))
        for part, basis in self._parts(CACHED):
            np.matmul(coefficients, basis, out=scores[part])
        return scores

    def sums(self, values: Array) -> Array:
        sums = np.zeros(self.width)
        for part, basis in self._parts(CACHED):
            sums += basis @ values[part]
        return sums

    def _parts(self, size: int) -> Iterator[tuple[slice, Array]]:
        for start in range(0, len(self._list[0]), size):
            part = slice(start, start + size)
            yield part, np.array([column[part] for column in self._list], dtype=np.float64)


class ClassColumns:
    """Columns where each row has a score for each class: a column changes the scores of one class.

    Scores and other values of rows are (classes, n), and curvature is (classes, classes, n).

    Parameters
    ----------
    of_class
        The columns of each class.
    places
        Where the coefficients of each class are among all coefficients.
    """

    def __init__(self, of_class: Sequence[DenseColumns], places: Sequence[Integers]) -> None:
        self._of_class, self._places = of_class, places
        self.width = sum(one.width for one in of_class)

    def some(self, rows: Integers) -> ClassColumns:
        return ClassColumns([one.some(rows) for one in self._of_class], self._places)

    def scores(self, coefficients: Array) -> Array:
        pairs = zip(self._of_class, self._places, strict=True)
        return np.array([one.scores(coefficients[places]) for one, places in pairs])

    def sums(self, values: Array) -> Array:
        sums = np.zeros(self.width)
        for one, places, own in zip(self._of_class, self._places, values, strict=True):
            sums[places] = one.sums(own)
        return sums

    def tilted_sums(self, weights: Array, stratum: Integers, values: Array) -> Array:
        sums = np.zeros((len(weights), self.width))
        for one, places, own in zip(self._of_class, self._places, values, strict=True):
            sums[:, places] = one.tilted_sums(weights, stratum, own)
        return sums

    def add_gram(self, onto: Array, weights: Array) -> Array:
        gram = onto.copy()
        for first, (one, places) in enumerate(zip(self._of_class, self._places, strict=True)):
            for second in range(first + 1):
                found = one.cross(self._of_class[second], weights[first, second])
                gram[np.ix_(places, self._places[second])] += found
                if second < first:
                    gram[np.ix_(self._places[second], places)] += found.T
        return gram

    def whitened_gram(self, root: Array, weights: Array) -> Array:
        return root.T @ self.add_gram(np.zeros_like(root), weights) @ root


FOR_EACH_COLUMN = 200
"""Rows in a sample for each column: a step then leaves about a fiftieth of what there was to gain."""
FROM_EACH_STRATUM = 1000
"""Rows that are taken of a stratum in any case, if it has them."""


class RowSample(NamedTuple):
    """Sampled rows of data in order, and how many rows each stands for."""

    rows: Integers
    stands_for: Array

    def of(self, columns: Columns) -> SampledColumns:
        return SampledColumns(columns.some(self.rows), self.rows, self.stands_for)


def draw_sample(stratum: Integers, columns: int) -> RowSample | None:
    """Draw a sample for curvature over so many columns; None if it would be at least half of all rows."""
    wanted = FOR_EACH_COLUMN * columns
    sizes = np.bincount(stratum)
    counts = np.minimum(sizes, np.maximum(FROM_EACH_STRATUM, -(-wanted * sizes // len(stratum))))
    if 2 * counts.sum() > len(stratum):
        return None
    random, ends = np.random.default_rng(0), np.cumsum(sizes)
    order = np.argsort(stratum.astype(np.min_scalar_type(len(sizes))), kind="stable")
    drawn = [
        order[end - size + random.choice(size, count, replace=False, shuffle=False)]
        for end, size, count in zip(ends, sizes, counts, strict=True)
    ]
    rows = np.sort(np.concatenate(drawn))
    return RowSample(rows, (sizes / np.maximum(counts, 1))[stratum[rows]])
