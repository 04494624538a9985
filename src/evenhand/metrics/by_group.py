"""Confusion counts and calibration of each group."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from evenhand.metrics.columns import check_lengths, positive_code, read_attributes, read_codes, read_column, read_scores

BINS: Final = 10
"""Number of bins of predicted probabilities, of equal width."""


def group_counts(
    y_true: npt.ArrayLike, scores: npt.ArrayLike, *, sensitive_features: Any, pos_label: Any
) -> list[dict[str, Any]]:
    """Count decisions in every group of every attribute; all rates of a group follow from its counts.

    Each has ``attribute``, ``group``, ``true_positives``, ``false_positives``, ``false_negatives``, ``true_negatives``
    and ``calibration``: for each of `BINS` bins of the predicted probability, the number of rows, the number of
    positives, and the mean prediction (None without rows).
    """
    truths = read_column(y_true, "y_true")
    attributes = read_attributes(sensitive_features)
    logits = read_scores(scores)
    check_lengths(attributes, y_true=truths, scores=logits)
    codes, labels = read_codes(truths, "y_true")
    truth, predicted = codes == positive_code(labels, pos_label), logits > 0
    probability = expit(logits)
    bins = np.minimum((BINS * probability).astype(np.int64), BINS - 1)
    found = []
    for attribute in attributes:
        for code, group in enumerate(attribute.groups):
            inside = attribute.codes == code
            rows = np.bincount(bins[inside], minlength=BINS)
            positives = np.bincount(bins[inside & truth], minlength=BINS)
            sums = np.bincount(bins[inside], weights=probability[inside], minlength=BINS)
            means = [float(total / count) if count else None for total, count in zip(sums, rows, strict=True)]
            found.append(
                {
                    "attribute": str(attribute.name),
                    "group": str(group),
                    "true_positives": int((inside & truth & predicted).sum()),
                    "false_positives": int((inside & ~truth & predicted).sum()),
                    "false_negatives": int((inside & truth & ~predicted).sum()),
                    "true_negatives": int((inside & ~truth & ~predicted).sum()),
                    "calibration": [list(one) for one in zip(rows.tolist(), positives.tolist(), means, strict=True)],
                }
            )
    return found
