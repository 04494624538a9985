"""Constraint rows where the data are spread: which slice means they need, and their values from sums that add up.

Every client numbers the same slices in the same order without seeing anybody's rows, so its sums over them can be
added to the others'.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from evenhand.arrays import Array, Booleans, Integers
from evenhand.constraints.measures import Measure, by_measure
from evenhand.constraints.slices import Slice, bounds_of
from evenhand.horizontal.problem import ClientRows
from evenhand.protocol.terms import HorizontalTerms


class SliceMeans:
    """The constraint rows of a run over everybody's rows, each linear in the means of a measure over slices.

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

    def __init__(self, terms: HorizontalTerms) -> None:
        self.terms = terms
        self.constraint_rows = terms.constraint_rows
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
        self.row_measures = by_measure(row.measure for row in self.constraint_rows)

    @property
    def names(self) -> list[str]:
        return [str(row) for row in self.constraint_rows]

    @cached_property
    def measures(self) -> dict[Measure, Integers]:
        """Which of the parts use which measure."""
        return by_measure(measure for measure, _ in self.parts)

    def membership(self, client: ClientRows) -> Booleans:
        """(n, P): which of the client's rows are in the slice of which part."""
        client = client.agreed(self.terms.groups)
        assert client.groups is not None
        inside = [part.inside(client.labels, client.groups) for _, part in self.parts]
        return np.array(inside, dtype=bool).reshape(len(self.parts), client.n_rows).T

    def values(self, sums: Array, counts: Array) -> Array:
        """a·g of each constraint row; not a number where one of its slices is empty."""
        means = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
        values: Array = self.coefficients @ means
        lacking = (self.coefficients != 0) @ (counts == 0)
        return np.where(lacking, np.nan, values)
