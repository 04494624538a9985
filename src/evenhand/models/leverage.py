"""Leverages of the rows in a block of columns: how far a row's score follows a change of its own derivative.

The leverage of row i is x_iᵀ (XᵀX c + μI)⁻¹ x_i · c with c the bound on the curvature of the loss on a row. It lies
between 0 and 1, depends on no label, and all leverages add up to the effective number of columns.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import scipy.sparse as sp

from evenhand.arrays import Array, Matrix
from evenhand.models.preconditioner import LARGEST_FACTOR, make_preconditioner

MOST_PRODUCTS: Final = 2e10
"""Most multiplications for leverages one by one: a few seconds. Beyond, they are estimated from random signs."""
PROBES: Final = 32
"""Vectors of random signs. One row's estimate is rough, and the mean over a slice of many rows is not."""
_ROWS: Final = 1 << 12


def leverages(matrix: Matrix, bound: float, regulariser: float) -> Array:
    """Return the leverage of each row.

    Parameters
    ----------
    matrix
        (n, m), dense or sparse.
    bound
        c, the bound on the curvature of each row.
    regulariser
        μ.
    """
    rows, columns = matrix.shape
    if columns == 0:
        return np.zeros(rows)
    inverse = make_preconditioner(matrix, bound, regulariser).inverse(None)
    if columns <= LARGEST_FACTOR and float(rows) * float(columns) ** 2 <= MOST_PRODUCTS:
        by_row = matrix.tocsr() if sp.issparse(matrix) else matrix
        found = np.empty(rows)
        for start in range(0, rows, _ROWS):
            some = by_row[start : start + _ROWS]
            some = some.toarray() if sp.issparse(some) else some
            found[start : start + _ROWS] = np.einsum("ij,ji->i", some, inverse(some.T))
    else:
        # E[s ∘ A s] is the diagonal of A for random signs s.
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (rows, PROBES))
        found = np.mean(signs * (matrix @ inverse(np.asarray(matrix.T @ signs))), axis=1)
    return np.clip(bound * found, 0.0, 1.0)
