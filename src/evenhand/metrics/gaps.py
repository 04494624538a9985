"""Gaps between groups: names and definitions of metrics, gaps of estimates, resamples and constraints.

Group means are arrays (..., groups), one for each attribute that is compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import expit

from evenhand.arrays import Array, Integers
from evenhand.constraints.binding import bind
from evenhand.constraints.groups import crossed_name, groups_frame, with_crossing
from evenhand.constraints.kinds import Constraints, as_list
from evenhand.constraints.proving import LEVEL, critical_value
from evenhand.errors import DataError, InputError
from evenhand.metrics.held import WorstInequality, worst_inequality
from evenhand.printing import listed, quoted


@dataclass(frozen=True)
class Attribute:
    """A sensitive column: each row's group as an index into ``groups``; `crossed` if it crosses the others."""

    name: str
    codes: Integers
    groups: list[Any]
    crossed: bool = False


def read_column(values: Any, name: str) -> pd.Series[Any]:
    try:
        return pd.Series(values)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} is not a single column of values: {error}") from error


def read_codes(column: pd.Series[Any], name: str) -> tuple[Integers, list[Any]]:
    """Return each row's value as an index into the sorted distinct values."""
    try:
        codes, levels = pd.factorize(column, sort=True)
    except TypeError as error:
        raise DataError(f"{name} mixes values that have no common order: {error}") from error
    if missing := int(np.count_nonzero(codes < 0)):
        raise DataError(f"{name} has {missing} missing values: drop these rows or give the value a name")
    return codes.astype(np.int64), levels.tolist()


def positive_code(labels: list[Any], pos_label: Any) -> int:
    if len(labels) > 2:
        raise DataError(f"there are {len(labels)} labels, {listed(labels, most=3)} among them: two are needed")
    if pos_label not in labels:
        raise DataError(
            f"the positive label {quoted(pos_label)} does not occur: pass pos_label= one of {listed(labels)}"
        )
    return labels.index(pos_label)


def read_scores(scores: Any) -> Array:
    try:
        logits = read_column(scores, "scores").to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise DataError(f"scores are not one number per row: {error}") from error
    if bad := int(np.count_nonzero(~np.isfinite(logits))):
        raise DataError(f"{bad} scores are NaN or infinite: scores are logits, one finite number per row")
    return logits


def read_attributes(sensitive_features: Any, cross: bool = False) -> list[Attribute]:
    try:
        frame = pd.DataFrame(sensitive_features)
    except (TypeError, ValueError) as error:
        raise DataError(f"sensitive_features is not a column or a table of columns: {error}") from error
    if frame.shape[1] == 0:
        raise DataError("sensitive_features has no columns: give at least one")
    # Columns without a name get the names fairlearn gives them.
    prefix = "sensitive_feature_" if pd.api.types.is_integer_dtype(frame.columns) else ""
    frame = frame.set_axis([f"{prefix}{name}" for name in frame.columns], axis=1)
    attributes = [
        Attribute(str(name), *read_codes(column, f"sensitive feature '{name}'")) for name, column in frame.items()
    ]
    if cross:
        name = str(crossed_name(crossed := with_crossing(frame)))
        attributes = [one for one in attributes if one.name != name]
        attributes.append(Attribute(name, *read_codes(crossed[name], name), crossed=True))
    return attributes


def check_lengths(attributes: list[Attribute], **columns: Any) -> None:
    lengths = {name: len(values) for name, values in columns.items()}
    lengths["sensitive_features"] = len(attributes[0].codes)
    if len(set(lengths.values())) > 1:
        raise DataError(f"lengths differ: {lengths}; each row needs a value in every column")
    if 0 in lengths.values():
        raise DataError("there are no rows to measure on")


def widest(means: list[Array]) -> Array:
    """Return the largest gap between any two groups, over all entries of ``means``."""
    return cast(Array, np.max([np.ptp(mean, axis=-1) for mean in means], axis=0))


def at_least(means: list[Array], estimates: list[Array]) -> Array:
    """Return the estimated gap less the largest gap of the groups' deviations from the estimate, at least 0."""
    deviations = [mean - estimate for mean, estimate in zip(means, estimates, strict=True)]
    return np.maximum(widest(estimates) - widest(deviations), 0)


@dataclass(frozen=True)
class Gap:
    """A gap, with its bound in the population.

    Attributes
    ----------
    estimate
        The largest difference of two groups' means.
    standard_error
        Of that difference.
    bound
        No difference in the population is larger, at the requested confidence.
    attribute, groups
        Places of the attribute and of the two groups with the largest difference.
    comparisons
        Pairs of groups that were compared, over all attributes.
    """

    estimate: float
    standard_error: float
    bound: float
    attribute: int
    groups: tuple[int, int]
    comparisons: int


def worst_gap(means: list[Array], variances: list[Array], level: float, most: float = np.inf) -> Gap:
    """Return the widest gap with its standard error, and max (|difference| + z·SE) over all pairs of groups.

    z is for all pairs at once, so the bound holds for the worst pair in the population.

    Parameters
    ----------
    means, variances
        (groups,) for each attribute: the groups' means, and the variances of these means.
    most
        Largest possible gap: 1 for rates.
    """
    places, differences, errors = [], [], []
    for attribute, (mean, variance) in enumerate(zip(means, variances, strict=True)):
        one, other = np.triu_indices(len(mean), 1)
        places += [(attribute, (int(a), int(b))) for a, b in zip(one, other, strict=True)]
        differences.append(np.abs(mean[one] - mean[other]))
        errors.append(np.sqrt(variance[one] + variance[other]))
    difference, error = np.concatenate(differences), np.concatenate(errors)
    z = critical_value(level, len(places))
    worst = int(np.argmax(difference))
    bound = min(float(np.max(difference + z * error)), most)
    return Gap(float(difference[worst]), float(error[worst]), bound, *places[worst], len(places))


def check_resampling(level: float, repeats: int) -> None:
    critical_value(level, 1)
    if repeats < 1:
        raise InputError(f"repeats is {repeats}: give at least 1 (1000 is usual)")


BINS: Final = 10
"""Number of bins of predicted probabilities, of equal width."""


def group_counts(
    y_true: npt.ArrayLike, scores: npt.ArrayLike, *, sensitive_features: Any, pos_label: Any, cut: float | Array = 0.0
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
    truth, predicted = codes == positive_code(labels, pos_label), logits > cut
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


def constraint_gaps(
    constraints: Constraints,
    y_true: npt.ArrayLike,
    scores: npt.ArrayLike,
    *,
    sensitive_features: Any = None,
    pos_label: Any = None,
    level: float = LEVEL,
    cut: float = 0.0,
) -> pd.DataFrame:
    """Measure how far constraints of any kind hold on these rows: one line for each constraint.

    ==================  =========================================================================================
    ``asked``           ε, or the limit
    ``estimate``        the worst row's value, with exact rates of decisions at the cut
    ``standard_error``  of that value
    ``bound``           max (|value| + z SE) over the constraint's rows: none is larger in the population
    ``row``             the worst row, in words
    ``formula``         the same row as a combination of slice means
    ``measure``         what it averages: ``loss``, ``error`` or ``positive``
    ``comparisons``     R, how many rows the constraint has
    ==================  =========================================================================================

    z and standard errors are those of :func:`evenhand.metrics.gap_bounds`. Groups and crossings are those that occur.

    Raises
    ------
    DataError, ConstraintError
        If lengths differ, values are missing, there are not two labels, or a slice has no rows.
    """
    truths, logits = read_column(y_true, "y_true"), read_scores(scores)
    codes, labels = read_codes(truths, "y_true")
    if len(codes) != len(logits):
        raise DataError(f"lengths differ: y_true has {len(codes)}, scores {len(logits)}; each row needs both")
    signs = np.where(codes == positive_code(labels, labels[-1] if pos_label is None else pos_label), 1.0, -1.0)
    frame = groups_frame(sensitive_features, len(signs))
    wanted = as_list(constraints)
    bound = [bind(constraint, signs, frame, cut) for constraint in wanted]
    rows = [worst_inequality(one, signs, logits, level=level) for one in bound]
    kinds = pd.Index([constraint.kind for constraint in wanted], name="constraint")
    return pd.DataFrame(rows, index=kinds, columns=WorstInequality._fields)


class Metric(NamedTuple):
    """A metric of a model on some rows.

    Attributes
    ----------
    meaning
        In one line.
    definition
        What exactly is computed; a gap is the largest difference between two groups, the worst over attributes.
    """

    meaning: str
    definition: str


METRICS: Final[dict[str, Metric]] = {
    "accuracy": Metric(
        "share of correct decisions", "share of rows with a decision (score above 0) equal to the label"
    ),
    "DFP": Metric(
        "gap in false-positive rates", "gap of false-positive rates: wrong decisions over the negative label"
    ),
    "DFN": Metric(
        "gap in false-negative rates: equal opportunity",
        "gap of false-negative rates, which is that of true-positive rates: wrong decisions over the positive label. "
        "`metrics.equal_opportunity` is the same from decisions, for any number of labels",
    ),
    "DP": Metric(
        "gap in selection rates: demographic parity",
        "gap of selection rates: the share of rows decided positive. `metrics.demographic_parity` is the same from "
        "decisions, for any number of labels",
    ),
    "equalized_odds": Metric("larger of DFP and DFN", "max(DFP, DFN), as fairlearn has it; never called EO here"),
    "DEO": Metric("gap in mean loss of positives", "gap of the mean logistic loss over the positive label (FairVFL)"),
    "FR": Metric("1 − DEO", "1 − DEO; below zero where DEO is above one (FairVFL, first version)"),
    "HM": Metric("harmonic mean of accuracy and FR", "harmonic mean of accuracy and FR; 0 where FR is not positive"),
    "log_loss": Metric("mean logistic loss", "mean of log(1 + exp(−y·score)) over all rows, natural logarithm"),
}
