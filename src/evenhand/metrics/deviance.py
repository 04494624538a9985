"""How well predictions of numbers fit: the share of the deviance that a model explains."""

from __future__ import annotations

from typing import Any

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.losses import Loss, constant_score


def deviance_explained(loss: Loss, targets: Array, scores: Array, sample_weight: Any = None) -> float:
    """Return D² = 1 − deviance / deviance of the mean; R² with the squared loss, and NaN for equal targets."""
    weights = np.ones(len(targets)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    own, of_mean = (weights @ loss.value(each, targets) for each in (scores, constant_score(loss, targets, weights)))
    return float(1.0 - own / of_mean) if of_mean > 0.0 else float("nan")
