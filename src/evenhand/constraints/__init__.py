"""Constraints that are linear in slice means: their kinds, slices, measures, losses, bounds, and the Lagrangian."""

from evenhand.constraints.binding import bind
from evenhand.constraints.groups import Groups, groups_frame
from evenhand.constraints.kinds import (
    KINDS,
    BoundedGroupLoss,
    Constraint,
    Constraints,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    GroupAgainstOverall,
    LossParity,
    MeanPredictionParity,
    NeymanPearson,
    as_list,
    register,
)

__all__ = [
    "KINDS",
    "BoundedGroupLoss",
    "Constraint",
    "Constraints",
    "DemographicParity",
    "EqualOpportunity",
    "EqualizedOdds",
    "GroupAgainstOverall",
    "Groups",
    "LossParity",
    "MeanPredictionParity",
    "NeymanPearson",
    "as_list",
    "bind",
    "groups_frame",
    "register",
]
