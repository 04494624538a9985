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

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Integers
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

GAPS: Final = (
    "demographic_parity",
    "equal_opportunity",
    "published_demographic_parity",
    "published_equal_opportunity",
)


def demographic_parity(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, pos_label: Any = None, neg_label: Any = None
) -> float:
    """Largest difference between groups in the share of rows predicted positive, |PPR_0 - PPR_1| (Section 3.2).

    Parameters
    ----------
    y_true, y_pred
        A column of labels each; or, where a row may carry several labels, a table of zeros and ones each, with a
        column for every label.
    pos_label
        The label to look at. By default the larger of two sorted labels, and with more than two labels each of them
        against the rest, the worst being returned.
    neg_label
        Leave out rows with a true label other than ``pos_label`` and ``neg_label``: the subtasks of Table 6.
        Predictions may still be any label.

    Raises
    ------
    DataError
        If lengths differ, values are missing, a label does not occur, or there is one group only or an empty one.
    """
    return _read(y_true, y_pred, sensitive_features, pos_label, neg_label)[0].gap("demographic_parity")


def equal_opportunity(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    pos_label: Any = None,
    neg_label: Any = None,
    skip_unmeasurable: bool = False,
) -> float:
    """Largest difference between groups in the share of positives predicted positive, |TPR_0 - TPR_1| (Section 3.2).

    Parameters and errors are those of :func:`demographic_parity`. A label that some group has no positives of has no
    such difference: this is refused, unless ``skip_unmeasurable`` leaves such labels out of the worst.
    """
    strata, labels = _read(y_true, y_pred, sensitive_features, pos_label, neg_label)
    return _measurable(strata, labels, skip_unmeasurable).gap("equal_opportunity")


def published_demographic_parity(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, pos_label: Any = None, neg_label: Any = None
) -> float:
    """What the published code prints as DP (there in per cent): rows predicted positive in a group over **all** rows.

    The difference between two groups' counts is divided by the number of rows of both. It is 0 if as *many* rows are
    selected in each group, not if the same share is. (The code adds 1e-6 to the denominator; that is left out.)
    Parameters and errors are those of :func:`demographic_parity`.
    """
    return _read(y_true, y_pred, sensitive_features, pos_label, neg_label)[0].gap("published_demographic_parity")


def published_equal_opportunity(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, pos_label: Any = None, neg_label: Any = None
) -> float:
    """What the published code prints as EO (there in per cent): true positives in a group over **all** positives.

    For a perfect classifier this is the difference of the groups' shares among the positives, not 0. (The code adds
    1e-6 to the denominator; that is left out.) Parameters and errors are those of :func:`demographic_parity`.
    """
    strata, _ = _read(y_true, y_pred, sensitive_features, pos_label, neg_label)
    if not strata.truth[:, strata.measured].any():
        raise DataError("no row carries a label that is looked at: equal opportunity has no value")
    return strata.gap("published_equal_opportunity")


def label_gaps(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, pos_label: Any = None, neg_label: Any = None
) -> pd.DataFrame:
    """All four gaps of each label, to see which is the worst: a row for each label, a column for each gap.

    A gap that has no value, because a group has no positives of the label, is NaN. Parameters and errors are those of
    :func:`demographic_parity`.
    """
    strata, labels = _read(y_true, y_pred, sensitive_features, pos_label, neg_label)
    gaps = {name: [widest(parts) for parts in strata.means(name, strata.counts)] for name in GAPS}
    return pd.DataFrame(gaps, index=pd.Index([labels[label] for label in strata.measured], name="label"))


def decision_intervals(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    pos_label: Any = None,
    neg_label: Any = None,
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
        As in :func:`equal_opportunity`; also for tables of several labels a row, if their combinations are too rare to
        draw within: give their columns one at a time.
    InputError
        If ``level`` is not between 0 and 1 or ``repeats`` is not positive.
    """
    check_resampling(level, repeats)
    strata, labels = _read(y_true, y_pred, sensitive_features, pos_label, neg_label)
    strata = _measurable(strata, labels, skip_unmeasurable)
    if _is_table(y_true, "y_true"):
        raise DataError("intervals need one label a row: give the columns of the tables one at a time")
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


def _read(
    y_true: Any, y_pred: Any, sensitive_features: Any, pos_label: Any, neg_label: Any
) -> tuple[Strata, list[Any]]:
    """Read and check labels and groups; return their strata, and the names of the labels."""
    attributes = read_attributes(sensitive_features)
    several = [_is_table(y_true, "y_true"), _is_table(y_pred, "y_pred")]
    if several[0] != several[1]:
        raise DataError("one of y_true and y_pred is a column, the other a table: both must be of one kind")
    truth, predicted, labels = (_read_tables if several[0] else _read_columns)(y_true, y_pred)
    check_lengths(attributes, y_true=truth[0], y_pred=predicted[0])
    for label in (pos_label, neg_label):
        if label is not None and label not in labels:
            raise DataError(f"the label {label!r} does not occur: choose one of {labels!r}")
    if pos_label is not None:
        measured = [labels.index(pos_label)]
    elif len(labels) == 1 and not several[0]:
        raise DataError(f"only the label {labels[0]!r} occurs: say with pos_label= whether it is the positive one")
    else:
        measured = [1] if len(labels) == 2 and not several[0] else list(range(len(labels)))
    if neg_label is not None:
        if pos_label is None or several[0] or pos_label == neg_label:
            raise DataError("neg_label= goes with another label as pos_label=, and with one label a row")
        kept = np.isin(truth[0], [labels.index(pos_label), labels.index(neg_label)])
        truth, predicted = [truth[0][kept]], [predicted[0][kept]]
        attributes = [replace(one, codes=one.codes[kept]) for one in attributes]
    _check_groups(attributes)
    strata = Strata.of_decisions(truth, predicted, None if several[0] else len(labels), attributes)
    return replace(strata, measured=measured), labels


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


def _is_table(values: Any, name: str) -> bool:
    try:
        return np.ndim(values) == 2
    except ValueError as error:
        raise DataError(f"{name} is neither a column of labels nor a table of zeros and ones: {error}") from error


def _read_columns(y_true: Any, y_pred: Any) -> tuple[list[Integers], list[Integers], list[Any]]:
    truths, predictions = read_column(y_true, "y_true"), read_column(y_pred, "y_pred")
    # Coded together: a model may predict labels that do not occur, or leave some out.
    codes, labels = read_codes(pd.concat([truths, predictions]), "y_true or y_pred")
    return [codes[: len(truths)]], [codes[len(truths) :]], labels


def _read_tables(y_true: Any, y_pred: Any) -> tuple[list[Integers], list[Integers], list[Any]]:
    truths, predictions = pd.DataFrame(y_true), pd.DataFrame(y_pred)
    if truths.columns.tolist() != predictions.columns.tolist():
        raise DataError("the tables y_true and y_pred have different columns: each label needs a column in both")
    for name, table in (("y_true", truths), ("y_pred", predictions)):
        if not table.isin([0, 1]).to_numpy().all():
            raise DataError(f"{name} holds other values than 0 and 1: a table says for each label whether a row has it")
    columns = [list((table.to_numpy() == 1).astype(np.int64).T) for table in (truths, predictions)]
    return columns[0], columns[1], truths.columns.tolist()
