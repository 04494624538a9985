"""Attacks on X_kᵀν, the gradient that a party receives if it does not receive ν itself."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from evenhand.arrays import Array, Matrix

CERTAIN: float = 0.999
"""Leverage above which a row's ν can be isolated from all others."""


def minimum_norm(columns: Matrix, gradient: Array) -> Array:
    """Return the minimum-norm ν that explains a gradient, X (XᵀX)⁺ g. With as many columns as rows it is ν itself."""
    table = _dense(columns)
    inner = table.T @ table
    return np.asarray(table @ (np.linalg.pinv(inner, rcond=1e-10, hermitian=True) @ gradient), dtype=np.float64)


def leverages(columns: Matrix) -> Array:
    """Return the share of its own ν that `minimum_norm` recovers for each row: 1 is all of it."""
    table = _dense(columns)
    inverse = np.linalg.pinv(table.T @ table, rcond=1e-10, hermitian=True)
    return np.asarray(np.einsum("ij,jk,ik->i", table, inverse, table), dtype=np.float64)


def _dense(columns: Matrix) -> Array:
    return np.asarray(columns.toarray() if sp.issparse(columns) else columns, dtype=np.float64)
