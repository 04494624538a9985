"""Columns of a tiny problem: all that its solver asks of them, and columns that are simply arrays.

The leaves of trees are columns too, of zeros and ones, and keep themselves in a form of their own (`leaves.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from evenhand.arrays import Array, Integers

CACHED = 1 << 12


class Columns(Protocol):
    """C, of n rows of data and p columns."""

    width: int

    def some(self, rows: Integers) -> Columns:
        """These rows of data only."""
        ...

    def scores(self, coefficients: Array) -> Array:
        """C α, (n,)."""
        ...

    def sums(self, values: Array) -> Array:
        """Cᵀ v, (p,)."""
        ...

    def tilted_sums(self, weights: Array, cell: Integers, values: Array) -> Array:
        """(R, p): row r is Cᵀ of weights[r, cell] · v, where every row of data has a cell."""
        ...

    def add_gram(self, onto: Array, weights: Array) -> Array:
        """`onto` + Cᵀ diag(w) C, for w ≥ 0."""
        ...

    def whitened_gram(self, root: Array, weights: Array) -> Array:
        """rootᵀ Cᵀ diag(w) C root, for w ≥ 0."""
        ...


class SampledColumns(NamedTuple):
    """Some rows of data of the columns, which these are, and how many rows each stands for."""

    columns: Columns
    rows: Integers | slice
    stands_for: Array | float


class DenseColumns:
    """Columns as an array (n, p); in Fortran order it is used without a copy."""

    def __init__(self, columns: Array) -> None:
        self._basis: Array = np.ascontiguousarray(columns.T)
        self.width = len(self._basis)

    def some(self, rows: Integers) -> DenseColumns:
        return DenseColumns(np.take(self._basis, rows, axis=1).T)

    def scores(self, coefficients: Array) -> Array:
        return coefficients @ self._basis

    def sums(self, values: Array) -> Array:
        return self._basis @ values

    def tilted_sums(self, weights: Array, cell: Integers, values: Array) -> Array:
        sums = np.zeros((len(weights), self.width))
        # A block of all columns stays in the processor's cache: a few rows at once cost little more than one.
        for part in _blocks(len(values), CACHED):
            sums += (weights[:, cell[part]] * values[part]) @ self._basis[:, part].T
        return sums

    def add_gram(self, onto: Array, weights: Array) -> Array:
        roots, gram = np.sqrt(weights), onto.copy()
        for part in _blocks(len(weights)):
            scaled = self._basis[:, part] * roots[part]
            gram += scaled @ scaled.T
        return gram

    def whitened_gram(self, root: Array, weights: Array) -> Array:
        return root.T @ self.add_gram(np.zeros_like(root), weights) @ root


def _blocks(rows: int, size: int = 1 << 16) -> Iterator[slice]:
    """Blocks of rows of data: with a million rows, temporary copies of all columns would not fit."""
    return (slice(start, start + size) for start in range(0, rows, size))
