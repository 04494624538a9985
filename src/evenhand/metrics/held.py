"""How far constraints hold on given rows, for labels of any number of classes and for targets that are numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from evenhand.arrays import Array
from evenhand.constraints.binding import BoundConstraints, bind_inequalities, compared_groups, inequalities
from evenhand.constraints.groups import groups_frame
from evenhand.constraints.kinds import Constraint
from evenhand.constraints.losses import Loss
from evenhand.constraints.proving import LEVEL, critical_value
from evenhand.errors import ConstraintError, DataError


class WorstInequality(NamedTuple):
    """The inequality of a constraint that is exceeded most, and its value with exact rates.

    Attributes
    ----------
    bound
        max (|value| + z·SE) over all inequalities: none is larger in the population.
    comparisons
        How many inequalities the constraint has.
    """

    asked: float
    estimate: float
    standard_error: float
    bound: float
    row: str
    formula: str
    measure: str
    comparisons: int


def worst_inequality(
    bound: BoundConstraints, labels: Array, scores: Array, loss: Loss | None = None, level: float = LEVEL
) -> WorstInequality:
    """Return the value of a constraint that is bound to these rows; scores are (n,), or (classes, n)."""
    values, errors = bound.reported(labels, scores, loss)
    values = np.where(np.isfinite(bound.bounds.lower), np.abs(values), values)
    reach = values + critical_value(level, len(values)) * errors
    rates = np.array([row.measure.is_rate for row in bound.rows])
    reach = np.where(rates, np.minimum(reach, 1.0), reach)
    worst = int(np.argmax(values - bound.bounds.upper))
    row = bound.rows[worst]
    numbers = float(bound.bounds.upper[worst]), float(values[worst]), float(errors[worst]), float(reach.max())
    return WorstInequality(*numbers, str(row), row.formula, row.measure.name, len(values))


def held_constraints(
    constraints: Sequence[Constraint],
    loss: Loss,
    labels: Array,
    scores: Array,
    groups: pd.DataFrame | None,
    weights: Array | None = None,
) -> list[dict[str, Any]]:
    """Return how well each constraint holds; a value that these rows do not give is None.

    A constraint over a slice without rows here has no value and is left out.
    """
    found = []
    for constraint in constraints:
        try:
            frame, known = compared_groups(constraint, labels, groups_frame(groups, len(labels)))
            bound = bind_inequalities(inequalities(constraint, known), known, labels, frame, weights)
        except (ConstraintError, DataError):
            continue
        worst = worst_inequality(bound, labels, scores, loss)
        told = {name: _finite(one) if isinstance(one, float) else one for name, one in worst._asdict().items()}
        found.append({"constraint": constraint.kind, **told})
    return found


def _finite(value: float) -> float | None:
    """Return None for infinity, which JSON does not have."""
    return value if np.isfinite(value) else None
