"""Attacks on what belongs to a row of data: its label, its group, its score.

The sign of ν is the opposite of the label wherever the row's weight is positive; its size gives the score; and a tilt
of slices shows in its size. What else is there to be learned, whoever knows some of the answers can learn.
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
"""Rows whose answer an attacker may know from elsewhere: the first floor. The second is half of all rows."""
LARGEST_WEIGHT = 20.0
"""More than any slice's tilt makes of a row's weight 1: what seems to weigh more was not divided by n."""
MOST_SIGNALS = 8
"""Of a long sequence, those at the start, which are the most telling, and the last."""


def by_sign(nu: Array) -> Array:
    """The label, by the sign of a derivative."""
    return -nu


def by_score(nu: Array, labels: Array) -> Array:
    """The joint score that the size of a logistic derivative gives back: |ν| n = σ(−y z) where nothing is tilted.

    Parameters
    ----------
    labels
        As the attacker takes them to be, by the sign.
    """
    size = np.abs(nu) * len(nu)
    # ϑ is of one row, ν of the mean over rows.
    size = np.abs(nu) if size.max() > LARGEST_WEIGHT else size
    return -labels * logit(np.clip(size, 1e-9, 1.0 - 1e-9))


def by_response(nu: Array, epsilon: float) -> Array:
    """The label under randomised response: the bit with the score.

    The debiased derivative is n ν = p − e^ε/(e^ε − 1) where the noisy label is +1, and p + 1/(e^ε − 1) where it is −1,
    with p = σ(z): both can be read off. The log-odds of the true label are then z ± ε. Tilts of slices blur it, which
    an attacker who knows some labels can learn to take into account.
    """
    scaled, most = len(nu) * nu, np.exp(epsilon)
    said = np.where(scaled < 0.0, 1.0, -1.0)
    chance = scaled + np.where(said > 0, most, -1.0) / (most - 1.0)
    return logit(np.clip(chance, 1e-6, 1.0 - 1e-6)) + epsilon * said


def learned(evidence: Matrix, truth: Booleans, taught: Booleans) -> Array:
    """What logistic regression makes of `evidence`, having been told the truth of some rows."""
    if truth[taught].all() or not truth[taught].any():
        return np.zeros(len(truth))
    table = StandardScaler(with_mean=not sp.issparse(evidence)).fit_transform(evidence)
    # Few rows and many columns: the penalty keeps to what the rows can bear.
    strength = 1.0 if taught.sum() > 10 * table.shape[1] else 0.05
    with warnings.catch_warnings():
        # A few more steps would change the fourth digit.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogisticRegression(C=strength, max_iter=200, tol=1e-4).fit(table[taught], truth[taught])
    return np.asarray(model.decision_function(table), dtype=np.float64)


def some(signals: Sequence[Array]) -> Array:
    """Numbers by row as columns, of a long sequence the most telling."""
    return np.stack(
        list(signals) if len(signals) <= MOST_SIGNALS else [*signals[: MOST_SIGNALS - 1], signals[-1]], axis=1
    )


def telling(signals: Sequence[Array]) -> Array:
    """Numbers by row in forms that a linear rule can use: sign, logarithm of the size, and both for each sign."""
    columns = []
    for values in some(signals).T:
        sign, size = np.sign(values), np.log(np.abs(values) + 1e-300)
        size = np.where(sign == 0.0, size[sign != 0.0].min(initial=0.0), size)
        for side in (1.0, -1.0):
            here = sign == side
            columns.append(np.where(here, size - (size[here].mean() if here.any() else 0.0), 0.0))
        columns += [sign, values]
    return np.stack(columns, axis=1)
