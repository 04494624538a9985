"""Estimate how far a linear block's weights would vary with other training rows, from what its party has.

With ν_i, the derivative of the objective in the score of row i, and w_i its curvature, the covariance of the weights is
the sandwich (Huber, 1967; White, 1980)

    H⁻¹ (Xᵀ diag(ν²) X) H⁻¹,      H = Xᵀ diag(w) X + μI.

It holds for any loss, and for weighted rows. The scores that other parties add are taken as given: where their columns
are correlated with the block's, the weights vary more than this. Multipliers are taken as given too.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve

from evenhand.arrays import Array, Matrix

MOST_COLUMNS: Final = 1000
MOST_PRODUCTS: Final = 4e9
"""Largest block that is estimated for: columns, and rows times columns squared, about two seconds."""
_RIDGE: Final = 1e-10


def covariance(matrix: Matrix, nu: Array, curvature: Array, regulariser: float) -> Array | None:
    """Return the covariance of the weights (columns, columns); None for blocks that are too large.

    An intercept is fitted beside the columns, whoever has it.

    Parameters
    ----------
    nu, curvature
        First and second derivative of the objective in each row's score.
    regulariser
        μ.
    """
    rows, columns = matrix.shape
    if columns == 0 or columns > MOST_COLUMNS or float(rows) * columns**2 > MOST_PRODUCTS:
        return None
    dense = np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix, dtype=np.float64)
    whole = np.column_stack([dense, np.ones(rows)])
    bread = (whole * curvature[:, None]).T @ whole
    ridge = np.full(columns + 1, regulariser)
    ridge[-1] = 0.0
    bread[np.diag_indices_from(bread)] += ridge + _RIDGE * float(np.diagonal(bread).mean())
    slopes = whole * nu[:, None]
    inverse = cho_solve(cho_factor(bread), slopes.T)
    found: Array = (inverse @ inverse.T)[:columns, :columns]
    return found if np.isfinite(found).all() else None
