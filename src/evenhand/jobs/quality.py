"""What is measured of a model's scores, and how they are handed over; the same for both splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from scipy.special import expit

from evenhand.arrays import Array
from evenhand.errors import DataError
from evenhand.jobs.labels import Labels
from evenhand.metrics import decision_intervals, demographic_parity, equal_opportunity, intervals, summary

_GAPS: Final = {"demographic_parity": demographic_parity, "equal_opportunity": equal_opportunity}


@dataclass(frozen=True, eq=False)
class QualityRows:
    """Rows that quality is measured on.

    Attributes
    ----------
    signs
        ±1, +1 for the positive label.
    sensitive
        One column for each sensitive attribute; None where there is none, and then only accuracy is measured.
    """

    labels: Labels
    signs: Array
    sensitive: pd.DataFrame | None

    @property
    def groups(self) -> dict[str, Any]:
        return {"sensitive_features": self.sensitive, "positive": self.labels.positive}


def check_measurable(parts: Mapping[str, QualityRows], *, gaps: bool = False) -> None:
    """Find out before training, not after it, that the quality on some rows would have no value."""
    for name, rows in parts.items():
        try:
            _quality(rows, np.zeros(len(rows.signs)), gaps)
        except DataError as error:
            raise DataError(f"{name} rows: {error}") from error


def quality(parts: Mapping[str, QualityRows], scores: Mapping[str, Array], *, gaps: bool = False) -> dict[str, Any]:
    """Metrics of each part of the rows, and their 95 % bootstrap intervals, low and high.

    Parameters
    ----------
    gaps
        Whether demographic parity and equal opportunity of the decisions are among them.
    """
    return {
        "quality": {name: _quality(rows, scores[name], gaps) for name, rows in parts.items()},
        "intervals": {name: _intervals(rows, scores[name], gaps) for name, rows in parts.items()},
    }


def _quality(rows: QualityRows, scores: Array, gaps: bool) -> dict[str, float]:
    if rows.sensitive is None:
        return {"accuracy": float(np.mean((scores > 0) == (rows.signs > 0)))}
    # Labels by their own names, which error messages then use.
    labels, decisions = rows.labels.named(rows.signs), rows.labels.named(scores)
    found = summary(labels, scores, **rows.groups)
    if gaps:
        found = {**found, **{name: gap(labels, decisions, **rows.groups) for name, gap in _GAPS.items()}}
    return found


def _intervals(rows: QualityRows, scores: Array, gaps: bool) -> dict[str, list[float]]:
    if rows.sensitive is None:
        return {}
    labels, decisions = rows.labels.named(rows.signs), rows.labels.named(scores)
    found = intervals(labels, scores, **rows.groups)
    if gaps:
        found = pd.concat([found, decision_intervals(labels, decisions, **rows.groups).loc[list(_GAPS)]])
    return {str(name): [float(low), float(high)] for name, low, high in found[["low", "high"]].itertuples()}


def scored(scores: Array, labels: Mapping[str, Any], index: pd.Index) -> pd.DataFrame:
    """Scores of new rows with probabilities and predictions; `labels` are those of a run's result."""
    predicted = Labels(**labels).named(scores)
    return pd.DataFrame({"score": scores, "probability": expit(scores), "prediction": predicted}, index=index)
