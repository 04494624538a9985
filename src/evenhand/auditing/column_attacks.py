"""Attacks on a party's columns through the scores it sends: equal records, feature effects, explained variance."""

from __future__ import annotations

from typing import Final

import numpy as np
import scipy.sparse as sp

from evenhand.arrays import Array, Booleans, Integers, Matrix

PAIRS: Final = 2000
PEAKS: Final = 64
"""Number of most common differences that an attacker considers."""


def records(columns: Matrix) -> Integers:
    """Return a number for each distinct record."""
    table = columns.toarray() if sp.issparse(columns) else np.asarray(columns)
    codes = np.unique(np.ascontiguousarray(table, dtype=np.float64), axis=0, return_inverse=True)[1]
    return codes.reshape(-1).astype(np.int64)


def pairs(codes: Integers, rng: np.random.Generator) -> tuple[Integers, Integers, Booleans] | None:
    """Return pairs of rows, half of them equal in all columns, and which are equal; None if no two rows are equal."""
    order = np.lexsort((rng.random(len(codes)), codes))
    alike = np.flatnonzero(codes[order][1:] == codes[order][:-1])
    if len(alike) < 10:
        return None
    chosen = rng.choice(alike, min(PAIRS, len(alike)), replace=False)
    left, right = order[chosen], order[chosen + 1]
    strangers = rng.integers(0, len(codes), (2, 4 * len(chosen)))
    apart = strangers[:, codes[strangers[0]] != codes[strangers[1]]][:, : len(chosen)]
    return (
        np.concatenate([left, apart[0]]),
        np.concatenate([right, apart[1]]),
        np.arange(len(left) + apart.shape[1]) < len(left),
    )


def by_nearness(values: Array, left: Integers, right: Integers) -> Array:
    """Score each pair by the closeness of its numbers: closer means more likely equal."""
    table = values.reshape(len(values), -1)
    spread = np.maximum(table.std(axis=0), 1e-300)
    return -np.asarray(np.abs((table[left] - table[right]) / spread).max(axis=1), dtype=np.float64)


def binary_effects(values: Array, columns: Matrix) -> Array:
    """Return the change of score by each binary column; peaks of score differences appear there."""
    table = columns.toarray() if sp.issparse(columns) else np.asarray(columns, dtype=np.float64)
    yes_or_no = np.array([len(np.unique(column)) == 2 for column in table.T], dtype=bool)
    effects = np.linalg.lstsq(np.hstack([table, np.ones((len(table), 1))]), values, rcond=None)[0][:-1]
    width = np.array([np.ptp(column) for column in table.T])
    found: Array = np.abs(effects * width)[yes_or_no]
    return found


def common_differences(values: Array, rng: np.random.Generator) -> Array:
    """Return the most common differences between scores of two rows; each is likely one column's effect."""
    distinct = np.unique(np.round(values / max(float(np.ptp(values)), 1e-300), 9))
    some = distinct if len(distinct) <= 1500 else rng.choice(distinct, 1500, replace=False)
    apart = np.abs(some[:, None] - some[None, :])[np.triu_indices(len(some), 1)]
    sizes, counts = np.unique(np.round(apart, 7), return_counts=True)
    best = np.argsort(-counts, kind="stable")[:PEAKS]
    return sizes[best[counts[best] > 1]] * float(np.ptp(values))


def matched(effects: Array, differences: Array, within: float) -> int:
    """Count the effects that are among the differences."""
    if not len(differences):
        return 0
    return int((np.abs(effects[:, None] - differences[None, :]).min(axis=1) <= within).sum())
