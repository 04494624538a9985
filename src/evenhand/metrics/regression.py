"""How well predictions of numbers fit, for everybody and by group, with intervals; weights count as people.

Standard errors treat rows as independent. That of D² is by the delta method, as of a ratio of two means.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

from evenhand.arrays import Array
from evenhand.constraints.losses import Loss, constant_score

MEANINGS: Final[dict[str, str]] = {
    "D2": "share of the deviance that the model explains; R² with the squared loss",
    "mean_loss": "mean loss: half the deviance of a row",
    "mean_target": "mean of the target",
    "mean_prediction": "mean of the predictions",
    "MAE": "mean absolute error",
    "prediction_gap": "largest difference of mean predictions between two groups",
    "loss_gap": "largest difference of mean losses between two groups",
}
"""What each metric means."""
DECILES: Final = 10
Z: Final = 1.959963984540054
"""Half the width of a 95 % interval, in standard errors."""


class Means:
    """Targets, predictions and losses of some rows, and their weighted means."""

    def __init__(self, loss: Loss, targets: Array, scores: Array, weights: Array | None) -> None:
        self.weights = np.ones(len(targets)) if weights is None else weights
        self.targets, self.predictions = targets, loss.mean(scores)[0]
        self.losses = loss.value(scores, targets)
        self.of_mean = loss.value(constant_score(loss, targets, self.weights), targets)

    def mean(self, values: Array, inside: Any = slice(None)) -> tuple[float, float]:
        """Return a weighted mean over some rows and its standard error."""
        weights, some = self.weights[inside], values[inside]
        total = float(weights.sum())
        if total <= 0.0:
            return float("nan"), float("nan")
        value = float(weights @ some / total)
        error = float(np.sqrt(weights**2 @ (some - value) ** 2)) / total if len(some) > 1 else float("inf")
        return value, error

    def explained(self) -> tuple[float, float]:
        """Return D² and its standard error."""
        whole, total = float(self.weights @ self.of_mean), float(self.weights.sum())
        if whole <= 0.0:
            return float("nan"), float("nan")
        ratio = float(self.weights @ self.losses) / whole
        error = np.sqrt(self.weights**2 @ (self.losses - ratio * self.of_mean) ** 2) / total
        return 1.0 - ratio, float(error / (whole / total))


def regression_metrics(
    loss: Loss, targets: Array, scores: Array, groups: pd.DataFrame | None, weights: Array | None
) -> dict[str, tuple[float, float]]:
    """Return each metric of `MEANINGS` with its standard error; gaps only if there are groups."""
    means = Means(loss, targets, scores, weights)
    found = {
        "D2": means.explained(),
        "mean_loss": means.mean(means.losses),
        "mean_target": means.mean(targets),
        "mean_prediction": means.mean(means.predictions),
        "MAE": means.mean(np.abs(targets - means.predictions)),
    }
    if groups is not None and len(groups.columns):
        found["prediction_gap"] = _gap(means, means.predictions, groups)
        found["loss_gap"] = _gap(means, means.losses, groups)
    return found


def _gap(means: Means, values: Array, groups: pd.DataFrame) -> tuple[float, float]:
    """Return the largest difference between two groups of an attribute, with its standard error."""
    worst = 0.0, 0.0
    for name in groups:
        told = [means.mean(values, (groups[name] == group).to_numpy()) for group in groups[name].unique()]
        low, high = min(told), max(told)
        worst = max(worst, (high[0] - low[0], float(np.hypot(high[1], low[1]))))
    return worst


def by_group(
    loss: Loss, targets: Array, scores: Array, groups: pd.DataFrame | None, weights: Array | None
) -> list[dict[str, Any]]:
    """Return rows, means and the mean residual (target minus prediction) of each group, with 95 % intervals."""
    means, found = Means(loss, targets, scores, weights), list[dict[str, Any]]()
    for name in () if groups is None else groups:
        for group in sorted(groups[name].unique(), key=str):  # type: ignore[index]
            inside = (groups[name] == group).to_numpy()  # type: ignore[index]
            measured = {
                "target": means.mean(targets, inside),
                "prediction": means.mean(means.predictions, inside),
                "residual": means.mean(targets - means.predictions, inside),
                "loss": means.mean(means.losses, inside),
            }
            told = {key: _interval(*one) for key, one in measured.items()}
            found.append({"attribute": str(name), "group": str(group), "rows": int(inside.sum()), **told})
    return found


def by_decile(loss: Loss, targets: Array, scores: Array, weights: Array | None) -> list[dict[str, Any]]:
    """Return mean prediction and mean target, with 95 % intervals, in tenths of the rows by prediction."""
    means = Means(loss, targets, scores, weights)
    parts = np.array_split(np.argsort(scores, kind="stable"), min(DECILES, len(scores)))
    return [
        {
            "rows": len(part),
            "prediction": _interval(*means.mean(means.predictions, part)),
            "target": _interval(*means.mean(targets, part)),
        }
        for part in parts
    ]


def _interval(value: float, error: float) -> list[float | None]:
    if not np.isfinite(value):
        return [None, None, None]
    return [value, value - Z * error, value + Z * error] if np.isfinite(error) else [value, None, None]
