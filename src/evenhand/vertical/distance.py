"""Bound or estimate the distance of a linear model from the optimum, from numbers that its parties send anyway.

By weak duality the minimum of the Lagrangian L(·, λ) is never above the constrained optimum F*. Where L is μ-strongly
convex, that minimum is at most ‖∇L‖²/(2μ) below its present value, and so

    (F − F*) / F  ≤  (Σ_k ‖∇_k L‖² / (2μ) + Σ λ · slack) / F.

Constraints on losses keep L convex as long as no tilted weight 1 + n·tilt_i of a data row is negative. Then this is a
*bound*. The intercept is not regularised; its slope is counted like that of a weight, which overstates it by far.
Otherwise, and for rates, which are not convex, it is an *estimate* of the distance from the point that the run
approaches. Without a regulariser there is neither.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.lagrangian import Lagrangian, Point


class Distance(NamedTuple):
    """Relative distance from the optimum: at most `bound`, or about `estimate`; at least one of the two is None."""

    bound: float | None = None
    estimate: float | None = None

    @property
    def value(self) -> float | None:
        return self.bound if self.estimate is None else self.estimate


def distance(
    point: Point,
    multipliers: Array,
    *,
    squared_gradient: float,
    objective: float,
    regulariser: float,
) -> Distance:
    """Return the distance of the model with these scores.

    Parameters
    ----------
    point
        Scores, and the constraints that the model is trained under.
    squared_gradient
        ‖∇L‖², over all weights.
    regulariser
        μ.
    """
    if not (regulariser > 0.0 and objective > 0.0 and np.isfinite(squared_gradient)):
        return Distance()
    slack = point.lagrangian.constraints.bounds.excess(point.values)
    unused = float(np.abs(multipliers * np.where(multipliers > 0.0, slack, 0.0)).sum())
    relative = (0.5 * squared_gradient / regulariser + unused) / objective
    return Distance(bound=relative) if is_convex(point.lagrangian, multipliers) else Distance(estimate=relative)


def is_convex(lagrangian: Lagrangian, multipliers: Array) -> bool:
    """Return whether the Lagrangian is convex in the scores, for all scores, at these multipliers."""
    rows = lagrangian.constraints
    used = [measure for measure, places in rows.measures.items() if multipliers[:, places].any()]
    if any(measure.name != "loss" for measure in used):
        return False
    tilts = (multipliers[0] - multipliers[1]) @ rows.weights
    occurs = np.bincount(rows.stratum, minlength=len(tilts)) > 0
    return bool((1.0 + rows.total_weight * tilts[occurs] >= 0.0).all())
