"""Curves across clients: counts of values between agreed edges, which add up, in place of the values themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.data.tables.columns import FitRules
from evenhand.data.tables.curve_columns import CurveColumn
from evenhand.data.tables.numeric_columns import NumericColumn, NumericSummary
from evenhand.errors import DataError

_STEPS: Final = 96
_FINEST: Final = 1e-5
"""Distances of edges from a column's ends and mean: so many, from this share of the range up to all of it."""


def edges_of(summary: NumericSummary, column: NumericColumn) -> list[float]:
    """Return edges that are dense where values may be: near both ends of the range, and near the mean.

    Amounts gather at the lower end and most other columns around the mean; the tails need few edges.
    """
    low, high, width = summary.low, summary.high, summary.high - summary.low
    if not (math.isfinite(width) and width > 0.0):
        return []
    away = np.geomspace(_FINEST, 1.0, _STEPS)
    near = away * column.scale * 4.0
    inside = np.concatenate([low + width * away, high - width * away, column.mean - near, column.mean + near])
    inside = inside[(inside > low) & (inside < high)]
    found: list[float] = np.unique(np.concatenate([[low], inside, [high]])).tolist()
    return found


def checked_edges(given: Any, name: str) -> Array:
    """Read the edges that the server sent."""
    numbers = given if isinstance(given, list) and all(type(one) in (int, float) for one in given) else [0.0]
    if len(numbers) < 2 or not all(low < high for low, high in pairwise(numbers)) or not np.isfinite(numbers).all():
        raise DataError(f"the edges of column {name!r} are not two or more finite numbers in ascending order")
    return np.array(numbers, dtype=np.float64)


def count(numbers: Array, edges: Array) -> dict[str, int]:
    """Return the number of values between two edges, by the place of the lower one, where there are any."""
    places, counts = np.unique(np.searchsorted(edges[1:-1], numbers, side="right"), return_counts=True)
    return {str(place): int(number) for place, number in zip(places, counts, strict=True)}


def added(told: Mapping[str, Any], name: str, edges: Array) -> Integers:
    """Add the clients' counts of a column; refuse counts that nobody could have made."""
    total = np.zeros(len(edges) - 1, dtype=np.int64)
    for owner, counts in told.items():
        for place, number in counts.get(name, {}).items() if isinstance(counts, dict) else ():
            if not (place.isdecimal() and int(place) < len(total) and type(number) is int and 0 < number < 2**50):
                raise DataError(f"client {owner!r}: the counts of column {name!r} are not counts between its edges")
            total[int(place)] += number
    return total


def curve(column: NumericColumn, edges: Array, counts: Integers, rules: FitRules) -> CurveColumn | None:
    """Return the curve of all clients' rows; None if they take two values or fewer."""
    held = counts > 0
    # The lower edges: a value that many rows have must not lie below its own knot.
    return CurveColumn.of_counts(column.name, edges[:-1][held], counts[held], column.missing == "seen", rules)
