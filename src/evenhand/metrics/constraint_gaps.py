"""Measure the gap that a constraint bounds on given rows, with a bound for the population."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from evenhand.constraints.binding import bind
from evenhand.constraints.confidence import LEVEL, critical_value
from evenhand.constraints.groups import groups_frame
from evenhand.constraints.kinds import Constraint, Constraints, as_list
from evenhand.errors import DataError
from evenhand.metrics.columns import positive_code, read_codes, read_column, read_scores


def constraint_gaps(
    constraints: Constraints,
    y_true: npt.ArrayLike,
    scores: npt.ArrayLike,
    *,
    sensitive_features: Any = None,
    pos_label: Any = None,
    level: float = LEVEL,
) -> pd.DataFrame:
    """Measure how far constraints of any kind hold on these rows: one line for each constraint.

    ==================  =========================================================================================
    ``asked``           ε, or the limit
    ``estimate``        the worst row's value, with exact rates
    ``standard_error``  of that value
    ``bound``           max (|value| + z SE) over the constraint's rows: none is larger in the population
    ``row``             the worst row, in words
    ``formula``         the same row as a combination of slice means
    ``measure``         what it averages: ``loss``, ``error`` or ``positive``
    ``comparisons``     R, how many rows the constraint has
    ==================  =========================================================================================

    z and standard errors are those of :func:`evenhand.metrics.gap_bounds`. Groups and crossings are those that occur.

    Raises
    ------
    DataError, ConstraintError
        If lengths differ, values are missing, there are not two labels, or a slice has no rows.
    """
    truths, logits = read_column(y_true, "y_true"), read_scores(scores)
    codes, labels = read_codes(truths, "y_true")
    if len(codes) != len(logits):
        raise DataError(f"lengths differ: y_true has {len(codes)}, scores {len(logits)}; each row needs both")
    signs = np.where(codes == positive_code(labels, labels[-1] if pos_label is None else pos_label), 1.0, -1.0)
    frame = groups_frame(sensitive_features, len(signs))
    wanted = as_list(constraints)
    rows = [_worst(constraint, signs, logits, frame, level) for constraint in wanted]
    columns = ["asked", "estimate", "standard_error", "bound", "row", "formula", "measure", "comparisons"]
    kinds = pd.Index([constraint.kind for constraint in wanted], name="constraint")
    return pd.DataFrame(rows, index=kinds, columns=columns)


def _worst(
    constraint: Constraint, signs: npt.NDArray[Any], logits: npt.NDArray[Any], frame: pd.DataFrame, level: float
) -> tuple[float, float, float, float, str, str, str, int]:
    bound = bind(constraint, signs, frame)
    values, errors = bound.reported(signs, logits)
    two_sided = np.isfinite(bound.bounds.lower)
    values = np.where(two_sided, np.abs(values), values)
    reach = values + critical_value(level, len(values)) * errors
    rates = np.array([row.measure.name != "loss" for row in bound.rows])
    reach = np.where(rates, np.minimum(reach, 1.0), reach)
    worst = int(np.argmax(values - bound.bounds.upper))
    asked, row = float(bound.bounds.upper[worst]), bound.rows[worst]
    numbers = asked, float(values[worst]), float(errors[worst]), float(reach.max())
    return *numbers, str(row), row.formula, row.measure.name, len(values)
