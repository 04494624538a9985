"""Constraint rows met with labels and groups: multipliers on the rows become one weight per row of data.

That is why any weighted learner can take any constraint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from evenhand.arrays import ALL, Array, Integers, Rows
from evenhand.constraints.bounds import Bounds
from evenhand.constraints.confidence import critical_value
from evenhand.constraints.groups import (
    Groups,
    check_groups,
    crossed_name,
    group_codes,
    groups_frame,
    groups_of,
    with_crossing,
)
from evenhand.constraints.kinds import Constraint, Constraints, as_list
from evenhand.constraints.measures import Measure, by_measure
from evenhand.constraints.slices import ConstraintRow, bounds_of
from evenhand.errors import ConstraintError, DataError
from evenhand.printing import quoted


@dataclass(frozen=True, eq=False)
class BoundConstraints:
    """Constraint rows on given data.

    Rows of data that share label and groups form a *cell*; whatever concerns slices is then a small matrix over
    cells, and the only passes over all n rows of data are one sum and one look-up.

    Attributes
    ----------
    rows
        The constraint rows, R of them.
    cell
        For each row of data, its cell.
    weights
        (R, cells): what one person of that cell contributes to each constraint row, a_s / |s| summed over the row's
        slices.
    people
        How many people each row of data stands for; None is one. A row that stands for two is as good as two rows.
    bounds
        Of the constraint rows.
    """

    rows: tuple[ConstraintRow, ...]
    cell: Integers
    weights: Array
    people: Array | None = None
    bounds: Bounds = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", bounds_of(self.rows))

    def __len__(self) -> int:
        return len(self.rows)

    def with_rows(self, rows: tuple[ConstraintRow, ...]) -> BoundConstraints:
        """Rows over the same slices with other bounds or temperatures."""
        return BoundConstraints(rows, self.cell, self.weights, self.people)

    @cached_property
    def names(self) -> list[str]:
        return [str(row) for row in self.rows]

    @cached_property
    def measures(self) -> dict[Measure, Integers]:
        """Which rows use which measure."""
        return by_measure(row.measure for row in self.rows)

    def row_values(self, measured: Array, rows: Integers) -> Array:
        """a·g for these rows, from the measure's value on each row of data."""
        return self.weights[rows] @ self.cell_sums(measured)

    def cell_sums(self, values: Array) -> Array:
        """Of each cell, the sum of these values over its people."""
        sums = np.bincount(self.cell, weights=self.counted(values), minlength=self.weights.shape[1])
        return sums.astype(np.float64, copy=False)

    def counted(self, values: Array, of: Rows = ALL) -> Array:
        """Values of these rows of data, times the people that each stands for."""
        return values if self.people is None else values * self.people[of]

    @property
    def n_people(self) -> float:
        return float(len(self.cell) if self.people is None else self.people.sum())

    @cached_property
    def most_people(self) -> Array:
        """Of each cell, how many people one row of data at most stands for."""
        if self.people is None:
            return np.ones(self.weights.shape[1])
        most = np.zeros(self.weights.shape[1])
        np.maximum.at(most, self.cell, self.people)
        return most

    @property
    def grain(self) -> Array:
        """What one row of data at most weighs in each constraint row."""
        return (np.abs(self.weights) * self.most_people).max(axis=1, initial=0.0)

    def tilt(self, multipliers: Array, rows: Integers, of: Rows = ALL) -> Array:
        """Σ_rows (λ⁺ − λ⁻) a_s / |s| for these rows of data: the part of their weight that the rows add."""
        net = multipliers[0, rows] - multipliers[1, rows]
        return self.counted((net @ self.weights[rows])[self.cell[of]], of)


def bind(constraints: Constraints, labels: Array, sensitive: pd.DataFrame | None = None) -> BoundConstraints:
    """Meet constraints with labels (±1) and groups, those that occur; an empty slice is an error that names it."""
    labels = _numbers(labels)
    frame, groups = compared_groups(constraints, labels, groups_frame(sensitive, len(labels)))
    return bind_rows(constraint_rows(constraints, groups), groups, labels, frame)


def _numbers(labels: Array) -> Array:
    try:
        found = np.asarray(labels, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"labels are {quoted(labels)}, not numbers; give 1 and -1") from error
    if found.ndim != 1 or not np.isfinite(found).all():
        raise DataError(f"labels are {quoted(labels)}; give one finite number for each row, 1 or -1")
    return found


def compared_groups(
    constraints: Constraints, labels: Array, frame: pd.DataFrame, groups: Groups | None = None
) -> tuple[pd.DataFrame, Groups]:
    """The attributes' columns and groups that constraints compare on these rows, the crossing among them if asked for.

    A crossing without rows in a slice that is compared is left out of the groups: people in it are in none of the
    crossed slices, and still count in the groups of each attribute on its own.

    Parameters
    ----------
    groups
        The values of attributes that were agreed beforehand; None takes those that occur. A crossing that was not
        agreed on is that of the rows.
    """
    groups = groups_of(frame) if groups is None else groups
    if not any(constraint.crosses for constraint in as_list(constraints)):
        return frame, groups
    frame = with_crossing(frame)
    name = crossed_name(frame.columns)
    if name is None or name in groups:
        return frame, groups
    groups = {**groups, **groups_of(frame[[name]])}
    parts = {part for row in constraint_rows(constraints, groups) for _, part in row.terms if part.attribute == name}
    empty = {part.group for part in parts if not part.inside(labels, frame).any()}
    return frame, {**groups, name: tuple(value for value in groups[name] if value not in empty)}


def constraint_rows(constraints: Constraints, groups: Groups) -> tuple[ConstraintRow, ...]:
    """All rows of all constraints, when the sensitive attributes take these values.

    A crossing is there for the constraints that ask for it, and for no others.
    """
    wanted = as_list(constraints)
    check_groups(groups)
    lacking = [constraint.kind for constraint in wanted if constraint.compares_groups and not groups]
    if lacking:
        raise DataError(f"constraint {lacking[0]} compares groups: give sensitive_features")
    crossing = crossed_name(groups)
    crossed = [constraint.kind for constraint in wanted if constraint.crosses]
    if crossed and crossing is None:
        raise ConstraintError(f"constraint {crossed[0]} has cross=True, and nobody has crossed {', '.join(groups)}")
    plain = {name: values for name, values in groups.items() if not crossed or name != crossing}
    return tuple(row for constraint in wanted for row in _rows(constraint, groups if constraint.crosses else plain))


def _rows(constraint: Constraint, groups: Groups) -> list[ConstraintRow]:
    """One constraint's rows; where it asks for confidence, it is that of all of them at once."""
    rows = constraint.rows(groups)
    if constraint.level is None:
        return rows
    reach = critical_value(constraint.level, len(rows))
    return [replace(row, reach=reach) for row in rows]


def bind_rows(
    rows: Sequence[ConstraintRow],
    groups: Groups,
    labels: Array,
    sensitive: pd.DataFrame,
    people: Array | None = None,
) -> BoundConstraints:
    """Meet rows with labels (±1) and groups whose values have been agreed on; `people` as in `BoundConstraints`."""
    cell, (label, *codes) = cells([labels.astype(np.int64), *group_codes(sensitive, groups).values()])
    # The place after the last is -1, of crossings that are left out.
    values = {
        name: np.array([*groups[name], None], dtype=object)[code] for name, code in zip(groups, codes, strict=True)
    }
    cell_labels = label.astype(np.float64)
    sizes = np.bincount(cell, weights=people, minlength=len(label))
    weights = np.zeros((len(rows), len(label)))
    for index, row in enumerate(rows):
        for coefficient, part in row.terms:
            inside = part.inside(cell_labels, values)
            count = sizes[inside].sum()
            if count == 0:
                raise ConstraintError(
                    f"slice [{part}] is empty: no row of the {len(labels)} has it, so {row} has no meaning; "
                    "merge or drop that group, or choose another constraint"
                )
            weights[index, inside] += coefficient / count
    return BoundConstraints(tuple(rows), cell, weights, people)


def cells(columns: Sequence[Integers]) -> tuple[Integers, list[Integers]]:
    """Number the combinations of values that occur, in order; return each row's number and what each stands for."""
    cell = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        places = _places(column)
        cell = _places(cell * (int(places.max(initial=0)) + 1) + places)
    # Any row of a cell says what it stands for.
    some_row = np.zeros(int(cell.max(initial=-1)) + 1, dtype=np.int64)
    some_row[cell] = np.arange(len(cell))
    return cell, [column[some_row] for column in columns]


def _places(column: Integers) -> Integers:
    """Each entry's place among the distinct values, in order."""
    first = int(column.min(initial=0))
    span = int(column.max(initial=0)) - first + 1
    if span > len(column):
        return np.unique(column, return_inverse=True)[1]
    # Few values, as labels and groups have: counting them is many times faster than sorting all rows.
    occurs = np.bincount(column - first, minlength=span) > 0
    return (np.cumsum(occurs) - 1)[column - first]
