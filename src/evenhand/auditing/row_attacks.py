"""Attacks on a row's label, group and score.

The sign of ν is the opposite of the label if the row's weight is positive. Its size gives the score, and a tilt of
slices shows in its size. An attacker who knows some answers can learn the rest from them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from scipy.special import logit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from evenhand.arrays import Array, Booleans, Matrix

FEW = 400
"""Number of rows for which an attacker may know the answer: the first floor. The second is half of all rows."""
LARGEST_WEIGHT = 20.0
"""Largest weight that a tilt can give a row; anything larger was not divided by n."""
MOST_SIGNALS = 8
"""Messages used from a long sequence: the first ones, which are the most informative, and the last."""


def by_sign(nu: Array) -> Array:
    """Infer the label from the sign of a derivative."""
    return -nu


def by_score(nu: Array, labels: Array) -> Array:
    """Infer the joint score from the size of a logistic derivative: |ν| n = σ(−y z) without a tilt.

    Parameters
    ----------
    labels
        As inferred from the sign.
    """
    size = np.abs(nu) * len(nu)
    # ϑ is the derivative of one row's loss, ν that of the mean over rows.
    size = np.abs(nu) if size.max() > LARGEST_WEIGHT else size
    return -labels * logit(np.clip(size, 1e-9, 1.0 - 1e-9))


def by_response(nu: Array, epsilon: float) -> Array:
    """Infer the label under randomised response from the reported bit and the score.

    The debiased derivative is n ν = p − e^ε/(e^ε − 1) if the noisy label is +1, and p + 1/(e^ε − 1) if it is −1, with
    p = σ(z): both can be read off. The log-odds of the true label are then z ± ε. Tilts of slices blur it, but an
    attacker who knows some labels can correct for them.
    """
    scaled, most = len(nu) * nu, np.exp(epsilon)
    said = np.where(scaled < 0.0, 1.0, -1.0)
    chance = scaled + np.where(said > 0, most, -1.0) / (most - 1.0)
    return logit(np.clip(chance, 1e-6, 1.0 - 1e-6)) + epsilon * said


def learned(evidence: Matrix, truth: Booleans, taught: Booleans) -> Array:
    """Fit a logistic regression on `evidence` with the known rows, and return its scores."""
    if truth[taught].all() or not truth[taught].any():
        return np.zeros(len(truth))
    table = StandardScaler(with_mean=not sp.issparse(evidence)).fit_transform(evidence)
    # With few rows and many columns, a stronger penalty prevents overfitting.
    strength = 1.0 if taught.sum() > 10 * table.shape[1] else 0.05
    with warnings.catch_warnings():
        # More steps change the fourth digit only.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogisticRegression(C=strength, max_iter=200, tol=1e-4).fit(table[taught], truth[taught])
    return np.asarray(model.decision_function(table), dtype=np.float64)


def some(signals: Sequence[Array]) -> Array:
    """Return the most informative numbers of a long sequence as columns."""
    return np.stack(
        list(signals) if len(signals) <= MOST_SIGNALS else [*signals[: MOST_SIGNALS - 1], signals[-1]], axis=1
    )


def telling(signals: Sequence[Array]) -> Array:
    """Return features for a linear rule: sign, logarithm of the size, and their product."""
    columns = []
    for values in some(signals).T:
        sign, size = np.sign(values), np.log(np.abs(values) + 1e-300)
        size = np.where(sign == 0.0, size[sign != 0.0].min(initial=0.0), size)
        for side in (1.0, -1.0):
            here = sign == side
            columns.append(np.where(here, size - (size[here].mean() if here.any() else 0.0), 0.0))
        columns += [sign, values]
    return np.stack(columns, axis=1)
