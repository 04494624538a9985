"""Pack symmetric matrices for messages as their upper triangles, row by row."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from evenhand.arrays import Array, Integers


@lru_cache(maxsize=8)
def _places(size: int) -> tuple[Integers, Integers]:
    # Cached, because computing the indices takes longer than copying a small matrix.
    rows, columns = np.triu_indices(size)
    rows.setflags(write=False)
    columns.setflags(write=False)
    return rows, columns


def upper_triangle(matrix: Array) -> Array:
    return matrix[_places(len(matrix))]


def symmetric(triangle: Array, size: int) -> Array:
    """Return the matrix of an upper triangle, or zeros if none was sent."""
    matrix = np.zeros((size, size))
    if len(triangle):
        rows, columns = _places(size)
        matrix[rows, columns] = matrix[columns, rows] = triangle
    return matrix
