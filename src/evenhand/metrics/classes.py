"""How a model of three classes or more decides: confusion matrices, and each class against the rest.

A class has its own metrics as if it were the positive label: its score is its log-odds against all other classes, and
the rows that it is predicted for are those selected. Calibration is by class too: a probability of a class is right if
so many rows that have it are of that class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from scipy.special import log_softmax, logsumexp

from evenhand.arrays import Array, Integers
from evenhand.constraints.losses import SOFTMAX
from evenhand.constraints.proving import mean_variance
from evenhand.metrics.gaps import BINS, read_attributes
from evenhand.metrics.performance import PERFORMANCE, Estimate, of_rows

CLASSES: Final[dict[str, str]] = {
    "base_rate": "share of rows of the class",
    "selection_rate": "share of rows that the class is predicted for",
    "recall": "share of the class's rows that it is predicted for",
    "precision": "share of the rows it is predicted for that are of the class",
    "AUC": "chance that a row of the class has a higher log-odds for it than a row of another",
    "average_precision": PERFORMANCE["average_precision"],
    "Brier": "mean squared error of the class's probability",
    "calibration_slope": "1 if the class's probabilities are right; below 1: too extreme",
}
"""What each metric of a class means, in the order in which they are shown."""
GAPS_OF_CLASSES: Final[dict[str, str]] = {
    "DP": "largest gap between groups in how often a class is predicted: demographic parity",
    "DFN": "largest gap between groups in the rate of errors among the rows of a class: equalized odds",
}
"""What gaps mean with three classes or more: the worst class counts."""
_Z: Final = 1.959963984540054


def class_metrics(truth: Integers, scores: Array, names: Sequence[Any]) -> dict[str, Any]:
    """Return the confusion matrix, metrics and calibration of each class, and the mean log loss with its interval.

    Parameters
    ----------
    truth
        Index of each row's class.
    scores
        (rows, classes).
    """
    chances = np.exp(logs := log_softmax(scores, axis=1))
    decided, found, bins = scores.argmax(axis=1), [], []
    for place, name in enumerate(names):
        others = logsumexp(np.delete(logs, place, axis=1), axis=1)
        inside = truth == place
        own = of_rows(inside, logs[:, place] - others, chances[:, place], decided == place)
        found.append({"label": str(name), **own, "metrics": {one: own["metrics"][one] for one in CLASSES}})
        bins.append(_calibration(inside, chances[:, place]))
    losses = SOFTMAX.value(scores.T, truth.astype(np.float64))
    return {
        "confusion": confusion(truth, decided, len(names)),
        "metrics": found,
        "calibration": bins,
        "log_loss": list(_mean(losses)),
    }


def confusion(truth: Integers, decided: Integers, classes: int) -> list[list[int]]:
    """Count rows by true class (lines) and predicted class (columns)."""
    counts = np.bincount(truth * classes + decided, minlength=classes**2)
    found: list[list[int]] = counts.reshape(classes, classes).tolist()
    return found


def group_confusions(truth: Integers, decided: Integers, classes: int, groups: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a confusion matrix for every group of every attribute; all rates of a group follow from it."""
    return [
        {
            "attribute": one.name,
            "group": str(group),
            "confusion": confusion(truth[one.codes == code], decided[one.codes == code], classes),
        }
        for one in read_attributes(groups)
        for code, group in enumerate(one.groups)
    ]


def _calibration(inside: Any, chance: Array) -> list[list[Any]]:
    """Return rows, rows of the class and the mean probability in bins of equal width; None without rows."""
    places = np.minimum((BINS * chance).astype(np.int64), BINS - 1)
    rows = np.bincount(places, minlength=BINS)
    hits = np.bincount(places[inside], minlength=BINS)
    sums = np.bincount(places, weights=chance, minlength=BINS)
    means = [float(total / count) if count else None for total, count in zip(sums, rows, strict=True)]
    return [list(one) for one in zip(rows.tolist(), hits.tolist(), means, strict=True)]


def _mean(losses: Array) -> Estimate:
    if not len(losses):
        return None, None, None
    mean, rows = float(losses.mean()), len(losses)
    if rows < 2:
        return mean, None, None
    half = _Z * float(np.sqrt(mean_variance(losses.sum(), np.square(losses).sum(), rows)))
    return mean, mean - half, mean + half
