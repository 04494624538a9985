"""Metrics of scores (logits) of a two-label model: quality, gaps between groups, and confidence bounds.

A row is predicted positive if and only if its score is above the cut, 0 by default. The names are the papers': ACC is
``accuracy``; DEO, DFP and DFN are those of FairVFL (Definition 1, Section 5.2); FR = 1 - DEO and HM are those of its
first version (Section V).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from evenhand.arrays import Array, Booleans
from evenhand.constraints.proving import LEVEL, mean_variance, rate_variance
from evenhand.errors import DataError, SmallSliceWarning
from evenhand.metrics.gaps import (
    Attribute,
    at_least,
    check_lengths,
    check_resampling,
    positive_code,
    read_attributes,
    read_codes,
    read_column,
    read_scores,
    widest,
)
from evenhand.metrics.strata import Strata, Sums
from evenhand.printing import listed

GAPS: Final = ("DEO", "DFP", "DFN", "DP", "equalized_odds")


def summary(
    y_true: npt.ArrayLike,
    scores: npt.ArrayLike,
    *,
    sensitive_features: Any,
    pos_label: Any = None,
    cross: bool = False,
    cut: float | Array = 0.0,
) -> dict[str, float]:
    """Return accuracy, loss and the gaps between groups, from scores (logits; predicted positive if above the cut).

    A gap is the largest absolute difference between two groups of an attribute, the worst over attributes; rates
    and means are taken within a group:

    ==================  =========================================================================================
    ``accuracy``        share of rows with a decision equal to the label
    ``DEO``             gap of the mean logistic loss over positives (FairVFL, Definition 1)
    ``DFP``             gap of false-positive rates
    ``DFN``             gap of false-negative rates, which is that of true-positive rates: equal opportunity
    ``DP``              gap of selection rates: demographic parity
    ``equalized_odds``  max(DFP, DFN), as in fairlearn
    ``FR``              1 - DEO; DEO is a gap of losses and has no upper bound, so FR can be negative
    ``HM``              harmonic mean of accuracy and FR; defined as 0 where FR is not positive
    ``log_loss``        mean logistic loss, natural logarithm
    ==================  =========================================================================================

    Parameters
    ----------
    pos_label
        The positive (in FairVFL "protected") class, by default the larger of the two sorted labels.
    cross
        Compare the combinations of all attributes' groups (sex × race) as well as the groups of each. One that has no
        rows with a label is left out of the gaps over it, with a warning.
    cut
        The score above which a row is predicted positive, or one for each row. Losses do not depend on it.

    Raises
    ------
    DataError
        If lengths differ, a score is not finite, a value is missing, there are not two labels or there is one group
        only, or a group has no positives or no negatives (the message names the slice).
    """
    return _estimate(_strata(y_true, scores, sensitive_features, pos_label, cross, cut))


def gap_bounds(
    y_true: npt.ArrayLike,
    scores: npt.ArrayLike,
    *,
    sensitive_features: Any,
    pos_label: Any = None,
    cross: bool = False,
    cut: float | Array = 0.0,
    level: float = LEVEL,
) -> pd.DataFrame:
    """Return what the gaps of :func:`summary` imply for the population: a row for each gap.

    ==================  =========================================================================================
    ``estimate``        the gap on these rows
    ``standard_error``  of the difference that is the gap
    ``bound``           max (|difference| + z SE) over all pairs of groups: no gap in the population is larger
    ``attribute``       the attribute with the largest gap
    ``groups``          the two groups
    ``rows``            how many rows there are in the slices of the two
    ``comparisons``     R, how many pairs of groups were compared
    ==================  =========================================================================================

    z is the normal quantile of 1 - (1 - level) / (2 R), two-sided and for all pairs at once, so that the bound holds
    whichever pair is the worst. The variance of a rate is p(1 - p)/n with p = (k + 1)/(n + 2), that of a mean loss the
    rows' variance over n; those of two groups add up. A mean over one row has no standard error; it and the bound are
    infinite then.

    The bound is about other rows drawn like these and a model that did not see them. On its own training rows a model
    looks a little better than it is: `benchmarks/confidence.py` shows by how much.

    Raises
    ------
    DataError
        As in :func:`summary`.
    InputError
        If ``level`` is not between 0 and 1.
    """
    strata = _strata(y_true, scores, sensitive_features, pos_label, cross, cut)
    rows = {}
    for name in GAPS:
        gap = strata.worst(name, level)
        attribute, groups, sizes = strata.pair(name, gap)
        rows[name] = (gap.estimate, gap.standard_error, gap.bound, attribute, groups, sizes, gap.comparisons)
    columns = ["estimate", "standard_error", "bound", "attribute", "groups", "rows", "comparisons"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("metric")


def intervals(
    y_true: npt.ArrayLike,
    scores: npt.ArrayLike,
    *,
    sensitive_features: Any,
    pos_label: Any = None,
    cross: bool = False,
    cut: float | Array = 0.0,
    level: float = LEVEL,
    repeats: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return what each metric of :func:`summary` implies for the population.

    The columns are estimate, low, high, standard_error and bound.

    ``low`` and ``high`` are bootstrap percentiles: as many rows as there are are drawn with replacement, ``repeats``
    times, so that the numbers of rows in labels and groups vary as they do in the population; where more than 131,072
    rows have label and groups in common, what is drawn is their sums, as normal numbers. A slice that a resample leaves
    empty keeps the mean it has in all rows. The same rows in any order, with the same seed, give the same
    intervals. ``standard_error`` and ``bound`` of gaps are those of :func:`gap_bounds`; what is no gap has no bound,
    and HM no standard error.

    A gap cannot be negative, so noise pushes it up: where groups truly differ little, the estimate of DEO, DFP, DFN,
    DP and equalized odds is too large on average, the more so with many groups and few rows, and FR and HM are too low.
    Resampling adds the same push once more: percentiles of resampled gaps hardly ever reach 0, even if the groups do
    not differ. The end nearer to "no gap" is therefore the estimate less the percentile of the largest gap between
    the groups' resampled deviations, floored at 0. No true gap can lie below that unless the deviations were larger
    still, whatever the number of groups and attributes, so ``low`` > 0 can be read as evidence of a gap. The price is
    an interval that is cautious where gaps are clear. Intervals contain the estimate. `benchmarks/confidence.py` counts
    how often they contain the truth.

    Raises
    ------
    DataError
        As in :func:`summary`.
    InputError
        If ``level`` is not between 0 and 1 or ``repeats`` is not positive.
    """
    check_resampling(level, repeats)
    strata = _strata(y_true, scores, sensitive_features, pos_label, cross, cut)
    drawn = strata.resample(repeats, np.random.default_rng(seed))
    counts, plain, smaller = strata.counts_of(drawn), {}, {}
    for name in GAPS:
        known = strata.means(name, strata.counts)
        means = strata.means(name, counts, instead=known)[0]
        plain[name], smaller[name] = widest(means), at_least(means, known[0])
    table = pd.DataFrame({"estimate": _estimate(strata)})
    table["low"] = table["high"] = table["estimate"]
    # The smaller gaps set `low` for gaps, and `high` for what falls with DEO: FR and HM.
    for gaps in (plain, smaller):
        values = list(_metrics(strata, drawn, gaps).values())
        low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=1)
        table["low"], table["high"] = np.minimum(table["low"], low), np.maximum(table["high"], high)
    found = {name: strata.worst(name, level) for name in GAPS}
    errors = {name: gap.standard_error for name, gap in found.items()} | _other_errors(strata)
    table["standard_error"] = pd.Series(errors | {"FR": errors["DEO"]})
    table["bound"] = pd.Series({name: gap.bound for name, gap in found.items()})
    return table.rename_axis("metric")


def _strata(
    y_true: Any, scores: Any, sensitive_features: Any, pos_label: Any, cross: bool, cut: float | Array = 0.0
) -> Strata:
    truths, logits = read_column(y_true, "y_true"), read_scores(scores)
    attributes = read_attributes(sensitive_features, cross)
    check_lengths(attributes, y_true=truths, scores=logits)
    codes, labels = read_codes(truths, "y_true")
    if len(labels) == 1:
        raise DataError(f"y_true holds only the label {labels[0]!r}: gaps need rows of both labels")
    code = positive_code(labels, labels[1] if pos_label is None else pos_label)
    truth = codes == code
    _check_slices(truth, labels[code], labels[1 - code], attributes)
    return Strata.of_scores(truth, logits - cut, logistic_loss(truth, logits), attributes)


def _metrics(strata: Strata, sums: Sums, gaps: Mapping[str, Array]) -> dict[str, Array]:
    """Return all metrics, in the order of the table of `summary`."""
    assert sums.loss is not None
    accuracy = strata.right(sums) / strata.n_rows
    fairness = 1 - gaps["DEO"]
    clipped = np.maximum(fairness, 0)
    # The tiny floor only keeps 0/0 away when accuracy and fairness are both 0.
    harmonic = 2 * accuracy * clipped / np.maximum(accuracy + clipped, np.finfo(float).tiny)
    log_loss = sums.loss.sum(axis=-1) / strata.n_rows
    return {"accuracy": accuracy, **gaps, "FR": fairness, "HM": harmonic, "log_loss": log_loss}


def _estimate(strata: Strata) -> dict[str, float]:
    gaps = {name: widest(strata.means(name, strata.counts)[0]) for name in GAPS}
    return {name: float(value) for name, value in _metrics(strata, strata.sums, gaps).items()}


def _other_errors(strata: Strata) -> dict[str, float]:
    """Return the standard errors of the metrics that are not gaps."""
    assert strata.scored is not None
    rows, losses = float(strata.n_rows), np.concatenate(strata.scored.losses)
    variances = {
        "accuracy": rate_variance(strata.right(strata.sums), rows),
        "log_loss": mean_variance(losses.sum(), np.square(losses).sum(), rows),
    }
    return {name: float(np.sqrt(variance)) for name, variance in variances.items()}


def logistic_loss(truth: Booleans, scores: Array) -> Array:
    """Return log(1 + exp(-y z)), without overflow."""
    return np.logaddexp(0, np.where(truth, -scores, scores))


def _check_slices(truth: Booleans, pos_label: Any, neg_label: Any, attributes: list[Attribute]) -> None:
    """Refuse a group without rows of a label; leave a crossing without them out of the gaps that need them."""
    for attribute in attributes:
        if len(attribute.groups) == 1:
            raise DataError(f"{attribute.name} holds only the group {attribute.groups[0]!r}: a gap needs two")
        for label, rows, names in ((pos_label, truth, "DEO and DFN"), (neg_label, ~truth, "DFP")):
            sizes = np.bincount(attribute.codes[rows], minlength=len(attribute.groups))
            empty = [attribute.groups[place] for place in np.flatnonzero(sizes == 0)]
            if not empty:
                continue
            if not attribute.crossed:
                raise DataError(
                    f"no rows with label {label!r} and {attribute.name} = {empty[0]!r}: {names} have no value there; "
                    "merge the group with another, leave it out, or measure on more rows"
                )
            if len(attribute.groups) - len(empty) < 2:
                raise DataError(f"fewer than two groups of {attribute.name} have rows with label {label!r}")
            warnings.warn(
                f"no rows with label {label!r} and {attribute.name} = {listed(empty)}: left out of {names}",
                SmallSliceWarning,
                stacklevel=4,
            )
