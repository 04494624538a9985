"""evenhand: fair and constrained models, trained across parties that may not pool their data."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evenhand.constraints import (
        BoundedGroupLoss,
        DemographicParity,
        EqualizedOdds,
        EqualOpportunity,
        GroupAgainstOverall,
        LossParity,
        MeanPredictionParity,
        NeymanPearson,
    )
    from evenhand.constraints.thresholds import Threshold
    from evenhand.errors import EvenhandError
    from evenhand.estimators import (
        HorizontalClassifier,
        HorizontalRegressor,
        OneVsRestClassifier,
        SplitTableClassifier,
        VerticalClassifier,
        VerticalRegressor,
    )
    from evenhand.estimators.auditing import audit
    from evenhand.estimators.saved import load_run, merged_pipeline
    from evenhand.estimators.scoring import fairness_scorer
    from evenhand.estimators.selection import Selection, frontier, select
    from evenhand.runtime.inprocess import VirtualClock

__all__ = [
    "BoundedGroupLoss",
    "DemographicParity",
    "EqualOpportunity",
    "EqualizedOdds",
    "EvenhandError",
    "GroupAgainstOverall",
    "HorizontalClassifier",
    "HorizontalRegressor",
    "LossParity",
    "MeanPredictionParity",
    "NeymanPearson",
    "OneVsRestClassifier",
    "Selection",
    "SplitTableClassifier",
    "Threshold",
    "VerticalClassifier",
    "VerticalRegressor",
    "VirtualClock",
    "__version__",
    "audit",
    "fairness_scorer",
    "frontier",
    "load_run",
    "merged_pipeline",
    "select",
]

# Loaded on first use: pandas, scikit-learn and matplotlib take seconds, and `evenhand --help` needs none.
_HOMES = {
    "constraints": (
        "BoundedGroupLoss",
        "DemographicParity",
        "EqualOpportunity",
        "EqualizedOdds",
        "GroupAgainstOverall",
        "LossParity",
        "MeanPredictionParity",
        "NeymanPearson",
    ),
    "constraints.thresholds": ("Threshold",),
    "errors": ("EvenhandError",),
    "estimators": (
        "HorizontalClassifier",
        "HorizontalRegressor",
        "OneVsRestClassifier",
        "SplitTableClassifier",
        "VerticalClassifier",
        "VerticalRegressor",
    ),
    "estimators.auditing": ("audit",),
    "estimators.saved": ("load_run", "merged_pipeline"),
    "estimators.scoring": ("fairness_scorer",),
    "estimators.selection": ("Selection", "frontier", "select"),
    "runtime.inprocess": ("VirtualClock",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("evenhand")
    if name in _HOME:
        return getattr(import_module(f"evenhand.{_HOME[name]}"), name)
    raise AttributeError(f"module 'evenhand' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
