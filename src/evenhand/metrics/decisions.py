"""Gaps between groups from decisions over any number of labels, as FairFedAvgALM defines them (Section 3.2).

Rates are taken within each group: demographic parity |PPR_0 - PPR_1|, the shares of rows predicted positive, and equal
opportunity |TPR_0 - TPR_1|, the shares of positives predicted positive. With more than two groups the largest
difference counts, with several attributes or labels the worst of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from evenhand.arrays import Array
from evenhand.constraints.proving import LEVEL, rate_variance
from evenhand.errors import DataError
from evenhand.metrics.gaps import (
    Attribute,
    at_least,
    check_lengths,
    check_resampling,
    read_attributes,
    read_codes,
    read_column,
    widest,
)
from evenhand.metrics.strata import Strata

GAPS: Final = ("demographic_parity", "equal_opportunity")


def demographic_parity(y_true: Any, y_pred: Any, *, sensitive_features: Any, pos_label: Any = None) -> float:
    """Largest difference between groups in the share of rows predicted positive, |PPR_0 - PPR_1| (Section 3.2).

    Parameters
    ----------
    y_true, y_pred
        A column of labels each.
    pos_label
        The label to look at. By default the larger of two sorted labels, and with more than two labels each of them
        against the rest, the worst being returned.

    Raises
    ------
    DataError
        If lengths differ, values are missing, a label does not occur, or there is one group only or an empty one.
    """
    return _read(y_true, y_pred, sensitive_features, pos_label)[0].gap("demographic_parity")


def equal_opportunity(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    pos_label: Any = None,
    skip_unmeasurable: bool = False,
) -> float:
    """Largest difference between groups in the share of positives predicted positive, |TPR_0 - TPR_1| (Section 3.2).

    Parameters and errors are those of :func:`demographic_parity`. A label that some group has no positives of has no
    such difference: this is refused, unless ``skip_unmeasurable`` leaves such labels out of the worst.
    """
    strata, labels = _read(y_true, y_pred, sensitive_features, pos_label)
    return _measurable(strata, labels, skip_unmeasurable).gap("equal_opportunity")


def decision_intervals(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    pos_label: Any = None,
    skip_unmeasurable: bool = False,
    level: float = LEVEL,
    repeats: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Accuracy and both gaps as a table: columns estimate, low, high, standard_error, bound.

    Made and to be read as those of :func:`evenhand.metrics.intervals`: rows are drawn with replacement, ``low`` is
    cautious, so that ``low`` > 0 is evidence of a gap, and no gap of the population is above ``bound`` (R counts pairs
    of groups for each label). ``skip_unmeasurable`` leaves labels that some group has no positives of out of both.

    Raises
    ------
    DataError
        As in :func:`equal_opportunity`.
    InputError
        If ``level`` is not between 0 and 1 or ``repeats`` is not positive.
    """
    check_resampling(level, repeats)
    strata, labels = _read(y_true, y_pred, sensitive_features, pos_label)
    strata = _measurable(strata, labels, skip_unmeasurable)
    drawn = strata.resample(repeats, np.random.default_rng(seed))
    counts, right, size = strata.counts_of(drawn), float(strata.right(strata.sums)), strata.n_rows
    ends = [(1 - level) / 2, (1 + level) / 2]
    error = float(np.sqrt(rate_variance(right, size)))
    accuracy = right / size
    around = _around(accuracy, np.quantile(strata.right(drawn) / size, ends))
    table = {"accuracy": (accuracy, *around, error, np.nan)}
    for name in GAPS:
        known = strata.means(name, strata.counts)
        parts, others = (
            [part for label in means for part in label] for means in (known, strata.means(name, counts, instead=known))
        )
        gap = strata.worst(name, level)
        found = np.quantile([widest(others), at_least(others, parts)], ends, axis=1)
        table[name] = (gap.estimate, *_around(gap.estimate, found), gap.standard_error, gap.bound)
    columns = ["estimate", "low", "high", "standard_error", "bound"]
    return pd.DataFrame.from_dict(table, orient="index", columns=columns).rename_axis("metric")


def _around(estimate: float, found: Array) -> tuple[float, float]:
    """Return an interval with the estimate in it: of few repeats, percentiles may leave it out."""
    return min(estimate, float(found.min())), max(estimate, float(found.max()))


def _read(y_true: Any, y_pred: Any, sensitive_features: Any, pos_label: Any) -> tuple[Strata, list[Any]]:
    """Read and check labels and groups; return their strata, and the names of the labels."""
    attributes = read_attributes(sensitive_features)
    truths, predictions = read_column(y_true, "y_true"), read_column(y_pred, "y_pred")
    # Coded together: a model may predict labels that do not occur, or leave some out.
    codes, labels = read_codes(pd.concat([truths, predictions]), "y_true or y_pred")
    truth, predicted = codes[: len(truths)], codes[len(truths) :]
    check_lengths(attributes, y_true=truth, y_pred=predicted)
    if pos_label is not None and pos_label not in labels:
        raise DataError(f"the label {pos_label!r} does not occur: choose one of {labels!r}")
    if pos_label is not None:
        measured = [labels.index(pos_label)]
    elif len(labels) == 1:
        raise DataError(f"only the label {labels[0]!r} occurs: say with pos_label= whether it is the positive one")
    else:
        measured = [1] if len(labels) == 2 else list(range(len(labels)))
    _check_groups(attributes)
    return replace(Strata.of_decisions(truth, predicted, len(labels), attributes), measured=measured), labels


def _check_groups(attributes: list[Attribute]) -> None:
    for attribute in attributes:
        if len(attribute.groups) == 1:
            raise DataError(f"{attribute.name} holds only the group {attribute.groups[0]!r}: a gap needs two")
        sizes = np.bincount(attribute.codes, minlength=len(attribute.groups))
        if not sizes.all():
            group = attribute.groups[int(sizes.argmin())]
            raise DataError(f"no rows with {attribute.name} = {group!r} are left: leave the group out")


def _measurable(strata: Strata, labels: list[Any], skip: bool) -> Strata:
    """Keep the labels that every group has positives of; without `skip`, refuse any other label that occurs."""
    occurring = [label for label in strata.measured if strata.truth[:, label].any()]
    kept = list(occurring)
    for attribute, counts in zip(strata.attributes, strata.counts, strict=True):
        missing = np.argwhere(counts.positives[:, occurring] == 0)
        if missing.size and not skip:
            group, label = attribute.groups[missing[0, 0]], labels[occurring[missing[0, 1]]]
            raise DataError(
                f"no rows with label {label!r} and {attribute.name} = {group!r}: equal opportunity has no value "
                "there; measure on more rows, choose another label with pos_label=, or pass skip_unmeasurable=True"
            )
        kept = [label for label in kept if counts.positives[:, label].all()]
    if not kept:
        raise DataError("no label has rows in every group: equal opportunity has no value; measure on more rows")
    return replace(strata, measured=kept)
