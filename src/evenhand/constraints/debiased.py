"""The Lagrangian over randomised responses: an unbiased estimate of the one over true labels and groups.

The Lagrangian is linear in the weight of each row of data. So every row occurs twice, as a positive and as a negative,
with the weight that its answer has for that label (`responses.py`). Slices count answers in the same way. With the
logistic loss the sum of a row's two parts is convex, since the curvature does not depend on the label.

    f̃(z, λ) = f₊(z, λ) + f₋(z, λ),    E f̃ = f up to the sizes of slices, which are estimated, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import pandas as pd

from evenhand.arrays import ALL, Array, Integers, Rows
from evenhand.constraints.binding import BoundConstraints, strata
from evenhand.constraints.evaluation import Lagrangian, Point, TiltedSums
from evenhand.constraints.groups import Groups, group_codes
from evenhand.constraints.losses import Loss
from evenhand.constraints.responses import ResponseMechanism
from evenhand.constraints.slices import Inequality, Slice
from evenhand.errors import ConstraintError

LEAST_SURE = 3.0
"""How many standard errors of a slice's estimated size it must have: with fewer, its mean is a quotient of noise."""


class DebiasedLagrangian(Lagrangian):
    """The sum of two Lagrangians: all rows as positives, and all rows as negatives.

    Attributes
    ----------
    constraints
        Inequalities with the sum of both parts' weights, which does not depend on true labels.
    """

    def __init__(self, positive: Lagrangian, negative: Lagrangian) -> None:
        rows, other = positive.constraints, negative.constraints
        both = BoundConstraints(rows.rows, rows.stratum, rows.weights + other.weights)
        super().__init__(positive.labels, both, positive.loss)
        self.parts = (positive, negative)

    @property
    def positives(self) -> float:
        """The estimated number of positives."""
        return float(len(self.labels) * self.parts[0].shared(np.ones(len(self.labels))).sum())

    def with_constraints(self, constraints: BoundConstraints) -> DebiasedLagrangian:
        positive, negative = (
            part.with_constraints(part.constraints.with_inequalities(constraints.rows)) for part in self.parts
        )
        return DebiasedLagrangian(positive, negative)

    def at(self, scores: Array) -> DebiasedPoint:
        return DebiasedPoint(self, scores)

    def losses(self, scores: Array, some: Rows = ALL) -> Array:
        return sum(part.losses(scores, some) for part in self.parts)  # type: ignore[return-value]

    def curvature_limit(self, multipliers: Array) -> float:
        # At worst the tilts of both parts add up; the loss counts once.
        size = len(self.labels)
        limit = sum(part.curvature_limit(multipliers) for part in self.parts)
        return limit - sum(size * self._own_limit(part) for part in self.parts) + self.loss.curvature_bound

    def _own_limit(self, part: Lagrangian) -> float:
        return self.loss.curvature_bound * float(part.shared(np.ones(len(self.labels))).max())

    def coupling_limit(self) -> float:
        return sum(part.coupling_limit() for part in self.parts)


class DebiasedPoint(Point):
    """Both parts of a debiased Lagrangian at the same scores."""

    def __init__(self, lagrangian: DebiasedLagrangian, scores: Array) -> None:
        super().__init__(lagrangian, scores)
        self._positive, self._negative = (part.at(scores) for part in lagrangian.parts)

    @cached_property
    def loss(self) -> float:
        return self._positive.loss + self._negative.loss

    @cached_property
    def values(self) -> Array:
        return self._positive.values + self._negative.values

    @cached_property
    def exact(self) -> Array:
        """Estimates of the exact rates."""
        return self._positive.exact + self._negative.exact

    def derivative(self, multipliers: Array) -> Array:
        return self._positive.derivative(multipliers) + self._negative.derivative(multipliers)

    def curvature(self, multipliers: Array, some: Rows = ALL) -> Array:
        return self._positive.curvature(multipliers, some) + self._negative.curvature(multipliers, some)

    def loss_curvature(self, some: Rows = ALL) -> Array:
        return self._positive.loss_curvature(some) + self._negative.loss_curvature(some)

    def jacobian(self, sums: TiltedSums, width: int) -> Array:
        return self._positive.jacobian(sums, width) + self._negative.jacobian(sums, width)


def debiased(
    rows: Sequence[Inequality],
    groups: Groups,
    labels: Array,
    sensitive: pd.DataFrame,
    loss: Loss,
    of_labels: ResponseMechanism,
    of_groups: Mapping[str, ResponseMechanism],
) -> DebiasedLagrangian:
    """Bind inequalities to randomised responses about labels (±1) and about the groups of named attributes."""
    stratum, (label, *codes) = strata([labels.astype(np.int64), *group_codes(sensitive, groups).values()])
    found = dict(zip(groups, codes, strict=True))
    sizes = np.bincount(stratum, minlength=len(label)).astype(np.float64)
    parts: list[tuple[int, Array]] = [
        (sign, np.where(label == sign, of_labels.counts, of_labels.counts_against)) for sign in (1, -1)
    ]

    def inside(part: Slice, sign: int, said: Array) -> Array:
        """Return what a row of each stratum counts in a slice, taken as one of that label."""
        if part.label not in (None, sign):
            return np.zeros(len(label))
        here: Array = said * _in_group(part, groups, found, of_groups)
        return here

    weights = [np.zeros((len(rows), len(label))) for _ in parts]
    for index, row in enumerate(rows):
        for coefficient, part in row.terms:
            counted = [inside(part, sign, said) for sign, said in parts]
            size = _size(part, sum(counted), sizes)
            for place, one in enumerate(counted):
                weights[place][index] += coefficient * one / size
    halves = [
        Lagrangian(
            np.full(len(labels), float(sign)),
            BoundConstraints(tuple(rows), stratum, weights[place]),
            loss,
            said[stratum] / len(labels),
        )
        for place, (sign, said) in enumerate(parts)
    ]
    return DebiasedLagrangian(*halves)


def _in_group(
    part: Slice, groups: Groups, codes: Mapping[str, Integers], of_groups: Mapping[str, ResponseMechanism]
) -> Array:
    if part.attribute is None:
        return np.ones(1)
    same = codes[part.attribute] == list(groups[part.attribute]).index(part.group)
    response = of_groups.get(part.attribute)
    if response is None:
        return same.astype(np.float64)
    return np.where(same, response.counts, response.counts_against)


def _size(part: Slice, each: Array | int, sizes: Array) -> float:
    """Estimate the number of rows in a slice; refuse slices that are too small to estimate."""
    size = float((each * sizes).sum())
    # Answers are independent; in expectation a row in the slice counts one, and any other row zero.
    error = float(np.sqrt(max((each**2 * sizes).sum() - size, 0.0)))
    if size <= LEAST_SURE * error:
        raise ConstraintError(
            f"slice [{part}] has about {max(size, 0.0):.0f} rows, as estimated from randomised responses, give or take "
            f"{error:.0f}: too few to constrain anything. Raise epsilon, merge groups, or choose another constraint"
        )
    return size
