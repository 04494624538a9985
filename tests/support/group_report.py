"""One row of rates for each group by fairlearn: an independent reference for the library's metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
from fairlearn.metrics import MetricFrame

from evenhand.arrays import Array
from evenhand.metrics.gaps import check_lengths, positive_code, read_attributes, read_codes, read_column, read_scores
from evenhand.metrics.scores import logistic_loss


def group_report(
    y_true: npt.ArrayLike,
    y_pred: npt.ArrayLike,
    *,
    sensitive_features: Any,
    scores: npt.ArrayLike | None = None,
    pos_label: Any = 1,
    cross: bool = False,
) -> pd.DataFrame:
    """Return a row for each group: count, accuracy, selection_rate, TPR, FPR, FNR and base_rate.

    With ``scores`` (logits) there is also ``positive_loss``, the mean logistic loss over the group's positives: DEO is
    the largest gap in that column. A rate over no rows is NaN, not 0: the table describes, it does not judge, so a
    group without positives (or a single group) is shown rather than refused.

    The index is the groups of the attribute, or (attribute, group) when there are several attributes; ``cross`` adds
    one more attribute, the combinations of all groups that occur.

    Raises
    ------
    DataError
        If lengths differ, values are missing, labels are not of two kinds, or ``pos_label`` is not among them.
    """
    truths, predictions = read_column(y_true, "y_true"), read_column(y_pred, "y_pred")
    attributes = read_attributes(sensitive_features, cross)
    check_lengths(attributes, y_true=truths, y_pred=predictions)
    # Both columns are coded together: a model may predict one label only.
    codes, labels = read_codes(pd.concat([truths, predictions]), "y_true or y_pred")
    truth, predicted = np.split(codes == positive_code(labels, pos_label), 2)
    metrics: dict[str, Callable[..., float]] = dict(_GROUP_METRICS)
    sample_params: dict[str, dict[str, Array]] = {}
    if scores is not None:
        logits = read_scores(scores)
        check_lengths(attributes, scores=logits)
        metrics["positive_loss"] = lambda truth, _, scores: _mean(logistic_loss(truth, scores)[truth])
        sample_params["positive_loss"] = {"scores": logits}

    tables: dict[str, pd.DataFrame] = {}
    for attribute in attributes:
        frame = MetricFrame(
            metrics=metrics,
            y_true=truth,
            y_pred=predicted,
            sensitive_features=attribute.codes,
            sample_params=sample_params,
        )
        table = cast(pd.DataFrame, frame.by_group).astype({"count": int})
        tables[attribute.name] = table.set_axis(pd.Index(attribute.groups, name=attribute.name))
    return tables.popitem()[1] if len(tables) == 1 else pd.concat(tables, names=["attribute", "group"])


def _mean(values: npt.NDArray[Any]) -> float:
    return float(values.mean()) if values.size else np.nan


# fairlearn's own conditional rates are 0 where there is nothing to count; here they are NaN.
_GROUP_METRICS: dict[str, Callable[..., float]] = {
    "count": lambda truth, _: len(truth),
    "accuracy": lambda truth, predicted: _mean(truth == predicted),
    "selection_rate": lambda _, predicted: _mean(predicted),
    "TPR": lambda truth, predicted: _mean(predicted[truth]),
    "FPR": lambda truth, predicted: _mean(predicted[~truth]),
    "FNR": lambda truth, predicted: _mean(~predicted[truth]),
    "base_rate": lambda truth, _: _mean(truth),
}
