"""Bind constraints to labels and groups: multipliers then become one weight for each row of data.

So any learner that takes sample weights can take any constraint.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cached_property, wraps
from typing import Final, TypeAlias

import numpy as np
import pandas as pd

from evenhand.arrays import ALL, Array, Integers, Rows
from evenhand.constraints.groups import (
    PATTERNS,
    Groups,
    check_groups,
    crossed_name,
    group_codes,
    groups_frame,
    groups_of,
    with_crossing,
)
from evenhand.constraints.kinds import Constraint, Constraints, as_list
from evenhand.constraints.losses import Logistic, Loss, Measure, by_measure
from evenhand.constraints.proving import critical_value, mean_variance, rate_variance
from evenhand.constraints.slices import Inequality, Slice, bounds_of
from evenhand.errors import ConstraintError, DataError
from evenhand.printing import quoted

Resolve: TypeAlias = Callable[..., tuple[Inequality, ...]]
_MOST_REMEMBERED: Final = 64


class SliceWeights:
    """What each row of data weighs in each inequality.

    Parameters
    ----------
    weights
        (R, strata): the weight of one row of data of each stratum in each of the R inequalities.
    measures
        Which inequalities average which measure.
    stratum
        The stratum of each row of data. None makes each row of data a stratum of its own, so that `weights` is (R, n).
    sample_weight
        How many people each row of data stands for; None means one.
    """

    def __init__(
        self,
        weights: Array,
        measures: dict[Measure, Integers],
        stratum: Integers | None = None,
        sample_weight: Array | None = None,
    ) -> None:
        self.weights, self.measures, self.sample_weight = weights, measures, sample_weight
        self._stratum = stratum

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def stratum(self) -> Integers:
        return np.arange(self.weights.shape[1]) if self._stratum is None else self._stratum

    @cached_property
    def _of_measure(self) -> dict[Measure, Array]:
        # A measure of all inequalities needs no copy of their weights.
        every = len(self.weights)
        return {one: self.weights if len(rows) == every else self.weights[rows] for one, rows in self.measures.items()}

    def of_measure(self, measure: Measure) -> Array:
        """Return the weights of the inequalities that average this measure."""
        return self._of_measure[measure]

    def means(self, measure: Measure, measured: Array) -> Array:
        """Return the values of a measure's inequalities, from the measure on each row of data."""
        return self.of_measure(measure) @ self.stratum_sums(measured)

    def stratum_sums(self, values: Array) -> Array:
        """Sum weighted values over each stratum."""
        if self._stratum is None:
            return self.weighted(values)
        sums = np.bincount(self._stratum, weights=self.weighted(values), minlength=self.weights.shape[1])
        return sums.astype(np.float64, copy=False)

    def weighted(self, values: Array, some: Rows = ALL) -> Array:
        """Multiply values of these rows of data by the rows' sample weights."""
        return values if self.sample_weight is None else values * self.sample_weight[some]

    @cached_property
    def largest_sample_weight(self) -> Array:
        """The largest sample weight in each stratum."""
        if self.sample_weight is None:
            return np.ones(self.weights.shape[1])
        most = np.zeros(self.weights.shape[1])
        np.maximum.at(most, self.stratum, self.sample_weight)
        return most

    @property
    def grain(self) -> Array:
        """The most that one row of data weighs in each inequality."""
        return (np.abs(self.weights) * self.largest_sample_weight).max(axis=1, initial=0.0)

    def tilt(self, net: Array, measure: Measure, some: Rows = ALL) -> Array:
        """Return Σ_r net_r a_ri over the measure's inequalities: what multipliers add to each row's weight."""
        by_stratum: Array = net[self.measures[measure]] @ self.of_measure(measure)
        return self.weighted(by_stratum[some if self._stratum is None else self._stratum[some]], some)

    def reported(self, labels: Array, scores: Array, loss: Loss | None = None) -> tuple[Array, Array]:
        """Return each inequality's value as one would report it, and its standard error.

        Rates are exact, not smooth; a mean loss or prediction is itself. Standard errors are for given sizes of the
        slices.
        """
        values, errors = np.zeros((2, len(self)))
        for measure, places in self.measures.items():
            measured = measure.reported(loss or Logistic(), scores, labels)
            values[places] = self.means(measure, measured)
            one = np.ones_like(measured)
            sums = [self.stratum_sums(values) for values in (one, measured, measured**2, self.weighted(one))]
            for place in places:
                # Rows of equal weight form a part. Parts are disjoint even where the slices are not.
                weight, part = np.unique(self.weights[place], return_inverse=True)
                size, hits, squared, squared_size = (np.bincount(part, weights=one) for one in sums)
                # Sample weights add no evidence: use Kish's effective number of rows.
                effective = np.divide(size, squared_size, out=np.ones_like(size), where=squared_size > 0.0)
                rows, hits, squared = size * effective, hits * effective, squared * effective
                variance = rate_variance(hits, rows) if measure.is_rate else mean_variance(hits, squared, rows)
                inside = weight != 0
                errors[place] = np.sqrt(np.sum((weight * size)[inside] ** 2 * variance[inside]))
        return values, errors


class BoundConstraints(SliceWeights):
    """Inequalities on given data.

    Rows of data that share label and groups form a *stratum*. Slices are then a small matrix over strata, and only one
    sum and one look-up pass over all n rows of data.

    Parameters
    ----------
    rows
        The R inequalities.
    stratum
        The stratum of each row of data.
    weights
        (R, strata): a_s / |s|, summed over the slices that the stratum is in.
    sample_weight
        How many people each row of data stands for; None means one. A weight of two equals two copies of the row.

    Attributes
    ----------
    bounds
        Lower and upper bounds of the inequalities.
    """

    def __init__(
        self, rows: tuple[Inequality, ...], stratum: Integers, weights: Array, sample_weight: Array | None = None
    ) -> None:
        super().__init__(weights, by_measure(row.measure for row in rows), stratum, sample_weight)
        self.rows = rows
        self.bounds = bounds_of(rows)

    def with_inequalities(self, rows: tuple[Inequality, ...]) -> BoundConstraints:
        """Replace the rows by rows over the same slices with other bounds or temperatures."""
        return BoundConstraints(rows, self.stratum, self.weights, self.sample_weight)

    @cached_property
    def names(self) -> list[str]:
        return [str(row) for row in self.rows]

    @property
    def total_weight(self) -> float:
        """The sum of sample weights: how many people the rows of data stand for."""
        return float(len(self.stratum) if self.sample_weight is None else self.sample_weight.sum())


def bind(
    constraints: Constraints, labels: Array, sensitive: pd.DataFrame | None = None, cut: float = 0.0
) -> BoundConstraints:
    """Bind constraints to labels (±1) and the groups that occur, with rates at a cut; refuse empty slices by name."""
    labels = _numbers(labels)
    frame, groups = compared_groups(constraints, labels, groups_frame(sensitive, len(labels)))
    return bind_inequalities(inequalities(constraints, groups, cut), groups, labels, frame)


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
    """Return the attributes' columns and groups that constraints compare, with a crossing if one asks for it.

    Combinations without rows in a compared slice are left out of the crossing. Their rows still count in the groups of
    each single attribute.

    Parameters
    ----------
    groups
        Agreed values of the attributes; None takes those that occur. A crossing without agreed values takes those of
        the rows.
    """
    groups = groups_of(frame) if groups is None else groups
    if not any(constraint.crosses for constraint in as_list(constraints)):
        return frame, groups
    frame = with_crossing(frame)
    name = crossed_name(frame.columns)
    if name is None or name in groups:
        return frame, groups
    groups = {**groups, **groups_of(frame[[name]])}
    parts = {part for row in inequalities(constraints, groups) for _, part in row.terms if part.attribute == name}
    empty = {part.group for part in parts if not part.inside(labels, frame).any()}
    return frame, {**groups, name: tuple(value for value in groups[name] if value not in empty)}


def _remembered(resolve: Resolve) -> Resolve:
    """Remember results by constraints and groups: all participants of a run resolve the same ones.

    Groups count with their types, because 1, 1.0 and True are equal but differ in words.
    """
    known: dict[Hashable, tuple[Inequality, ...]] = {}

    @wraps(resolve)
    def recall(constraints: Constraints, groups: Groups, cut: float = 0.0) -> tuple[Inequality, ...]:
        typed = tuple((name, *((type(value), value) for value in values)) for name, values in groups.items())
        wanted = tuple(as_list(constraints))
        try:
            found = known.get(asked := (wanted, typed, cut))
        except TypeError:
            # A user's own kind of constraint need not be hashable.
            return resolve(wanted, groups, cut)
        if found is None:
            found = resolve(wanted, groups, cut)
            if len(known) >= _MOST_REMEMBERED:
                known.clear()
            known[asked] = found
        return found

    return recall


@_remembered
def inequalities(constraints: Constraints, groups: Groups, cut: float = 0.0) -> tuple[Inequality, ...]:
    """Return the rows of all constraints, when the sensitive attributes take these values.

    Only constraints that ask for the crossing see it. Rates are those of decisions at the cut.
    """
    wanted = as_list(constraints)
    check_groups(groups)
    ungrouped = [
        constraint.kind for constraint in wanted if constraint.compares_groups and not set(groups) - {PATTERNS}
    ]
    if ungrouped:
        raise DataError(f"constraint {ungrouped[0]} compares groups: give sensitive_features")
    crossing = crossed_name(groups)
    crossed = [constraint.kind for constraint in wanted if constraint.crosses]
    if crossed and crossing is None:
        raise ConstraintError(f"constraint {crossed[0]} has cross=True, without a crossing of {', '.join(groups)}")
    patterns = [str(one) for one in groups.get(PATTERNS, ())]
    if not patterns and (split := [one.kind for one in wanted if one.splits_patterns]):
        raise ConstraintError(
            f"constraint {split[0]} has by_presence=True, but nobody says which parties have which rows; train with "
            'ids = "left" or "private-left"'
        )
    attributes = {name: values for name, values in groups.items() if name != PATTERNS}
    plain = {name: values for name, values in attributes.items() if not crossed or name != crossing}
    rows = tuple(row for one in wanted for row in _rows(one, attributes if one.crosses else plain, patterns))
    return tuple(_at(row, cut) for row in rows) if cut else rows


def _at(row: Inequality, cut: float) -> Inequality:
    """Return an inequality with rates at a cut; other means have none."""
    return row if not row.measure.is_rate else replace(row, measure=replace(row.measure, cut=cut))


def _rows(constraint: Constraint, groups: Groups, patterns: Sequence[str]) -> list[Inequality]:
    """Return one constraint's rows; a confidence holds for all of them at once."""
    rows = constraint.inequalities(groups)
    if constraint.splits_patterns:
        rows = [row.within(pattern) for pattern in patterns for row in rows]
    if constraint.level is None:
        return rows
    reach = critical_value(constraint.level, len(rows))
    return [replace(row, reach=reach) for row in rows]


def bind_inequalities(
    rows: Sequence[Inequality],
    groups: Groups,
    labels: Array,
    sensitive: pd.DataFrame,
    sample_weight: Array | None = None,
) -> BoundConstraints:
    """Bind inequalities to labels (±1) and to groups with agreed values.

    Attributes that no inequality names form no strata, so that they cannot change a result.
    """
    named = {name for row in rows for name in row.columns}
    known = {name: codes for name, codes in group_codes(sensitive, groups).items() if name in named}
    # Targets that are numbers form no strata: no slice names one.
    by_label = any(part.label is not None for row in rows for _, part in row.terms) or np.isin(labels, (-1, 1)).all()
    kept = labels.astype(np.int64) if by_label else np.zeros(len(labels), dtype=np.int64)
    stratum, (label, *codes) = strata([kept, *known.values()])
    # Code -1, of crossings that are left out, takes the last entry: None.
    values = {
        name: np.array([*groups[name], None], dtype=object)[code] for name, code in zip(known, codes, strict=True)
    }
    stratum_labels = label.astype(np.float64)
    sizes = np.bincount(stratum, weights=sample_weight, minlength=len(label))
    weights = np.zeros((len(rows), len(label)))
    for index, row in enumerate(rows):
        for coefficient, part in row.terms:
            inside = part.inside(stratum_labels, values)
            count = sizes[inside].sum()
            if count == 0:
                raise empty_slice(part, row, len(labels))
            weights[index, inside] += coefficient / count
    return BoundConstraints(tuple(rows), stratum, weights, sample_weight)


def empty_slice(part: Slice, row: Inequality, n_rows: int) -> ConstraintError:
    """Return the error about an inequality over a slice without rows."""
    return ConstraintError(
        f"slice [{part}] is empty: no row of the {n_rows} has it, so {row} has no meaning; "
        "merge or drop that group, or choose another constraint"
    )


def strata(columns: Sequence[Integers]) -> tuple[Integers, list[Integers]]:
    """Number the combinations of values that occur, in order; return each row's number and each stratum's values."""
    stratum = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        places = _places(column)
        stratum = _places(stratum * (int(places.max(initial=0)) + 1) + places)
    # All rows of a stratum have the same values, so any of them will do.
    some_row = np.zeros(int(stratum.max(initial=-1)) + 1, dtype=np.int64)
    some_row[stratum] = np.arange(len(stratum))
    return stratum, [column[some_row] for column in columns]


def _places(column: Integers) -> Integers:
    """Return each entry's place among the sorted distinct values."""
    first = int(column.min(initial=0))
    span = int(column.max(initial=0)) - first + 1
    if span > len(column):
        return np.unique(column, return_inverse=True)[1]
    # Labels and groups have few values: counting is many times faster than sorting.
    occurs = np.bincount(column - first, minlength=span) > 0
    return (np.cumsum(occurs) - 1)[column - first]
