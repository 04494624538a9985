"""Attacks on what clients send in a horizontal run: membership inference and reconstruction."""

from __future__ import annotations

import numpy as np

from evenhand.arrays import Array


def by_gain(before: Array, after: Array, rows: Array, labels: Array) -> Array:
    """Return how much a change of a linear model lowered the loss of each row; training rows gain most.

    Weights with one more entry than there are columns have their intercept at the end.
    """
    return _losses(before, rows, labels) - _losses(after, rows, labels)


def _losses(weights: Array, rows: Array, labels: Array) -> Array:
    columns = rows.shape[1]
    scores = rows @ weights[:columns] + weights[columns:].sum()
    return np.asarray(np.logaddexp(0.0, -labels * scores), dtype=np.float64)


def by_ratio(gradient: Array) -> Array:
    """Reconstruct a row from the gradient of a linear model with an intercept: g_w = Σ ν_i x_i over g_b = Σ ν_i.

    For a batch of one it is the row itself; for more, an average of rows with weights of either sign.
    """
    slope = float(gradient[-1])
    return np.asarray(gradient[:-1] / (slope if abs(slope) > 1e-12 else 1e-12), dtype=np.float64)


def likeness(found: Array, rows: Array, middle: Array) -> float:
    """Return how much nearer a reconstruction is to its nearest row than the mean row is: 1 is exact."""
    missed = ((rows - found) ** 2).sum(axis=1)
    nearest = int(np.argmin(missed))
    spread = float(((rows[nearest] - middle) ** 2).sum())
    return max(0.0, 1.0 - float(missed[nearest]) / max(spread, 1e-12))
