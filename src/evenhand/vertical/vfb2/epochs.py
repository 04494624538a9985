"""What happens between two epochs, with messages or in one loop: multipliers, step and stopping.

Between epochs the sum of all parties' scores is known for every row. From it follow the values of the inequalities,
the multipliers for the next epoch, the references of SVRG, and the certificate. Constraints enter as sample weights
that are updated once an epoch; this is not part of the paper.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.constraints.evaluation import Lagrangian, Point
from evenhand.constraints.losses import MEASURES
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.problem import ServerData
from evenhand.vertical.server import Server
from evenhand.vertical.vfb2.interleaver import ThetaInputs
from evenhand.vertical.vfb2.kernels import LOSSES
from evenhand.vertical.vfb2.options import VFB2
from evenhand.vertical.vfb2.plan import RowSampler, VFB2Plan

FIRST: Final = 2.0
OVERSHOOT: Final = 0.5
"""An excess overshoots if it has the other sign and at least this share of the last one's size."""
LONGEST_PUSH: Final = 1.0
"""Limit on ρ · excess, as a share of what turns a row weight of the smallest slice negative.

The excess may be huge in a run that diverges.
"""


class Penalties:
    """ρ of each side of each inequality, in units of the constraint's smallest slice.

    While every data row has a weight of zero or more, the Lagrangian is convex and needs no penalty. A multiplier that
    turns weights negative makes it a saddle, from which the blocks diverge; ρ · excess holds them. But the excess is
    that of the last full pass. If an epoch is long enough for the blocks to follow at once, a large ρ overshoots,
    further each time. So a penalty starts at `FIRST` when weights turn negative, and is halved when its constraint
    overshoots.

    Parameters
    ----------
    weights
        (R, strata): what each inequality's multiplier adds to the weight of a data row, by stratum.
    n_rows
        Number of data rows, each of which has the weight 1/n.
    tol
        Excesses below it do not count as overshoot.
    """

    state_fields: ClassVar = {"values": Array, "_last": Array}

    def __init__(self, options: VFB2, weights: Array, n_rows: int, tol: float) -> None:
        self.chosen = options.penalty == "auto"
        given = 0.0 if options.penalty == "auto" else float(options.penalty)
        self.values: Array = np.full((2, len(weights)), given)
        self._last: Array = np.zeros((2, len(weights)))
        self._weights = weights
        self._n_rows = n_rows
        self._tol = tol

    def push(self, multipliers: Array, scales: Array, excess: Array) -> Array:
        """Return λ + ρ · excess, the weighting of the rows in the next epoch."""
        if not self.chosen:
            return np.maximum(multipliers + self.values * scales * excess, 0.0)
        size = np.abs(excess)
        overshot = (self._last * excess < 0) & (size > OVERSHOOT * np.abs(self._last)) & (size > self._tol)
        self.values = np.where(overshot, 0.5 * self.values, self.values)
        self._last = excess
        weighting = self._weighting(multipliers, scales, excess)
        begun = self._turn_weights(weighting) & (self.values == 0.0)
        if begun.any():
            self.values = np.where(begun, FIRST, self.values)
            weighting = self._weighting(multipliers, scales, excess)
        return weighting

    def _weighting(self, multipliers: Array, scales: Array, excess: Array) -> Array:
        push = np.clip(self.values * excess, -LONGEST_PUSH, LONGEST_PUSH)
        return np.maximum(multipliers + push * scales, 0.0)

    def _turn_weights(self, weighting: Array) -> Array:
        """Return which inequalities contribute to a negative weight."""
        strata = 1.0 + self._n_rows * ((weighting[0] - weighting[1]) @ self._weights)
        taking_part: Array = (self._weights[:, strata < 0.0] != 0.0).any(axis=1)
        return taking_part


class BestPoint:
    """Scores and multipliers of the best point so far, including the first one; the parties keep its weights.

    Points are ranked by objective + σ · (sum of all excesses). σ is the largest present multiplier, and at least 1.
    With such a σ the constrained optimum ranks first.
    """

    state_fields: ClassVar = {
        "scores": Array,
        "multipliers": Array,
        "_objective": float,
        "_excess": float,
        "is_present": bool,
    }

    def __init__(self, n_rows: int, multipliers: Array) -> None:
        self.scores: Array = np.zeros(n_rows if multipliers.size else 0)
        self.multipliers = multipliers
        self._objective = np.inf
        self._excess = np.inf
        self.is_present = False
        """Whether the present point is the best one."""

    def consider(self, point: Point, objective: float, multipliers: Array) -> None:
        """Keep the point if it is better than the best one so far."""
        if not multipliers.size:
            return
        excess = float(np.maximum(point.dual_gradient(), 0.0).sum())
        price = max(1.0, float(multipliers.max()))
        worth, kept = objective + price * excess, self._objective + price * self._excess
        self.is_present = bool(worth < kept)
        if self.is_present:
            self.scores, self.multipliers = point.scores.copy(), multipliers.copy()
            self._objective, self._excess = objective, excess

    def is_better(self) -> bool:
        """Return whether the run should return to the best point from the present one."""
        return not self.is_present and np.isfinite(self._objective)


LONGEST_MOVE = 0.5
"""Maximum change of a multiplier at once, as a share of what would turn a row weight of its smallest slice negative."""
SETTLED = 0.1
"""Multipliers move when the gradient has fallen to this share of its value after their last move."""


class EpochServer(Server):
    """Keeps multipliers and step from epoch to epoch, and decides when to stop."""

    state_fields: ClassVar = {
        "step": float,
        "gap": float,
        "settled": float,
        "weighting": Array,
        "dual_steps": Array,
        "last_excess": Array,
        "last_move": Array,
        "staleness": Integers,
        "penalties": Penalties,
        "best": BestPoint,
    }

    def __init__(self, terms: VerticalTerms, own: ServerData, plan: VFB2Plan) -> None:
        super().__init__(terms, own)
        self.plan = plan
        self.options = plan.options
        self.rule = plan.rule
        self.batch_size = plan.batch_size
        self._moving = np.array([plan.moves(place) for place in range(len(plan.names))])
        self.weighting = self.multipliers
        """Multipliers of the present epoch: λ + ρ · excess."""
        # Comparing λ a_s/|s| with a row's own weight 1/n gives every multiplier its scale.
        shares = self.lagrangian.constraints.weights
        weights = np.abs(shares).max(axis=1, initial=0.0) if self.multipliers.size else np.zeros(0)
        self._scales = np.broadcast_to(1.0 / (terms.n_rows * weights), self.multipliers.shape)
        self.dual_steps = self.options.dual_step * self._scales
        self.penalties = Penalties(self.options, shares, terms.n_rows, self.job.tol)
        self.best = BestPoint(terms.n_rows, self.multipliers)
        self.last_excess = np.zeros(self.multipliers.shape)
        self.last_move = np.zeros(self.multipliers.shape)
        self.settled = np.nan
        """Gradient norm at which the blocks count as settled; NaN right after λ has moved."""
        self.step = np.nan
        self.gap = np.nan
        self.staleness = np.zeros(self.options.delay + 1, dtype=np.int64)
        """Histogram of the staleness of updates, in steps."""

    def open_round(self, point: Point, sampler: RowSampler) -> None:
        """Update λ ← [λ + β · excess]₊, and choose the weighting and the step of the next epoch.

        Losses respond smoothly to their multipliers. λ therefore waits until the blocks have settled, by the gradients
        of the last full pass, and β adapts to how much each excess changed with its multiplier. Rates respond in jumps,
        so λ moves a little at every full pass.
        """
        excess = point.dual_gradient()
        # A side without a bound has no multiplier and no weight.
        excess = np.where(np.isneginf(excess), 0.0, excess)
        if self.plan.on_rates:
            self._move_multipliers(excess)
        elif self.multipliers.size and not np.sqrt(self.squared_gradients.sum()) > self.settled:
            self._learn_dual_steps(excess)
            self._move_multipliers(excess)
            self.settled = np.nan
        self.weighting = self.penalties.push(self.multipliers, self._scales, excess)
        self.step = self._choose_step(sampler)

    def _move_multipliers(self, excess: Array) -> None:
        before = self.multipliers
        move = np.clip(self.dual_steps * excess, -LONGEST_MOVE * self._scales, LONGEST_MOVE * self._scales)
        self.multipliers = np.maximum(before + move, 0.0)
        self.last_move = self.multipliers - before

    def _learn_dual_steps(self, excess: Array) -> None:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = self.last_move / (self.last_excess - excess)
        # If a multiplier did not move, or its constraint moved the other way, its dual step stays.
        ratio = np.where(np.isfinite(ratio) & (ratio > 0), ratio, self.dual_steps)
        self.dual_steps = np.clip(ratio, self.dual_steps / 4.0, self.dual_steps * 4.0)
        self.last_excess = excess

    def rows_under_way(self) -> int:
        """Return the maximum number of rows in flight: scores are read, and updates not yet done."""
        return self.batch_size * (self.options.delay + 1)

    def _choose_step(self, sampler: RowSampler) -> float:
        """Return γ as given, or 1 / (κ(2 max ‖x_i‖²/(n p_i) + d/8 mean ‖x_i‖²)).

        κ bounds the curvature in a score.

        The first term keeps the update of one row stable. For SAGA its factor is 3 instead of 2, as the theory
        requires, once its references stem from different times. The second term allows for d rows with updates in
        flight at once, through delay or because they share a message. SGD converges only with decreasing steps:
        they are divided by 1, 2, 3, ...
        """
        if self.options.step != "auto":
            return float(self.options.step)
        of_many_moments = self.rule == "saga" and not self.options.renews_references("saga", self.round + 1)
        alone = 3.0 if of_many_moments else 2.0
        reach = alone * sampler.largest_norm + 0.125 * (self.rows_under_way() - 1) * sampler.mean_norm
        step = 1.0 / max(self.lagrangian.curvature_limit(self.weighting) * reach, np.finfo(float).tiny)
        return step / (self.round + 1) if self.rule == "sgd" else step

    def close_round(self, point: Point) -> bool:
        """Report the round when all parties' gradients are known, and return whether it was the last.

        Blocks that are never updated (AFSVRG-VP's passive parties) do not count for stopping, because their gradients
        do not vanish. They count for the certificate, which describes the whole model.
        """
        excess = point.dual_gradient()
        dual_gap = float(np.linalg.norm(self.multipliers - np.maximum(self.multipliers + excess, 0.0)))
        gradient = float(np.sqrt(self.squared_gradients[self._moving].sum()))
        if np.isnan(self.settled):
            self.settled = SETTLED * gradient
        self.gap = float(np.hypot(gradient, dual_gap))
        self.reports.append({"round": self.round, **self.row_report(point), "gap": self.gap, "step": self.step})
        self.best.consider(point, self.objective(point), self.multipliers)
        return self.gap <= self.job.tol or self.round >= self.job.max_rounds

    def goes_back(self) -> bool:
        """Return whether the run ends at an earlier point, and restore the multipliers of that point.

        Only an unconverged run does so: a converged one returns its stationary point.
        """
        if self.gap <= self.job.tol or not self.best.is_better():
            return False
        self.multipliers = self.best.multipliers
        return True

    def statistics(self) -> dict[str, Any]:
        return {"staleness": self.staleness.tolist()}


def theta_inputs(lagrangian: Lagrangian, weighting: Array, order: Integers) -> ThetaInputs:
    """Return what ϑ of a row depends on besides its score, with rows in this order."""
    measures = list(lagrangian.constraints.measures)
    return ThetaInputs(
        LOSSES.index(lagrangian.loss.name),
        lagrangian.labels[order],
        lagrangian.constraints.stratum[order],
        stratum_tilts(lagrangian, weighting),
        np.array([MEASURES.index(measure.name) for measure in measures], dtype=np.int64),
        np.array([(one.temperature, one.cut) for one in measures], dtype=np.float64).reshape(-1, 2),
    )


def stratum_tilts(lagrangian: Lagrangian, weighting: Array) -> Array:
    """Return n times what the multipliers add to a row's weight, by stratum and measure: (strata, measures)."""
    bound = lagrangian.constraints
    tilts = np.zeros((bound.weights.shape[1], len(bound.measures)))
    for place, rows in enumerate(bound.measures.values()):
        tilts[:, place] = (weighting[0, rows] - weighting[1, rows]) @ bound.weights[rows]
    return tilts * len(lagrangian.labels)
