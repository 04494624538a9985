"""How far a linear model is from the optimum, from numbers that its parties send anyway.

By weak duality the Lagrangian L(·, λ) is never above the constrained optimum F* at its own minimum. Where it is
μ-strongly convex that minimum is at most ‖∇L‖²/(2μ) below its present value, and so

    (F − F*) / F  ≤  (Σ_k ‖∇_k L‖² / (2μ) + Σ λ · slack) / F.

Rows that bound losses keep L convex as long as no tilted weight 1 + n·tilt_i of a row of data is negative: then this is
a *bound*. (The intercept is not regularised; its slope counts as that of a weight, far more than it can be worth.)
Elsewhere, and for rates, which are not convex, it is an *estimate* of the distance from where the run is headed.
Without regulariser there is neither.
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
    """Of the model with these scores.

    Parameters
    ----------
    point
        Scores, and the rows that the model is trained under.
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
    """Whether the Lagrangian is convex in the scores at these multipliers, whatever they are."""
    rows = lagrangian.constraints
    used = [measure for measure, places in rows.measures.items() if multipliers[:, places].any()]
    if any(measure.name != "loss" for measure in used):
        return False
    tilts = (multipliers[0] - multipliers[1]) @ rows.weights
    occurs = np.bincount(rows.stratum, minlength=len(tilts)) > 0
    return bool((1.0 + rows.total_weight * tilts[occurs] >= 0.0).all())
