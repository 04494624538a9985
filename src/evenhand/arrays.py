"""Names for the array types that appear in signatures throughout the package, and the dense form of a matrix."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Array: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Booleans: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Rows: TypeAlias = Integers | slice
ALL = slice(None)
"""Every row."""
# A dense array or a scipy.sparse array: what a party's encoded columns may be.
Matrix: TypeAlias = Any


def dense(matrix: Matrix) -> npt.NDArray[Any]:
    """Return the matrix as a dense array, without a copy if it is one."""
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix)
