"""Constraint rows from sums over slices: what holders of rows of data can each say, and everybody can add up.

Whoever has the constraint rows numbers the same parts, pairs of a measure and a slice, in the same order, without
seeing anybody's rows of data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Booleans, Integers
from evenhand.constraints.confidence import mean_variance, rate_variance
from evenhand.constraints.losses import Loss
from evenhand.constraints.measures import Measure, by_measure
from evenhand.constraints.slices import ConstraintRow, Slice, bounds_of


class PartSums(NamedTuple):
    """Of each part: how many rows of data, sums over them of the exact measure and of its square, and of the smooth."""

    counts: Array
    sums: Array
    squares: Array
    smooth: Array


NO_SUMS: Final = PartSums(np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0))


class RowParts:
    """Constraint rows, each linear in the means of a measure over slices.

    Attributes
    ----------
    constraint_rows
        The R constraint rows.
    parts
        The P pairs (measure, slice) whose means they need.
    coefficients
        (R, P): values are `coefficients @ means`.
    bounds
        Of the constraint rows.
    """

    def __init__(self, rows: Sequence[ConstraintRow]) -> None:
        self.constraint_rows = tuple(rows)
        places: dict[tuple[Measure, Slice], int] = {}
        for row in self.constraint_rows:
            for _, part in row.terms:
                places.setdefault((row.measure, part), len(places))
        self.parts = tuple(places)
        self.coefficients: Array = np.zeros((len(self.constraint_rows), len(self.parts)))
        for index, row in enumerate(self.constraint_rows):
            for coefficient, part in row.terms:
                self.coefficients[index, places[row.measure, part]] += coefficient
        self.bounds = bounds_of(self.constraint_rows)

    @property
    def names(self) -> list[str]:
        return [str(row) for row in self.constraint_rows]

    @cached_property
    def measures(self) -> dict[Measure, Integers]:
        """Which of the parts use which measure."""
        return by_measure(measure for measure, _ in self.parts)

    def inside(self, labels: Array, groups: pd.DataFrame | Mapping[str, Any]) -> Booleans:
        """(n, P): which rows of data are in the slice of which part."""
        found = [part.inside(labels, groups) for _, part in self.parts]
        return np.array(found, dtype=bool).reshape(len(self.parts), len(labels)).T

    def sums(self, inside: Booleans, scores: Array, labels: Array, loss: Loss) -> PartSums:
        """Measures at these scores, summed over the parts: people are counted, losses added up."""
        found = np.zeros((3, len(self.parts)))
        for measure, parts in self.measures.items():
            smooth = measure.value_and_derivative(loss, scores, labels)[0]
            value: Array = smooth if measure.name == "loss" else measure.exact(scores, labels).astype(np.float64)
            found[:, parts] = np.stack([value, value**2, smooth]) @ inside[:, parts]
        return PartSums(inside.sum(axis=0).astype(np.float64), *found)

    def values(self, sums: Array, counts: Array) -> Array:
        """a·g of each constraint row; not a number where one of its slices is empty."""
        means = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
        values: Array = self.coefficients @ means
        if not counts.all():
            values[(self.coefficients != 0) @ (counts == 0)] = np.nan
        return values

    def errors(self, told: PartSums) -> Array:
        """Standard errors of the constraint rows' values.

        Slices of one row that overlap (a group, and everybody) are taken for disjoint, which errs to the safe side.
        """
        of_loss = np.array([measure.name == "loss" for measure, _ in self.parts], dtype=bool)
        of_mean = mean_variance(told.sums, told.squares, told.counts)
        variance = np.where(of_loss, of_mean, rate_variance(told.sums, told.counts))
        # A slice that a row does not look at says nothing, however small it is.
        squares = self.coefficients**2
        return np.sqrt(np.where(squares > 0.0, squares * np.where(squares > 0.0, variance, 0.0), 0.0).sum(axis=1))

    def surprise(self, inside: Booleans, measured: Array, counts: Array, means: Array) -> Array:
        """(n, R): what each row of data adds to each constraint row beyond the means of its slices.

        Parameters
        ----------
        measured
            (R, n): the constraint rows' smooth measures on the rows of data.
        counts, means
            Of the parts: how many rows of data there are, and the means of the smooth measures over them.
        """
        each = self.coefficients / np.maximum(counts, 1.0)
        return (inside @ each.T) * measured.T - inside @ (each * means).T

    def grain(self, counts: Array) -> Array:
        """What one row of data at most weighs in each constraint row."""
        each = np.abs(self.coefficients) / np.maximum(counts, 1.0)
        return each.max(axis=1, initial=0.0)
