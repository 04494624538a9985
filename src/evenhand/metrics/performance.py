"""How well scores rank rows, how decisions at the cut do, and how well probabilities are calibrated; with intervals.

Ranking needs no cut: AUC, Gini, KS and average precision. Recall, precision and the selection rate are those of
decisions at the cut. The Brier score and the calibration slope are about probabilities.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from evenhand.arrays import Array, Booleans
from evenhand.constraints.proving import mean_variance
from evenhand.metrics.gaps import Attribute

Estimate: TypeAlias = tuple[float | None, float | None, float | None]
"""A value and its 95 % interval; None where these rows do not give it."""

PERFORMANCE: Final[dict[str, str]] = {
    "base_rate": "share of positives",
    "selection_rate": "share decided positive, at the cut",
    "recall": "share of positives that are selected, at the cut",
    "precision": "share of selected rows that are positive, at the cut",
    "AUC": "chance that a positive scores above a negative",
    "Gini": "2 AUC − 1",
    "KS": "largest distance of the two classes' score distributions",
    "average_precision": "precision averaged over all cuts, weighted by recall",
    "Brier": "mean squared error of the score's probability",
    "calibration_slope": "1 if the score's probabilities are right; below 1: too extreme",
}
"""What each metric means, in the order in which they are shown."""
_REPEATS: Final = 200
_MOST_BINS: Final = 4096
"""Scores are resampled in at most this many bins, so that large tables cost no more."""
_Z: Final = 1.959963984540054


def wilson(count: int, out_of: int) -> Estimate:
    """Return a share and its 95 % Wilson interval, which is valid for small counts too (Wilson, 1927)."""
    if out_of == 0:
        return None, None, None
    z2, share = _Z**2, count / out_of
    middle = (share + z2 / (2 * out_of)) / (1 + z2 / out_of)
    half = _Z * np.sqrt(share * (1 - share) / out_of + z2 / (4 * out_of**2)) / (1 + z2 / out_of)
    # Rounding may put a share of 0 or 1 outside the interval.
    return share, float(min(middle - half, share)), float(max(middle + half, share))


def performance(
    signs: Array,
    scores: Array,
    attributes: list[Attribute],
    *,
    cut: float | Array = 0.0,
    probabilities: Array | None = None,
) -> list[dict[str, Any]]:
    """Return the metrics of `PERFORMANCE` for all rows, and for each group of each attribute.

    Parameters
    ----------
    signs
        Labels, ±1.
    cut
        Score above which a row is selected, or one for each row.
    probabilities
        Probabilities of the positive label; None takes those of the scores.
    """
    truth, chance = signs > 0, expit(scores) if probabilities is None else probabilities
    chosen = scores > cut
    found = [{"attribute": None, "group": None, **of_rows(truth, scores, chance, chosen)}]
    for attribute in attributes:
        for code, group in enumerate(attribute.groups):
            inside = attribute.codes == code
            own = of_rows(truth[inside], scores[inside], chance[inside], chosen[inside])
            found.append({"attribute": attribute.name, "group": str(group), **own})
    return found


def of_rows(truth: Booleans, scores: Array, chance: Array, chosen: Booleans) -> dict[str, Any]:
    """Return counts and metrics of some rows, from their labels, scores, probabilities and decisions."""
    # Sums then do not depend on the order of the rows.
    order = np.lexsort((chosen, chance, truth, scores))
    truth, scores, chance, chosen = truth[order], scores[order], chance[order], chosen[order]
    rows, positives = len(truth), int(truth.sum())
    selected, hits = int(chosen.sum()), int((chosen & truth).sum())
    wrong = (chance - truth) ** 2
    brier = float(wrong.mean()) if rows else None
    spread = float(np.sqrt(mean_variance(wrong.sum(), np.square(wrong).sum(), rows))) if rows > 1 else np.inf
    metrics: dict[str, Estimate] = {
        "base_rate": wilson(positives, rows),
        "selection_rate": wilson(selected, rows),
        "recall": wilson(hits, positives),
        "precision": wilson(hits, selected),
        **_ranking(truth, scores),
        "Brier": _around(brier, spread, 0.0, 1.0),
        "calibration_slope": _slope(truth, chance),
    }
    listed = {name: list(one) for name, one in metrics.items()}
    return {"rows": rows, "positives": positives, "selected": selected, "hits": hits, "metrics": listed}


def _around(value: float | None, error: float, least: float, most: float) -> Estimate:
    if value is None or not np.isfinite(error):
        return value, None, None
    return value, max(value - _Z * error, least), min(value + _Z * error, most)


# -- ranking


def _ranking(truth: Booleans, scores: Array) -> dict[str, Estimate]:
    names = ("AUC", "Gini", "KS", "average_precision")
    if not truth.any() or truth.all():
        return dict.fromkeys(names, (None, None, None))
    order = np.argsort(-scores, kind="stable")
    new = np.concatenate([[True], np.diff(scores[order]) != 0.0])
    place = np.cumsum(new) - 1
    exact = _rank_metrics(*_counted(truth[order], place))[:, 0]
    if place[-1] >= _MOST_BINS:
        place = place * _MOST_BINS // (place[-1] + 1)
    positives, negatives = _counted(truth[order], place)
    share = np.concatenate([positives[0], negatives[0]]) / len(truth)
    drawn = np.random.default_rng(0).multinomial(len(truth), share, size=_REPEATS).astype(np.float64)
    values = _rank_metrics(*np.split(drawn, 2, axis=1)) - _rank_metrics(positives, negatives)
    low, high = np.nanquantile(values, [0.025, 0.975], axis=1)
    # KS is a maximum: noise pushes it up, and resampling once more. Neither percentiles nor their reflection hold the
    # truth often enough, so take both.
    low[2], high[2] = min(low[2], -high[2]), max(high[2], -low[2])
    least = np.array([0.0, -1.0, 0.0, 0.0])
    ends = np.clip([exact + low, exact + high], least, 1.0)
    return {
        name: (float(value), float(min(a, value)), float(max(b, value)))
        for name, value, a, b in zip(names, exact, *ends, strict=True)
    }


def _counted(truth: Booleans, place: npt.NDArray[Any]) -> tuple[Array, Array]:
    """Count positives and negatives at each score, highest first: (1, scores) each."""
    width = int(place[-1]) + 1
    return tuple(np.bincount(place[one], minlength=width).astype(np.float64)[None] for one in (truth, ~truth))  # type: ignore[return-value]


def _rank_metrics(positives: Array, negatives: Array) -> Array:
    """Return AUC, Gini, KS and average precision, (4, repeats), from counts by falling score."""
    hits, wrong = np.cumsum(positives, axis=1), np.cumsum(negatives, axis=1)
    all_hits, all_wrong = hits[:, -1], wrong[:, -1]
    with np.errstate(invalid="ignore", divide="ignore"):
        # A tie counts half.
        above = ((hits - positives / 2.0) * negatives).sum(axis=1) / (all_hits * all_wrong)
        distance = (hits / all_hits[:, None] - wrong / all_wrong[:, None]).max(axis=1)
        precision = np.where(hits + wrong > 0.0, hits / np.maximum(hits + wrong, 1.0), 0.0)
        average = (precision * positives).sum(axis=1) / all_hits
    return np.stack([above, 2.0 * above - 1.0, np.maximum(distance, 0.0), average])


# -- calibration


def fit_platt(truth: Booleans, scores: Array) -> tuple[float, float, float] | None:
    """Fit log-odds a·score + b to labels by Newton's method (Platt, 1999); return a, b and the standard error of a.

    Targets are those of Platt: (n₊ + 1) / (n₊ + 2) and 1 / (n₋ + 2), so that separable rows give finite numbers. None
    if a class is missing or all scores are equal.
    """
    positives = int(truth.sum())
    if positives in (0, len(truth)) or np.ptp(scores) == 0.0:
        return None
    wanted = np.where(truth, (positives + 1.0) / (positives + 2.0), 1.0 / (len(truth) - positives + 2.0))
    middle, unit = float(scores.mean()), float(scores.std())
    columns = np.stack([(scores - middle) / unit, np.ones_like(scores)])
    found, value = np.array([0.0, np.log(wanted.mean() / (1.0 - wanted.mean()))]), np.inf
    curvature = np.eye(2)
    for _ in range(100):
        chance = expit(found @ columns)
        gradient = columns @ (chance - wanted)
        curvature = (columns * (chance * (1.0 - chance))) @ columns.T + 1e-10 * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        # Halve steps that do not lower the loss.
        for _ in range(30):
            margin = (found - step) @ columns
            new = float((np.logaddexp(0.0, margin) - wanted * margin).sum())
            if new <= value + 1e-12:
                break
            step = step / 2.0
        found, value = found - step, new
        if float(np.abs(step).max()) < 1e-10:
            break
    error = float(np.sqrt(np.linalg.inv(curvature)[0, 0])) / unit
    slope = float(found[0]) / unit
    return slope, float(found[1]) - slope * middle, error


def _slope(truth: Booleans, chance: Array) -> Estimate:
    """Return the slope of the log-odds of labels in the log-odds of probabilities (Cox, 1958)."""
    inside = np.clip(chance, 1e-12, 1.0 - 1e-12)
    found = fit_platt(truth, np.log(inside / (1.0 - inside)))
    return (None, None, None) if found is None else _around(found[0], found[2], -np.inf, np.inf)
