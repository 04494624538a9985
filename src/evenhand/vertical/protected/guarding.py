"""Refuse columns that no protection can hide, and columns that hide nothing in a sum.

A passive party that receives only X_kᵀν learns as many numbers as it has columns, about all rows. That hides single
rows only if every column involves many of them. A column that belongs to one row gives this row's ν, and with it its
label. So does a combination of columns that belongs to one row (leverage 1). A batch with no more rows than columns
gives all of them.

A party that adds the same number to the sum for all rows, or for all but a few, leaves the sum to the other parties:
the server reads theirs, up to a constant.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.linalg import cholesky, solve_triangular

from evenhand.arrays import Array, Matrix
from evenhand.errors import DataError

MOST_LEVERAGE: Final = 0.5
"""Maximum leverage: the share of a row in its own fitted value. At 1 its ν is disclosed."""
LEAST_ROWS: Final = 5
"""Minimum number of rows of a category. A sum over fewer almost reveals each row."""
ROWS_FOR_EACH_COLUMN: Final = 10
"""Minimum number of rows for each column of a party."""
_DENSE: Final = 2048


def check_columns(name: str, matrix: Matrix) -> None:
    """Refuse columns if the labels of single rows follow from their gradient."""
    rows, columns = matrix.shape
    if rows < ROWS_FOR_EACH_COLUMN * columns:
        raise DataError(
            f"{name} has {columns} columns and there are {rows} rows: its gradients would reveal the labels of most of "
            f"them. Take at least {ROWS_FOR_EACH_COLUMN} rows a column, or leave out columns"
        )
    filled = _filled(matrix)
    rare = np.flatnonzero((filled > 0) & (filled < LEAST_ROWS))
    if len(rare):
        raise DataError(
            f"{name}: column {rare[0]} belongs to {int(filled[rare[0]])} rows only, whose labels its gradient would "
            f"reveal. Merge rare categories until each has {LEAST_ROWS} rows, or leave the column out"
        )
    worst = leverages(matrix)
    if worst.max(initial=0.0) > MOST_LEVERAGE:
        raise DataError(
            f"{name}: row {int(np.argmax(worst))} has leverage {worst.max():.2f}: its label would follow from the "
            "gradients. Merge rare categories, or clip extreme values in that row"
        )


def check_covers(name: str, matrix: Matrix) -> None:
    """Refuse columns that are the same in all rows, or in all but a few: sums would show the other parties' columns."""
    differ = _differing(matrix)
    if differ >= LEAST_ROWS:
        return
    said = f"its columns differ in {differ} of {matrix.shape[0]} rows only" if differ else "all its rows are equal"
    if not matrix.shape[1]:
        said = "it has no columns"
    raise DataError(
        f"{name}: {said}. What it adds to the masked sums covers nothing in the other rows, so the server "
        "would read there what the other parties add. Leave the party out, merge rare categories until "
        f"{LEAST_ROWS} rows differ, or choose protection 'none' and accept that the server reads every party"
    )


def _differing(matrix: Matrix) -> int:
    """Return the number of rows that differ from the most frequent one."""
    rows, columns = matrix.shape
    if not rows or not columns:
        return 0
    if isinstance(matrix, pd.DataFrame):
        rows_alike = pd.util.hash_pandas_object(matrix, index=False)
        return rows - int(rows_alike.value_counts().max())
    if not sp.issparse(matrix):
        # A missing value, which only trees are given, is a value like any other.
        matrix = np.nan_to_num(matrix, nan=np.pi)
    along = matrix @ np.random.default_rng(columns).standard_normal(columns)
    # Products of equal rows may differ in the last bits.
    digits = along / max(float(np.abs(along).max()), float(np.finfo(float).tiny))
    counts = np.unique(np.round(digits, 9), return_counts=True)[1]
    return rows - int(counts.max())


def leverages(matrix: Matrix) -> Array:
    """Return the leverage of each row: diag(X (XᵀX)⁻¹ Xᵀ)."""
    rows, columns = matrix.shape
    if columns == 0 or columns > _DENSE:
        return np.zeros(rows)
    product = matrix.T @ matrix
    gram: Array = np.asarray(product.toarray() if sp.issparse(product) else product)
    units = np.sqrt(np.maximum(gram.diagonal(), np.finfo(float).tiny))
    gram = gram / units / units[:, None]
    # Columns may be dependent, as one-hot columns of two attributes are. This shift changes no relevant leverage.
    factor = cholesky(gram + 1e-10 * columns * np.eye(columns), lower=True)
    found = np.empty(rows)
    for start in range(0, rows, 1 << 14):
        part = matrix[start : start + (1 << 14)]
        dense = part.toarray() if sp.issparse(part) else np.asarray(part)
        found[start : start + (1 << 14)] = (solve_triangular(factor, (dense / units).T, lower=True) ** 2).sum(axis=0)
    return found


def _filled(matrix: Matrix) -> Array:
    """Return, for each column, the number of rows that differ from its most frequent value."""
    if sp.issparse(matrix):
        return np.asarray(sp.csc_array(matrix).astype(bool).sum(axis=0)).ravel().astype(float)
    dense = np.asarray(matrix)
    found = np.empty(dense.shape[1])
    for place, column in enumerate(dense.T):
        values, counts = np.unique(column, return_counts=True)
        # A column with many values has no usual value. Its leverage is checked instead.
        found[place] = len(column) - counts.max() if len(values) == 2 else len(column)
    return found
