"""Measure attacks: AUC and explained variance with intervals, and paired differences."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from evenhand.arrays import Array, Booleans, Matrix
from evenhand.auditing.learners import dense
from evenhand.constraints.proving import LEVEL, critical_value, rate_variance


class Estimate(NamedTuple):
    """A number with its 95 % confidence interval."""

    value: float
    low: float
    high: float


def auc(scores: Array, truth: Booleans) -> Estimate:
    """Return the area under the ROC curve with DeLong's interval."""
    wins = _wins(scores, truth)
    return _from_wins(*wins, centre=float(wins[0].mean()), least=0.0)


def auc_lift(scores: Array, floor: Array, truth: Booleans) -> Estimate:
    """Return the difference of two AUCs on the same rows."""
    above, below = _wins(scores, truth), _wins(floor, truth)
    lift = float(above[0].mean() - below[0].mean())
    return _from_wins(above[0] - below[0], above[1] - below[1], centre=lift, least=-1.0)


def share(hits: int, of: int) -> Estimate:
    """Return a share with its interval."""
    value = hits / max(of, 1)
    reach = critical_value(LEVEL, 1) * float(np.sqrt(rate_variance(hits, of)))
    return Estimate(value, max(0.0, value - reach), min(1.0, value + reach))


def _wins(scores: Array, truth: Booleans) -> tuple[Array, Array]:
    """Return DeLong's placement values: for each positive the share of negatives below it, and vice versa."""
    ranks = rankdata(scores)
    positives, negatives = int(truth.sum()), int((~truth).sum())
    over = (ranks[truth] - rankdata(scores[truth])) / negatives
    under = 1.0 - (ranks[~truth] - rankdata(scores[~truth])) / positives
    return over, under


def _from_wins(over: Array, under: Array, *, centre: float, least: float) -> Estimate:
    variance = over.var(ddof=1) / len(over) + under.var(ddof=1) / len(under)
    # If all pairs are ordered correctly the variance is zero; use the rule of three for the interval instead.
    reach = max(critical_value(LEVEL, 1) * float(np.sqrt(variance)), 3.0 / min(len(over), len(under)))
    return Estimate(centre, max(least, centre - reach), min(1.0, centre + reach))


def explained(guess: Array, targets: Matrix, known: Booleans) -> Array:
    """Return for each unknown row the share of the variance of `targets` that a guess explains.

    Their mean is R², averaged over the columns of the target. R² is clipped at zero, because an attacker can always
    predict the mean of the known rows.
    """
    wanted = dense(targets)
    varied = wanted[known].std(axis=0) > 1e-9
    if not varied.any():
        return np.zeros(int((~known).sum()))
    middle = wanted[known].mean(axis=0)
    missed, spread = (((wanted - one)[~known][:, varied]) ** 2 for one in (guess, middle))
    whole = np.maximum(spread.mean(axis=0), 1e-12)
    kept = 1.0 - missed.mean(axis=0) / whole > 0.0
    gains: Array = (((spread - missed) / whole) * kept).mean(axis=1)
    return gains


def over_rows(values: Array, least: float = 0.0) -> Estimate:
    """Return the mean over rows with the interval of its standard error."""
    value = float(values.mean())
    reach = critical_value(LEVEL, 1) * float(values.std(ddof=1) / np.sqrt(len(values)))
    return Estimate(value, max(least, value - reach), min(1.0, value + reach))
