"""Numbers as curves: piecewise-linear (or stepwise) functions of a number's rank among the training rows.

A standardised number enters a linear model as a straight line, which is wrong for money and counts: their effect
levels off, and their tails are long. A curve has a few segments of equal shares of rows; the model learns how far the
score rises over each. The party needs no message and no label for it. Beyond the training range a curve is constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, Self

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.data.tables.columns import (
    Bin,
    Block,
    EncodedColumn,
    FitRules,
    MissingMode,
    Shape,
    number_from_state,
    require,
    require_keys,
)
from evenhand.data.tables.raw import NUMBER, RawColumn
from evenhand.errors import DataError

MOST_SEGMENTS: Final = 4
ROWS_FOR_EACH_SEGMENT: Final = 50
"""A curve has a segment for so many rows, up to the maximum."""
ROWS_FOR_A_BEND: Final = 40
"""A curve has two segments from so many rows on: effects that turn are worth more than the variance of one bend."""
_GRID: Final = 128
"""Number of values, beside the lowest, that the ranks of all others are interpolated from."""
_NEAR: Final = 1e-3
"""A value has its share of the rows if it has at most this much more, relatively."""
_LISTS: Final = ("values", "ranks", "knots", "means")


@dataclass(frozen=True)
class CurveColumn(EncodedColumn):
    """A number with a feature for each segment between two knots.

    A curve's feature rises from 0 to 1 across its segment, linearly in the rank, and is centred at its mean over the
    training rows. Steps have a 0/1 feature for each segment instead. A missing value has zeros, and an indicator if
    fit saw missing values.

    Attributes
    ----------
    values, ranks
        A grid of training values, and the share of training rows below each (half of those equal to it count).
    knots
        Ranks at which segments begin and end.
    means
        Mean of each feature over the training rows; zeros for steps.
    steps
        Whether the features are steps.
    """

    name: str
    values: tuple[float, ...]
    ranks: tuple[float, ...]
    knots: tuple[float, ...]
    means: tuple[float, ...]
    steps: bool = False
    missing: MissingMode = "unseen"
    remarks: tuple[str, ...] = ()

    @classmethod
    def fit(cls, name: str, known: Array, missing: bool, rules: FitRules) -> Self | None:
        """Learn the curve from a column's known values; None if they take two values or fewer."""
        return cls.of_counts(name, *np.unique(known, return_counts=True), missing, rules)

    @classmethod
    def of_counts(cls, name: str, values: Array, counts: Integers, missing: bool, rules: FitRules) -> Self | None:
        """Learn the curve from different values in ascending order, and how many rows have each."""
        if len(values) <= 2:
            return None
        ranks = (np.cumsum(counts) - counts / 2) / counts.sum()
        knots = ranks[_knots(counts)]
        some = np.union1d(
            np.searchsorted(ranks, np.linspace(ranks[0], ranks[-1], _GRID + 1)).clip(max=len(ranks) - 1),
            np.searchsorted(ranks, knots),
        )
        steps = rules.numbers_of(name) == "bins"
        grid, below, ends = (tuple(map(float, one)) for one in (values[some], ranks[some], knots))
        column = cls(name, grid, below, ends, (0.0,) * (len(ends) - 1), steps, rules.mode(name, missing))
        means = tuple(float(np.average(one, weights=counts)) for one in column.rises(values))
        return column if steps else replace(column, means=means)

    @property
    def kind(self) -> str:
        return NUMBER

    @property
    def segments(self) -> int:
        return len(self.knots) - 1

    @property
    def bounds(self) -> tuple[float, ...]:
        """The values at the knots."""
        return tuple(map(float, np.interp(self.knots, self.ranks, self.values)))

    @property
    def widths(self) -> tuple[int, ...]:
        marks = (1,) if self.missing == "seen" else ()
        return (self.segments, *marks) if self.steps else (*(1,) * self.segments, *marks)

    def feature_names(self, as_is: bool) -> list[str]:
        ranges = [f"{self.name} {low:.6g} to {high:.6g}" for low, high in pairwise(self.bounds)]
        names = [self.name] if self.segments == 1 else ranges
        return [*names, *([f"{self.name} is missing"] if self.missing == "seen" else [])]

    def signs(self, direction: int) -> list[int]:
        if self.steps:
            raise DataError(
                f"monotone names {self.name!r}, which has bins: an order of bins is not a sign of weights; use numbers "
                '= "curves" for this column'
            )
        return [direction] * self.segments + [0] * (len(self.widths) - self.segments)

    def bins(self) -> list[Bin]:
        marks = 1 if self.missing == "seen" else 0
        units, width = np.eye(self.segments + marks), self.segments + marks
        if self.steps:
            ends = [(unit, unit) for unit in units[: self.segments]]
        else:
            # At a knot all segments below have risen, and none above.
            risen = np.tril(np.ones((self.segments + 1, self.segments)), -1) - self.means
            ends = list(pairwise(np.hstack([risen, np.zeros((self.segments + 1, width - self.segments))])))
        names = [f"from {low:.6g} to {high:.6g}" for low, high in pairwise(self.bounds)]
        found = [Bin(name, low, high) for name, (low, high) in zip(names, ends, strict=True)]
        return [*found, *(Bin("missing", unit, unit) for unit in units[self.segments :])]

    def shape(self, weights: Array) -> Shape:
        """Return what the column adds to the score, given the weights of its features."""
        *segments, last = [(float(one.low @ weights), float(one.high @ weights)) for one in self.bins()]
        missing = last[0] if self.missing == "seen" else None
        ends = segments if self.missing == "seen" else [*segments, last]
        shares = np.diff([0.0, *self.knots[1:-1], 1.0])
        return Shape(self.bounds, tuple(ends), tuple(map(float, shares)), missing)

    def band(self, covariance: Array) -> dict[str, Any]:
        """Return the standard errors of the shape's values, given the covariance of the features' weights."""

        def error(end: Any) -> float:
            return float(np.sqrt(max(float(end @ covariance @ end), 0.0)))

        told = [[error(one.low), error(one.high)] for one in self.bins()]
        missing = told.pop()[0] if self.missing == "seen" else None
        return {"ends": told, "missing": missing}

    def rises(self, numbers: Array) -> list[Array]:
        """Return how much of each segment lies below each number: 0, 1 or in between."""
        ranks = np.interp(numbers, self.values, self.ranks)
        return [np.clip((ranks - low) / (high - low), 0.0, 1.0) for low, high in pairwise(self.knots)]

    def encode(self, raw: RawColumn) -> list[Block]:
        if self.missing == "refused":
            raw.refuse_missing()
        blocks = self._blocks(raw)
        return [*blocks, np.where(raw.missing, 0, -1)] if self.missing == "seen" else blocks

    def _blocks(self, raw: RawColumn) -> list[Block]:
        if raw.kind is None:
            nothing = np.full(len(raw.series), -1) if self.steps else np.zeros(len(raw.series))
            return [nothing] * (1 if self.steps else self.segments)
        raw.require(self.kind)
        numbers = np.where(raw.missing, self.values[0], raw.numbers)
        if self.steps:
            # A value at a knot belongs to the segment above it; the last segment has both of its ends.
            ranks = np.interp(numbers, self.values, self.ranks)
            return [np.where(raw.missing, -1, np.searchsorted(self.knots[1:-1], ranks, side="right"))]
        rises = zip(self.rises(numbers), self.means, strict=True)
        return [np.where(raw.missing, 0.0, rise - mean) for rise, mean in rises]

    def to_state(self) -> dict[str, Any]:
        lists = {name: list(getattr(self, name)) for name in _LISTS}
        return {"name": self.name, "kind": self.kind, "missing": self.missing, "steps": self.steps, **lists}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], where: str) -> Self:
        """Read a column; refuse a state that an encoder could not have written."""
        require_keys(state, ("name", "kind", "missing", "steps", *_LISTS), where)
        require(isinstance(state["steps"], bool), f"{where}.steps", "true or false")
        lists = []
        for name in _LISTS:
            require(isinstance(state[name], list), f"{where}.{name}", "a list")
            lists.append(tuple(number_from_state(one, f"{where}.{name}") for one in state[name]))
        values, ranks, knots, means = lists
        for name, ordered in zip(_LISTS[:3], lists[:3], strict=True):
            rising = len(ordered) > 1 and all(low < high for low, high in pairwise(ordered))
            require(rising, f"{where}.{name}", "two or more numbers in ascending order")
        require(len(values) == len(ranks), f"{where}.ranks", "as long as its values")
        require(ranks[0] <= knots[0] and knots[-1] <= ranks[-1], f"{where}.knots", "within its ranks")
        require(len(means) == len(knots) - 1, f"{where}.means", "one number for each segment")
        return cls(state["name"], values, ranks, knots, means, state["steps"], state["missing"])


def _knots(counts: Integers) -> Integers:
    """Return the places of the knots among the values, given how many rows have each.

    Knots are values that occur: a segment inside a frequent value would be empty. A value that has more than its share
    of the rows, as zero often has, counts as one share, and the other knots spread over the other rows.
    """
    shares = counts.astype(np.float64)
    segments = _segments(shares.sum())
    while (most := shares.sum() / (segments + 1)) < (1.0 - _NEAR) * shares.max():
        shares = np.minimum(shares, most)
    frequent = counts > shares
    segments = min(segments, _segments(counts[~frequent].sum()) + int(np.count_nonzero(frequent)))
    if len(counts) <= segments + 1:
        return np.arange(len(counts))
    middles = np.cumsum(shares) - shares / 2
    wanted = np.linspace(middles[0], middles[-1], segments + 1)
    return np.unique(np.abs(middles[:, None] - wanted).argmin(axis=0))


def _segments(rows: float) -> int:
    """Return how many segments so many rows support."""
    return int(np.clip(rows // ROWS_FOR_EACH_SEGMENT, 1 + (rows >= ROWS_FOR_A_BEND), MOST_SEGMENTS))
