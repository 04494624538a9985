"""Which constraints suit a loss: targets that are numbers have no positives, and predictions of them no error rate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from evenhand.constraints.families import OF_NUMBERS
from evenhand.constraints.kinds import Constraint
from evenhand.constraints.slices import Inequality
from evenhand.errors import ConstraintError

_SOME_GROUPS: Final = {"group": ("a", "b")}
INSTEAD: Final = (
    "MeanPredictionParity ('mean-prediction-parity') for predictions, or LossParity ('loss-parity') or "
    "BoundedGroupLoss ('bounded-group-loss') for errors by group"
)


def check_suits(constraints: Iterable[Constraint], loss: str) -> None:
    """Refuse constraints that have no meaning for the labels of a loss, and say what to take instead."""
    for constraint in constraints:
        for row in constraint.inequalities(_SOME_GROUPS):
            _check_row(constraint, row, loss)


def _check_row(constraint: Constraint, row: Inequality, loss: str) -> None:
    if loss not in OF_NUMBERS:
        if row.measure.name == "prediction":
            raise ConstraintError(
                f"{constraint.kind} bounds mean predictions, which are for targets that are numbers; for classes "
                "choose DemographicParity ('demographic-parity'), which bounds selection rates"
            )
        return
    if any(part.label is not None for _, part in row.terms):
        raise ConstraintError(
            f"{constraint.kind} compares rows with a positive or negative label, and targets of the {loss} loss are "
            f"numbers; choose {INSTEAD}"
        )
    if row.measure.is_rate:
        what = "selection rates" if row.measure.name == "positive" else "error rates"
        raise ConstraintError(
            f"{constraint.kind} with measure {row.measure.name!r} bounds {what}, and predictions of the {loss} loss "
            f"are numbers, not decisions; choose {INSTEAD}"
        )
