"""What happens between two epochs, with messages or in one loop: multipliers, the step, the end.

Between epochs the sum of all parties' scores is known for every row. From it follow the constraint rows' values, the
multipliers for the next epoch (constraints as weights of samples, updated once an epoch: no part of the paper), the
references of SVRG, and the certificate.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.constraints.lagrangian import Lagrangian, Point
from evenhand.constraints.losses import MEASURES
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.problem import ServerData
from evenhand.vertical.server import Server
from evenhand.vertical.vfb2.best import BestPoint
from evenhand.vertical.vfb2.interleaver import ThetaInputs
from evenhand.vertical.vfb2.kernels import LOSSES
from evenhand.vertical.vfb2.penalty import Penalties
from evenhand.vertical.vfb2.sampler import RowSampler
from evenhand.vertical.vfb2.setting import Setting

LONGEST_MOVE = 0.5
"""Of a multiplier at once, as a share of what would turn the weight of a row of its smallest slice."""
SETTLED = 0.1
"""Multipliers move once the gradient has fallen to this share of what it was after their last move."""


class EpochServer(Server):
    """Keeps multipliers and step from epoch to epoch and knows when to stop."""

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

    def __init__(self, terms: VerticalTerms, own: ServerData, setting: Setting) -> None:
        super().__init__(terms, own)
        self.setting = setting
        self.options = setting.options
        self.rule = setting.rule
        self.batch_size = setting.batch_size
        self._moving = np.array([setting.moves(place) for place in range(len(setting.names))])
        self.weighting = self.multipliers
        """The multipliers of the present epoch: λ + ρ · excess."""
        # λ a_s/|s| is to be compared with a row's own weight 1/n: that gives every multiplier its scale.
        shares = self.lagrangian.constraints.weights
        weights = np.abs(shares).max(axis=1, initial=0.0) if self.multipliers.size else np.zeros(0)
        self._scales = np.broadcast_to(1.0 / (terms.n_rows * weights), self.multipliers.shape)
        self.dual_steps = self.options.dual_step * self._scales
        self.penalties = Penalties(self.options, shares, terms.n_rows, self.job.tol)
        self.best = BestPoint(terms.n_rows, self.multipliers)
        self.last_excess = np.zeros(self.multipliers.shape)
        self.last_move = np.zeros(self.multipliers.shape)
        self.settled = np.nan
        """The gradient's norm at which the blocks count as settled; not a number right after λ has moved."""
        self.step = np.nan
        self.gap = np.nan
        self.staleness = np.zeros(self.options.delay + 1, dtype=np.int64)
        """How many updates were how stale, in steps."""

    def open_round(self, point: Point, sampler: RowSampler) -> None:
        """λ ← [λ + β · excess]₊, the weighting for the coming epoch, and a step that suits it.

        Losses answer to their multipliers smoothly: λ waits until the blocks have settled at their answer to it (by the
        gradients of the last full pass), and β follows how much each excess changed with its multiplier. Rates answer
        in jumps, so λ moves at every full pass, a little.
        """
        excess = point.dual_gradient()
        # A side without a bound has no multiplier, and nothing to weight.
        excess = np.where(np.isneginf(excess), 0.0, excess)
        if self.setting.on_rates:
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
        # Where a multiplier did not move, or its row moved the other way, nothing was learned about its own answer.
        ratio = np.where(np.isfinite(ratio) & (ratio > 0), ratio, self.dual_steps)
        self.dual_steps = np.clip(ratio, self.dual_steps / 4.0, self.dual_steps * 4.0)
        self.last_excess = excess

    def rows_under_way(self) -> int:
        """Most rows whose scores are read and whose updates are not yet done."""
        return self.batch_size * (self.options.delay + 1)

    def _choose_step(self, sampler: RowSampler) -> float:
        """γ as given, or 1 / (κ(2 max ‖x_i‖²/(n p_i) + d/8 mean ‖x_i‖²)), where κ bounds the curvature in a score.

        The first term keeps one row's update stable: three times the norm for SAGA, as its theory asks, once its
        references are of many moments. The second makes room for the d rows whose updates may be under way at once,
        through delay or because they share a message.
        SGD comes to rest only if its steps shorten: they are that over 1, 2, 3, ...
        """
        if self.options.step != "auto":
            return float(self.options.step)
        of_many_moments = self.rule == "saga" and not self.options.renews_references("saga", self.round + 1)
        alone = 3.0 if of_many_moments else 2.0
        reach = alone * sampler.largest_norm + 0.125 * (self.rows_under_way() - 1) * sampler.mean_norm
        step = 1.0 / max(self.lagrangian.curvature_limit(self.weighting) * reach, np.finfo(float).tiny)
        return step / (self.round + 1) if self.rule == "sgd" else step

    def close_round(self, point: Point) -> bool:
        """With all parties' gradients known: report the round, and say whether it was the last.

        Blocks that are never updated (AFSVRG-VP's passive parties) have no part in when to stop: their gradients do not
        vanish. They are in the certificate, which is about the whole model.
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
        """At the end of the last round: whether an earlier point is returned; its multipliers are then taken up.

        Only without convergence: stationary points are what is looked for.
        """
        if self.gap <= self.job.tol or not self.best.is_better():
            return False
        self.multipliers = self.best.multipliers
        return True

    def statistics(self) -> dict[str, Any]:
        return {"staleness": self.staleness.tolist()}


def theta_inputs(lagrangian: Lagrangian, weighting: Array, order: Integers) -> ThetaInputs:
    """What ϑ of a row follows from besides its score, rows in this order."""
    measures = list(lagrangian.constraints.measures)
    return ThetaInputs(
        LOSSES.index(lagrangian.loss.name),
        lagrangian.labels[order],
        lagrangian.constraints.stratum[order],
        cell_tilts(lagrangian, weighting),
        np.array([MEASURES.index(measure.name) for measure in measures], dtype=np.int64),
        np.array([measure.temperature for measure in measures], dtype=np.float64),
    )


def cell_tilts(lagrangian: Lagrangian, weighting: Array) -> Array:
    """(cells, measures): n times what the multipliers add to the weight of a row of the cell, for each measure."""
    bound = lagrangian.constraints
    tilts = np.zeros((bound.weights.shape[1], len(bound.measures)))
    for place, rows in enumerate(bound.measures.values()):
        tilts[:, place] = (weighting[0, rows] - weighting[1, rows]) @ bound.weights[rows]
    return tilts * len(lagrangian.labels)
