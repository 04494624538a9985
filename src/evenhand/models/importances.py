"""How much each column of a party moves its part of the score, by permutation: whatever the party's models are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from evenhand.arrays import Array
from evenhand.models.base import Scorer

ROWS = 200
"""Rows that are scored with each column permuted."""
MOST_COLUMNS = 200
"""Columns above which no importance is computed, because each of them takes as many scores."""


def permutation_importances(model: Scorer, matrix: Any) -> Array | None:
    """Return by how much the party's score of a row changes on average when one column is another row's.

    None if there are too many columns.
    """
    columns = matrix.shape[1]
    if not matrix.shape[0] or not 0 < columns <= MOST_COLUMNS:
        return None
    random = np.random.default_rng(0)
    places = np.sort(random.permutation(matrix.shape[0])[:ROWS])
    if isinstance(matrix, pd.DataFrame):
        rows: Any = matrix.iloc[places].reset_index(drop=True)
        other = rows.iloc[random.permutation(len(rows))].reset_index(drop=True)
        changed = [rows.assign(**{name: other[name]}) for name in rows.columns]
        found = model.predict(pd.concat([rows, *changed], ignore_index=True))
    else:
        rows = matrix[places].toarray() if sp.issparse(matrix) else np.asarray(matrix)[places]
        other, whole = rows[random.permutation(len(rows))], np.tile(rows, (columns + 1, 1, 1))
        for column in range(columns):
            whole[column + 1, :, column] = other[:, column]
        found = model.predict(whole.reshape(-1, columns))
    scores = found.reshape(columns + 1, len(rows))
    return np.asarray(np.abs(scores[1:] - scores[0]).mean(axis=1))
