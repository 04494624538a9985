"""Sample rows of data to compute curvature: it is the most expensive sum, and Newton steps need it only roughly.

Values, slopes and certificates always use all rows. Rows are drawn from each stratum (label and groups) separately, and
small strata are taken almost whole: a slice of fifteen rows may carry all the curvature of a tight constraint.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.programs.combining.columns import Columns, SampledColumns

FOR_EACH_COLUMN = 200
"""Rows in a sample for each column: a step then leaves about a fiftieth of what there was to gain."""
FROM_EACH_STRATUM = 1000
"""Rows that are taken of a stratum in any case, if it has them."""


class RowSample(NamedTuple):
    """Sampled rows of data in order, and how many rows each stands for."""

    rows: Integers
    stands_for: Array

    def of(self, columns: Columns) -> SampledColumns:
        return SampledColumns(columns.some(self.rows), self.rows, self.stands_for)


def draw_sample(stratum: Integers, columns: int) -> RowSample | None:
    """Draw a sample for curvature over so many columns; None if it would be at least half of all rows."""
    wanted = FOR_EACH_COLUMN * columns
    sizes = np.bincount(stratum)
    counts = np.minimum(sizes, np.maximum(FROM_EACH_STRATUM, -(-wanted * sizes // len(stratum))))
    if 2 * counts.sum() > len(stratum):
        return None
    random, ends = np.random.default_rng(0), np.cumsum(sizes)
    order = np.argsort(stratum.astype(np.min_scalar_type(len(sizes))), kind="stable")
    drawn = [
        order[end - size + random.choice(size, count, replace=False, shuffle=False)]
        for end, size, count in zip(ends, sizes, counts, strict=True)
    ]
    rows = np.sort(np.concatenate(drawn))
    return RowSample(rows, (sizes / np.maximum(counts, 1))[stratum[rows]])
