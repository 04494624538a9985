"""evenhand: fair and constrained models, trained across parties that may not pool their data."""

from importlib.metadata import version

from evenhand.constraints import (
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    GroupAgainstOverall,
    LossParity,
    NeymanPearson,
)
from evenhand.errors import EvenhandError
from evenhand.estimators import SplitTableClassifier, VerticalClassifier
from evenhand.runtime.clock import VirtualClock
from evenhand.selection import Selection, frontier, select

__version__ = version("evenhand")

__all__ = [
    "DemographicParity",
    "EqualOpportunity",
    "EqualizedOdds",
    "EvenhandError",
    "GroupAgainstOverall",
    "LossParity",
    "NeymanPearson",
    "Selection",
    "SplitTableClassifier",
    "VerticalClassifier",
    "VirtualClock",
    "__version__",
    "frontier",
    "select",
]
