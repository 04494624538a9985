"""A sample of the rows of data, for curvature: Newton's steps need it roughly, and it is the dearest thing to add up.

Values, slopes and certificates are always those of all rows. Rows are drawn from each cell (label and groups) apart,
never few of a small one: a slice of fifteen people may carry all the curvature of a tight constraint.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.programs.combining.columns import Columns, SampledColumns

FOR_EACH_COLUMN = 200
"""Rows in a sample for each column: a step then leaves about a fiftieth of what there was to gain."""
FROM_EACH_CELL = 1000
"""Rows that are taken of a cell in any case, if it has them."""


class RowSample(NamedTuple):
    """Rows of data in order, and how many each of them stands for."""

    rows: Integers
    stands_for: Array

    def of(self, columns: Columns) -> SampledColumns:
        return SampledColumns(columns.some(self.rows), self.rows, self.stands_for)


def draw_sample(cell: Integers, columns: int) -> RowSample | None:
    """For curvature over so many columns; None where a sample would be no smaller than half of all rows."""
    wanted = FOR_EACH_COLUMN * columns
    sizes = np.bincount(cell)
    counts = np.minimum(sizes, np.maximum(FROM_EACH_CELL, -(-wanted * sizes // len(cell))))
    if 2 * counts.sum() > len(cell):
        return None
    random, ends = np.random.default_rng(0), np.cumsum(sizes)
    order = np.argsort(cell.astype(np.min_scalar_type(len(sizes))), kind="stable")
    drawn = [
        order[end - size + random.choice(size, count, replace=False, shuffle=False)]
        for end, size, count in zip(ends, sizes, counts, strict=True)
    ]
    rows = np.sort(np.concatenate(drawn))
    return RowSample(rows, (sizes / np.maximum(counts, 1))[cell[rows]])
