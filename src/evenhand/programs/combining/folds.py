"""Folds of rows for cross-fitting. Every participant with labels needs them, so nothing is compiled here."""

from __future__ import annotations

import numpy as np

from evenhand.arrays import Integers


def assign_folds(stratum: Integers, folds: int) -> Integers:
    """Return the fold of each row: every stratum is spread over all folds, and a single row is in none (−1)."""
    random, found = np.random.default_rng(0), np.full(len(stratum), -1)
    for one in range(int(stratum.max(initial=-1)) + 1):
        rows = random.permutation(np.flatnonzero(stratum == one))
        if len(rows) > 1:
            found[rows] = (np.arange(len(rows)) + random.integers(folds)) % folds
    return found
