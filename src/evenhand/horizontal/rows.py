"""Constraint rows where the data are spread: which slices they need, and their values from sums that add up.

Every client numbers the same slices in the same order without seeing anybody's rows, so its sums over them can be
added to the others'.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from evenhand.arrays import Array, Booleans, Integers
from evenhand.constraints.binding import constraint_rows
from evenhand.constraints.kinds import Constraint
from evenhand.constraints.measures import Measure, by_measure
from evenhand.constraints.slices import ConstraintRow, Slice, bounds_of
from evenhand.errors import ConstraintError
from evenhand.horizontal.problem import Agreement, ClientRows


class AgreedRows:
    """The constraint rows of a run, each linear in the means of a measure over slices.

    Attributes
    ----------
    rows
        The R constraint rows.
    parts
        The P pairs (measure, slice) whose means the rows need.
    coefficients
        (R, P): row values are `coefficients @ means`.
    """

    def __init__(self, constraints: Sequence[Constraint], agreement: Agreement) -> None:
        self.agreement = agreement
        self.rows = constraint_rows(constraints, agreement.groups)
        for row in self.rows:
            self._check_classes(row)
        places: dict[tuple[Measure, Slice], int] = {}
        for row in self.rows:
            for _, part in row.terms:
                places.setdefault((row.measure, part), len(places))
        self.parts = tuple(places)
        self.coefficients: Array = np.zeros((len(self.rows), len(self.parts)))
        for index, row in enumerate(self.rows):
            for coefficient, part in row.terms:
                self.coefficients[index, places[row.measure, part]] += coefficient
        self.bounds = bounds_of(self.rows)
        self.row_measures = by_measure(row.measure for row in self.rows)

    def _check_classes(self, row: ConstraintRow) -> None:
        if self.agreement.classes is None:
            return
        if row.measure.name != "loss":
            raise ConstraintError(f"{row}: with more than two classes a row can only be of measure 'loss'")
        if any(part.label is not None for _, part in row.terms):
            raise ConstraintError(f"{row} names a label ±1, but the labels are class indices; use loss-parity")

    @property
    def names(self) -> list[str]:
        return [str(row) for row in self.rows]

    @cached_property
    def measures(self) -> dict[Measure, Integers]:
        """Which of the parts use which measure."""
        return by_measure(measure for measure, _ in self.parts)

    def membership(self, client: ClientRows) -> Booleans:
        """(n, P): which of the client's rows are in the slice of which part."""
        self.agreement.codes(client)
        assert client.groups is not None
        inside = [part.inside(client.labels, client.groups) for _, part in self.parts]
        return np.array(inside, dtype=bool).reshape(len(self.parts), client.rows).T

    def check_filled(self, counts: Array) -> None:
        """Refuse rows over a slice that no client has a row in."""
        for (_, part), count in zip(self.parts, counts, strict=True):
            if count == 0:
                raise ConstraintError(
                    f"slice [{part}] is empty: no client has a row in it; merge or drop that group, or choose another "
                    "constraint"
                )

    def values(self, sums: Array, counts: Array) -> Array:
        """a·g of each row; not a number where one of its slices is empty."""
        means = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
        values: Array = self.coefficients @ means
        lacking = (self.coefficients != 0) @ (counts == 0)
        return np.where(lacking, np.nan, values)
