"""FCFL: minimise the largest of the clients' losses under a bound on each client's gap, then improve all of them.

Cui, Pan, Liang, Zhang, Wang, "Addressing Algorithmic Disparity and Performance Inconsistency in Federated Learning",
NeurIPS 2021. In a round client k sends the gradients of its mean loss l_k and of its gap g_k, over all of its rows. The
first stage is a constrained min-max problem. The server smooths both maxima, l_max and g_max, by softmax weights that
sharpen as δ_l and δ_g shrink:

    d_l = Σ_k softmax(l / δ_l)_k ∇l_k,      d_g = Σ_k softmax(g / δ_g)_k ∇g_k,      w ← w − η (a d_l + b d_g)

with a, b ≥ 0, a + b = 1. If g_max is within its bound, a and b lower l_max most. If not, they lower g_max most among
those that do not raise l_max. δ is multiplied by `shrink` where ‖d‖ · `factor` ≤ δ, down to `least`.

The second stage looks for a Pareto point from there. Its direction mixes all clients' gradients and d_g, which counts
as zero while g_max is below its bound:

    d = Σ_k α_k ∇l_k + α_g d_g,      α ≥ 0,  Σ α = 1,      w ← w − η d

α maximises d · mean_k ∇l_k, so that the mean loss falls fastest, among those with d · ∇l_k ≥ 0 and d · d_g ≥ 0. To
first order no client's loss rises, nor the largest gap if it is beyond its bound. If there is none, the model is a
Pareto point and stays.

The rules for a, b and α, and the values of δ, are those of the authors' public code, which has 800 rounds of the first
stage and 220 to 1500 of the second; here `first_stage` is a share of the rounds. The gap is the worst inequality of the
job's constraints over a client's own rows. A client without rows in a slice has no gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.optimize import linprog

from evenhand.arrays import Array
from evenhand.constraints.kinds import LossParity
from evenhand.constraints.slices import Bounds
from evenhand.horizontal.averaging.build import averaging_solver
from evenhand.horizontal.averaging.messages import FEDAVG, INTEGER, NUMBER, SUMS, UPDATE, VOCABULARY, WEIGHTS
from evenhand.horizontal.averaging.rounds import AveragingClient, AveragingServer, TrainRequest, reports_in
from evenhand.horizontal.problem import Single
from evenhand.protocol.asking import Body
from evenhand.protocol.disclosure import CLIENT_TO_SERVER
from evenhand.protocol.job import Positive, Share
from evenhand.protocol.messages import Message, Schema, Vocabulary
from evenhand.protocol.roles import SERVER, Sends
from evenhand.protocol.terms import HorizontalTerms
from evenhand_reproductions.methods.server_steps import LossOptions
from evenhand_reproductions.methods.slice_weights import WeightedLoss

GRADIENTS = Schema(
    "two-gradients",
    {
        "round": INTEGER,
        "rows": INTEGER,
        "loss": NUMBER,
        "gap": NUMBER,
        "defined": INTEGER,
        "of_loss": WEIGHTS,
        "of_gap": WEIGHTS,
    },
    direction=CLIENT_TO_SERVER,
    reveals=(
        "The client's mean loss, how far its gap between groups is beyond the bound, and the gradients of both at the "
        "received model. From few rows a gradient tells rows, labels first. A gap that is not defined means that the "
        "client has no rows in one of the slices."
    ),
)


def _with_gradients(vocabulary: Vocabulary) -> Vocabulary:
    kept = [schema for schema in vocabulary if schema.kind != UPDATE.kind]
    return Vocabulary(*kept, GRADIENTS, title=vocabulary.title)


@dataclass(frozen=True)
class FCFL(LossOptions):
    """Options of FCFL. It takes one step a round over all rows; options of local training do nothing.

    Parameters
    ----------
    direction_step
        η. ``"auto"`` is 4 / (d + 1) for d columns: the inverse of the loss's largest curvature with standardised
        columns.
    smoothing
        δ_l and δ_g at first.
    least
        What they do not go below.
    factor, shrink
        δ is multiplied by `shrink` where the norm of its direction times `factor` is at most δ.
    first_stage
        Share of the rounds that the first stage takes; the second stage has the others.
    """

    direction_step: Positive | Literal["auto"] = "auto"
    smoothing: Positive = 0.5
    least: Positive = 1e-4
    factor: Positive = 0.1
    shrink: Positive = 0.01
    first_stage: Share = 0.5

    def for_tables(self, terms: HorizontalTerms) -> Mapping[str, Any]:
        return {**super().for_tables(terms), "direction_step": 4.0 / (terms.shape[0] + 1)}


class WorstGap(WeightedLoss):
    """Inequalities that only define the gap."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self.bounds = bounds

    def gap(self, values: Array) -> tuple[float, int, float]:
        """Return the largest excess over a bound, its inequality, and the sign of its side; no excess if undefined."""
        if np.isnan(values).any():
            return -np.inf, 0, 0.0
        sides = np.stack([values - self.bounds.upper, self.bounds.lower - values])
        side, row = np.unravel_index(int(np.argmax(sides)), sides.shape)
        return float(sides[side, row]), int(row), 1.0 - 2.0 * float(side)


class DirectionServer(AveragingServer):
    """Server that steps along a mix of two directions."""

    vocabulary = _with_gradients(VOCABULARY)
    state_fields: ClassVar = {"smoothing": Array}

    options: FCFL

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.smoothing = np.full(2, self.options.smoothing)

    def expected(self) -> list[str]:
        return [GRADIENTS.kind, *([SUMS.kind] if reports_in(self.round, self.report_every) else [])]

    def average(self) -> None:
        told = list(self.answers.of(GRADIENTS.kind).values())
        self.effort += float(2 * len(told) * self.weights.size)
        gaps = np.array([float(body["gap"]) if int(body["defined"]) else -np.inf for body in told])
        first = self.round - 1 < self.options.first_stage * self.job.max_rounds
        direction = self._first(told, gaps) if first else self._second(told, gaps)
        step = self.options.direction_step
        assert not isinstance(step, str)
        self.weights = (self.weights.astype(np.float64) - step * direction).astype(np.float32)

    def _first(self, told: list[Body], gaps: Array) -> Array:
        """Return the direction of the constrained min-max problem."""
        of_loss = self._smoothed(np.array([float(body["loss"]) for body in told]), told, "of_loss", 0)
        if not np.isfinite(gaps).any():
            return of_loss
        of_gap = self._smoothed(gaps, told, "of_gap", 1)
        share = mixed(of_loss, of_gap, met=bool(gaps.max() <= 0.0))
        return np.asarray((1.0 - share) * of_loss + share * of_gap)

    def _second(self, told: list[Body], gaps: Array) -> Array:
        """Return the direction towards a Pareto point."""
        of_losses = np.stack([body["of_loss"].astype(np.float64) for body in told])
        of_gap = np.zeros(self.weights.size)
        if gaps.max() >= 0.0:
            shares = np.exp((gaps - gaps.max()) / self.smoothing[1])
            of_gap = shares / shares.sum() @ np.stack([body["of_gap"].astype(np.float64) for body in told])
        return common_descent(of_losses, of_gap)

    def _smoothed(self, values: Array, told: list[Body], name: str, place: int) -> Array:
        """Return d_l or d_g, and shrink its δ if it is short."""
        given, smoothing = self.options, float(self.smoothing[place])
        shares = np.exp((values - values.max()) / smoothing)
        shares /= shares.sum()
        found = np.asarray(shares @ np.stack([body[name].astype(np.float64) for body in told]))
        if smoothing > given.least and float(np.linalg.norm(found)) * given.factor <= smoothing:
            # A new array: the old one may be part of a checkpoint.
            self.smoothing = np.where(np.arange(2) == place, max(given.shrink * smoothing, given.least), self.smoothing)
        return found


def mixed(of_loss: Array, of_gap: Array, *, met: bool) -> float:
    """Return b, the share of d_g: the best end of the segment of allowed mixes."""
    loss, gap, both = float(of_loss @ of_loss), float(of_gap @ of_gap), float(of_loss @ of_gap)
    if met:
        return 1.0 if both > loss else 0.0
    # The loss does not rise: (1 − b) d_l·d_l + b d_g·d_l ≥ 0.
    most = loss / (loss - both) if both < 0.0 else 1.0
    return most if gap >= both else 0.0


def common_descent(of_losses: Array, of_gap: Array) -> Array:
    """Return the direction that lowers the mean loss most and raises no client's loss, nor the gap; zero if none."""
    rows = np.vstack([of_losses, of_gap])
    products = rows @ rows.T
    clients = len(of_losses)
    found = linprog(
        -products[:, :clients].mean(axis=1),
        A_ub=-products,
        b_ub=np.zeros(len(rows)),
        A_eq=np.ones((1, len(rows))),
        b_eq=[1.0],
        method="highs",
    )
    return np.zeros(rows.shape[1]) if found.x is None else np.asarray(found.x @ rows)


class GradientClient(AveragingClient):
    """Client that sends two gradients."""

    vocabulary = DirectionServer.vocabulary

    formulation: WorstGap

    def work(self) -> Sends:
        if self.request is None:
            return ()
        request, self.request = self.request, None
        return [*self.measurements(request), self._gradients(request)]

    def _gradients(self, request: TrainRequest) -> Message:
        learner: Any = self.learner
        slices = learner.clients.measuring.rows
        self.effort += 5.0 * self.learner.effort
        found = self.learner.measure(request.weights, request.statistics)
        gap, row, sign = self.formulation.gap(slices.values(found.sums, found.counts))
        tilt = sign * slices.coefficients[row] / np.maximum(found.counts, 1.0)
        of_loss = self._gradient(request, np.zeros_like(tilt))
        of_gap = self._gradient(request, tilt) - of_loss
        return GRADIENTS.message(
            self.name,
            SERVER,
            round=self.round,
            rows=self.learner.n_rows,
            loss=found.loss / self.learner.n_rows,
            gap=gap if np.isfinite(gap) else 0.0,
            defined=int(np.isfinite(gap)),
            of_loss=of_loss,
            of_gap=of_gap,
        )

    def _gradient(self, request: TrainRequest, tilt: Array) -> Single:
        return self.learner.gradient(request.weights, request.statistics, self.learner.n_rows, tilt)


SOLVER = replace(
    averaging_solver(
        "fcfl",
        FCFL,
        formulation=WorstGap,
        server=DirectionServer,
        client=GradientClient,
        vocabulary=_with_gradients(FEDAVG),
        default_constraints=(LossParity(0.1),),
    ),
    protections=("none",),
    takes_noise=False,
    models=("linear",),
)
