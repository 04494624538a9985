"""Measured from decisions over any number of labels: gaps between groups as FairFedAvgALM defines and computes them.

Section 3.2 of the paper takes rates within each group: demographic parity |PPR_0 - PPR_1|, the shares of rows predicted
positive, and equal opportunity |TPR_0 - TPR_1|, the shares of positives predicted positive. With more than two groups
the largest difference counts, with several attributes or labels the worst of them.

The code published with the paper divides both groups' counts by one and the same number instead (``published_...``).
That is another quantity: it grows with how unequal the groups' sizes and base rates are, whatever the model does. A
perfect classifier of ``Attractive`` on CelebA's 162,770 training rows scores 0 for equal opportunity, but 0.545 for
the published one (and 0.280 for the published demographic parity), about what Table 2 prints for FedAvg. Report the
former; the latter are there to be held against the paper's tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from evenhand.arrays import Array
from evenhand.constraints.confidence import LEVEL, rate_variance
from evenhand.errors import DataError
from evenhand.metrics.gaps import at_least, check_resampling, widest, worst_gap
from evenhand.metrics.labelled_rows import RATES, LabelledRows


def demographic_parity(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, positive: Any = None, negative: Any = None
) -> float:
    """Largest difference between groups in the share of rows predicted positive, |PPR_0 - PPR_1| (Section 3.2).

    Parameters
    ----------
    y_true, y_pred
        A column of labels each; or, where a row may carry several labels, a table of zeros and ones each, with a
        column for every label.
    positive
        The label to look at. By default the larger of two sorted labels, and with more than two labels each of them
        against the rest, the worst being returned.
    negative
        Leave out rows whose true label is neither ``positive`` nor ``negative``: the subtasks of Table 6. Predictions
        may still be any label.

    Raises
    ------
    DataError
        If lengths differ, values are missing, a label does not occur, or there is one group only or an empty one.
    """
    return LabelledRows.of(y_true, y_pred, sensitive_features, positive, negative).gap("demographic_parity")


def equal_opportunity(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    positive: Any = None,
    negative: Any = None,
    skip_unmeasurable: bool = False,
) -> float:
    """Largest difference between groups in the share of positives predicted positive, |TPR_0 - TPR_1| (Section 3.2).

    Parameters and errors are those of :func:`demographic_parity`. A label that some group has no positives of has no
    such difference: this is refused, unless ``skip_unmeasurable`` leaves such labels out of the worst.
    """
    rows = LabelledRows.of(y_true, y_pred, sensitive_features, positive, negative)
    return rows.measurable(skip_unmeasurable).gap("equal_opportunity")


def published_demographic_parity(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, positive: Any = None, negative: Any = None
) -> float:
    """What the published code prints as DP (there in per cent): rows predicted positive in a group over **all** rows.

    The difference between two groups' counts is divided by the number of rows of both. It is 0 if as *many* rows are
    selected in each group, not if the same share is. (The code adds 1e-6 to the denominator; that is left out.)
    Parameters and errors are those of :func:`demographic_parity`.
    """
    return LabelledRows.of(y_true, y_pred, sensitive_features, positive, negative).gap("published_demographic_parity")


def published_equal_opportunity(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, positive: Any = None, negative: Any = None
) -> float:
    """What the published code prints as EO (there in per cent): true positives in a group over **all** positives.

    For a perfect classifier this is the difference of the groups' shares among the positives, not 0. (The code adds
    1e-6 to the denominator; that is left out.) Parameters and errors are those of :func:`demographic_parity`.
    """
    return LabelledRows.of(y_true, y_pred, sensitive_features, positive, negative).gap("published_equal_opportunity")


def label_gaps(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, positive: Any = None, negative: Any = None
) -> pd.DataFrame:
    """All four gaps of each label, to see which is the worst: a row for each label, a column for each gap.

    A gap that has no value, because a group has no positives of the label, is NaN. Parameters and errors are those of
    :func:`demographic_parity`.
    """
    rows = LabelledRows.of(y_true, y_pred, sensitive_features, positive, negative)
    gaps = {name: [widest(parts) for parts in rows.by_label(name, rows.counts())] for name in RATES}
    return pd.DataFrame(gaps, index=pd.Index([rows.labels[label] for label in rows.measured], name="label"))


def decision_intervals(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    positive: Any = None,
    negative: Any = None,
    skip_unmeasurable: bool = False,
    level: float = LEVEL,
    repeats: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Accuracy and the four gaps as a table: columns estimate, low, high, standard_error, bound.

    Made and to be read as those of :func:`evenhand.metrics.intervals`: rows are drawn with replacement, ``low`` is
    cautious, so that ``low`` > 0 is evidence of a gap, and no gap of the population is above ``bound`` (R counts pairs
    of groups for each label). ``skip_unmeasurable`` leaves labels that some group has no positives of out of all four.

    Raises
    ------
    DataError
        As in :func:`equal_opportunity`; also for tables of several labels a row, whose combinations are too rare to
        draw within: give their columns one at a time.
    InputError
        If ``level`` is not between 0 and 1 or ``repeats`` is not positive.
    """
    check_resampling(level, repeats)
    rows = LabelledRows.of(y_true, y_pred, sensitive_features, positive, negative).measurable(skip_unmeasurable)
    if rows.several:
        raise DataError("intervals need one label a row: give the columns of the tables one at a time")
    counts, resampled = rows.counts(), rows.resample(repeats, np.random.default_rng(seed))
    ends = [(1 - level) / 2, (1 + level) / 2]
    size = rows.truth.shape[0]
    error = float(np.sqrt(rate_variance(counts.right, size)))
    accuracy = float(counts.right) / size
    table = {"accuracy": (accuracy, *_around(accuracy, np.quantile(resampled.right / size, ends)), error, np.nan)}
    for name in RATES:
        known = rows.by_label(name, counts)
        parts, drawn, variances = (
            [part for label in labels for part in label]
            for labels in (known, rows.by_label(name, resampled, instead=known), rows.variances(name, counts))
        )
        gap = worst_gap(parts, variances, level, most=1.0)
        found = np.quantile([widest(drawn), at_least(drawn, parts)], ends, axis=1)
        table[name] = (gap.estimate, *_around(gap.estimate, found), gap.standard_error, gap.bound)
    columns = ["estimate", "low", "high", "standard_error", "bound"]
    return pd.DataFrame.from_dict(table, orient="index", columns=columns).rename_axis("metric")


def _around(estimate: float, found: Array) -> tuple[float, float]:
    """Few repeats may leave the estimate outside the percentiles."""
    return min(estimate, float(found.min())), max(estimate, float(found.max()))
