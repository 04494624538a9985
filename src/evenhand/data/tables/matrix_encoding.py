"""Sparse matrices with numbered columns: divided by each column's largest absolute value, or left as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from scipy import sparse

from evenhand.arrays import Array, Matrix
from evenhand.data.tables.columns import number_from_state, require
from evenhand.errors import DataError

_WIDEST: Final = 2**31 - 1


@dataclass(frozen=True)
class MatrixScaling:
    """The number of columns, and the divisor of each if the encoder scales. Zeros stay zeros."""

    width: int
    divisors: Array | None = None

    @classmethod
    def fit(cls, data: Any, scale: bool) -> Self:
        """Learn the largest absolute value of each column; a column of zeros is divided by 1."""
        matrix = _finite(data)
        if not scale:
            return cls(matrix.shape[1])
        largest = np.zeros(matrix.shape[1])
        np.maximum.at(largest, matrix.indices, np.abs(matrix.data))
        return cls(matrix.shape[1], np.where(largest > 0.0, largest, 1.0))

    def merge(self, other: MatrixScaling) -> MatrixScaling:
        """Combine with what other rows gave."""
        if other.width != self.width:
            raise DataError(
                f"a matrix of {other.width} columns came after one of {self.width}; all clients need the same columns"
            )
        if self.divisors is None or other.divisors is None:
            return self
        return MatrixScaling(self.width, np.maximum(self.divisors, other.divisors))

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns: x0, x1, ..."""
        return [f"x{k}" for k in range(self.width)]

    def transform(self, data: Any) -> Matrix:
        """Scale rows; an unscaled CSR matrix of float64 is not copied."""
        if not sparse.issparse(data) and not isinstance(data, np.ndarray):
            raise DataError("this encoder was fitted on a sparse matrix and encodes matrices only, not named columns")
        matrix = _finite(data)
        if matrix.shape[1] != self.width:
            raise DataError(f"the matrix has {matrix.shape[1]} columns; the encoder was fitted on {self.width}")
        if self.divisors is None:
            return matrix
        # Only the values are new: the result shares its structure with the caller's matrix.
        values = self.divisors[matrix.indices]
        with np.errstate(over="ignore"):
            np.divide(matrix.data, values, out=values)
        if not np.isfinite(values).all():
            raise DataError("the matrix holds values far larger than those it was fitted on; rescale them")
        return sparse.csr_array((values, matrix.indices, matrix.indptr), shape=matrix.shape)

    def to_summary(self) -> dict[str, Any]:
        """Return what was learned as plain JSON values that another client's can be merged with."""
        return {"width": self.width, "largest": None if self.divisors is None else self.divisors.tolist()}

    @classmethod
    def from_summary(cls, summary: Mapping[str, Any], scale: bool) -> Self:
        """Read a client's summary."""
        width = int(summary["width"])
        if not scale:
            return cls(width)
        divisors = np.asarray(summary["largest"], dtype=np.float64)
        if divisors.shape != (width,) or not (np.isfinite(divisors).all() and (divisors > 0).all()):
            raise DataError("a sparse matrix needs one positive number a column to be divided by")
        return cls(width, divisors)

    def to_state(self) -> dict[str, Any]:
        """Return what was learned as plain JSON values."""
        return {"unscaled": self.width} if self.divisors is None else {"divisors": self.divisors.tolist()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], scale: bool) -> Self:
        """Read a state; refuse one that an encoder could not have written."""
        if "divisors" in state:
            require(scale and isinstance(state["divisors"], list), "divisors", "a list, of an encoder that scales")
            divisors = [number_from_state(one, "divisors", positive=True) for one in state["divisors"]]
            return cls(len(divisors), np.array(divisors, dtype=np.float64))
        width = state["unscaled"]
        require(not scale and type(width) is int and 0 <= width <= _WIDEST, "unscaled", f"a count up to {_WIDEST:,}")
        return cls(width)


def _finite(data: Any) -> Matrix:
    matrix = sparse.csr_array(data, dtype=np.float64)
    finite = int(np.count_nonzero(np.isfinite(matrix.data)))
    if infinite := matrix.data.size - finite:
        raise DataError(f"the matrix holds {infinite:,} values that are missing or infinite; replace them")
    return matrix
