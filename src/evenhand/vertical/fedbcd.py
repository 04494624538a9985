"""FedBCD, the papers' baseline: FairVFL's roles with no constraint, so that there is nothing to ascend."""

from __future__ import annotations

from evenhand.constraints import Constraints
from evenhand.errors import InputError
from evenhand.vertical.fairvfl import FairVFLOptions


class FedBCDOptions(FairVFLOptions):
    """`step` and `local_steps` as in FairVFL; what concerns multipliers has no effect."""


def refuse_constraints(constraints: Constraints) -> None:
    """A constraint that would silently be ignored is an error."""
    if constraints is not None:
        raise InputError("solver 'fedbcd' trains without constraints; use 'fairvfl', or leave the constraint out")
