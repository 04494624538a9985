"""Gaps between groups as the code published with FairFedAvgALM computes them.

Section 3.2 of the paper takes rates within each group, as `evenhand.metrics` does. The published code divides both
groups' counts by one and the same number instead. That is another quantity: it grows with how unequal the groups' sizes
and base rates are, whatever the model does. A perfect classifier of ``Attractive`` on CelebA's 162,770 training rows
scores 0 for equal opportunity, but 0.545 for the published one (and 0.280 for the published demographic parity), about
what Table 2 prints for FedAvg. These functions are there to be held against the paper's tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from evenhand.arrays import Booleans
from evenhand.errors import DataError


def published_demographic_parity(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, pos_label: Any = None, neg_label: Any = None
) -> float:
    """What the published code prints as DP (there in per cent): rows predicted positive in a group over **all** rows.

    It is 0 if as *many* rows are selected in each group, not if the same share is. (The code adds 1e-6 to the
    denominator; that is left out.)

    Parameters
    ----------
    pos_label
        The positive label; by default the largest.
    neg_label
        Leave out rows with a true label other than ``pos_label`` and ``neg_label``: the subtasks of Table 6.
    """
    truth, called, groups = _rows(y_true, y_pred, sensitive_features, pos_label, neg_label)
    return _gap(called, np.ones_like(truth), groups)


def published_equal_opportunity(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, pos_label: Any = None, neg_label: Any = None
) -> float:
    """What the published code prints as EO (there in per cent): true positives in a group over **all** positives.

    For a perfect classifier this is the difference of the groups' shares among the positives, not 0. Parameters are
    those of :func:`published_demographic_parity`.
    """
    truth, called, groups = _rows(y_true, y_pred, sensitive_features, pos_label, neg_label)
    if not truth.any():
        raise DataError("no row has the positive label: equal opportunity has no value")
    return _gap(called & truth, truth, groups)


def _rows(y_true: Any, y_pred: Any, groups: Any, positive: Any, negative: Any) -> tuple[Booleans, Booleans, Any]:
    truth, called, groups = map(np.asarray, (y_true, y_pred, groups))
    positive = np.unique(truth).max() if positive is None else positive
    kept = np.ones(len(truth), dtype=bool) if negative is None else np.isin(truth, [positive, negative])
    return truth[kept] == positive, called[kept] == positive, groups[kept]


def _gap(counted: Booleans, over: Booleans, groups: Any) -> float:
    counts = [int(np.count_nonzero(counted & (groups == group))) for group in np.unique(groups)]
    return (max(counts) - min(counts)) / int(np.count_nonzero(over))
