"""Values of inequalities from sums over slices, which each holder of data can report and a server can add up.

A *part* is a pair of a measure and a slice. All participants number the parts of the inequalities alike, without
seeing any rows of data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Booleans, Integers
from evenhand.constraints.losses import Loss, Measure, by_measure
from evenhand.constraints.proving import mean_variance, rate_variance
from evenhand.constraints.slices import Inequality, Slice, bounds_of


class PartSums(NamedTuple):
    """Number of rows in each part, and sums over them of the exact measure, its square, and the smooth measure."""

    counts: Array
    sums: Array
    squares: Array
    smooth: Array


NO_SUMS: Final = PartSums(np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0))


class InequalityParts:
    """Inequalities, each linear in the means of a measure over slices.

    Attributes
    ----------
    inequalities
        The R inequalities.
    parts
        The P pairs (measure, slice); the inequalities need their means.
    coefficients
        (R, P): values are `coefficients @ means`.
    bounds
        Bounds of the inequalities.
    """

    def __init__(self, rows: Sequence[Inequality]) -> None:
        self.inequalities = tuple(rows)
        places: dict[tuple[Measure, Slice], int] = {}
        for row in self.inequalities:
            for _, part in row.terms:
                places.setdefault((row.measure, part), len(places))
        self.parts = tuple(places)
        self.coefficients: Array = np.zeros((len(self.inequalities), len(self.parts)))
        for index, row in enumerate(self.inequalities):
            for coefficient, part in row.terms:
                self.coefficients[index, places[row.measure, part]] += coefficient
        self.bounds = bounds_of(self.inequalities)

    def tempered(self, factor: float) -> InequalityParts:
        """Return the same parts, with temperatures of smooth rates times a factor."""
        return InequalityParts([replace(row, measure=row.measure.tempered(factor)) for row in self.inequalities])

    @property
    def names(self) -> list[str]:
        return [str(row) for row in self.inequalities]

    @cached_property
    def measures(self) -> dict[Measure, Integers]:
        """Which parts use which measure."""
        return by_measure(measure for measure, _ in self.parts)

    def inside(self, labels: Array, groups: pd.DataFrame | Mapping[str, Any]) -> Booleans:
        """Return (n, P): which rows of data are in the slice of which part."""
        found = [part.inside(labels, groups) for _, part in self.parts]
        return np.array(found, dtype=bool).reshape(len(self.parts), len(labels)).T

    def sums(self, inside: Booleans, scores: Array, labels: Array, loss: Loss) -> PartSums:
        """Sum measures at these scores over the parts."""
        found = np.zeros((3, len(self.parts)))
        for measure, parts in self.measures.items():
            smooth = measure.value_and_derivative(loss, scores, labels)[0]
            value = measure.reported(loss, scores, labels) if measure.is_rate else smooth
            found[:, parts] = np.stack([value, value**2, smooth]) @ inside[:, parts]
        return PartSums(inside.sum(axis=0).astype(np.float64), *found)

    def values(self, sums: Array, counts: Array) -> Array:
        """Return the value of each inequality; NaN if one of its slices is empty."""
        means = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
        values: Array = self.coefficients @ means
        if not counts.all():
            values[(self.coefficients != 0) @ (counts == 0)] = np.nan
        return values

    def errors(self, told: PartSums) -> Array:
        """Return standard errors of the inequalities' values.

        Overlapping slices of one row (a group, and all rows) are treated as disjoint, which overestimates.
        """
        of_rate = np.array([measure.is_rate for measure, _ in self.parts], dtype=bool)
        of_mean = mean_variance(told.sums, told.squares, told.counts)
        variance = np.where(of_rate, rate_variance(told.sums, told.counts), of_mean)
        # Skip slices that a row does not use: their variance may be infinite.
        squares = self.coefficients**2
        return np.sqrt(np.where(squares > 0.0, squares * np.where(squares > 0.0, variance, 0.0), 0.0).sum(axis=1))

    def surprise(self, inside: Booleans, measured: Array, counts: Array, means: Array) -> Array:
        """Return (n, R): what each row of data adds to each inequality beyond the means of its slices.

        Parameters
        ----------
        measured
            (R, n): the inequalities' smooth measures on the rows of data.
        counts, means
            Number of rows of data in each part, and means of the smooth measures over them.
        """
        each = self.coefficients / np.maximum(counts, 1.0)
        return (inside @ each.T) * measured.T - inside @ (each * means).T

    def grain(self, counts: Array) -> Array:
        """Return the most that one row of data weighs in each inequality."""
        each = np.abs(self.coefficients) / np.maximum(counts, 1.0)
        return each.max(axis=1, initial=0.0)
