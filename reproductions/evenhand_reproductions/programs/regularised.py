"""Servers of `prox-al` and `sqp` for programs with a regulariser h (proximal AL Eq. 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.slices import Bounds
from evenhand.horizontal.program_server import ServerPart
from evenhand.horizontal.prox_al.options import ProxAL
from evenhand.horizontal.sqp.options import SQP
from evenhand.horizontal.sqp.search import Evaluation, SQPModel
from evenhand.horizontal.sqp.server import SQPServer
from evenhand.programs.augmented import Augmented
from evenhand.programs.elastic_qp import ConeRows, QuadraticStep
from evenhand.programs.minimise import Pull
from evenhand.programs.optimality import Residual
from evenhand_reproductions.programs.composite import minimise_composite
from evenhand_reproductions.programs.quadratic import QuadraticServer
from evenhand_reproductions.programs.regularisers import OnFirst, Regulariser, Zero, cone_rows


def with_regulariser(found: Residual, weights: Array, slope: Array, regulariser: Regulariser) -> Residual:
    """Return the optimality conditions of f + h from those of f."""
    objective = found.objective + regulariser.value(weights)
    return replace(found, stationarity=regulariser.distance(weights, slope), objective=objective)


class RegularisedProxALServer(QuadraticServer):
    """Server of `prox-al` with h; z has none."""

    def __init__(self, own: ServerPart, options: ProxAL, regulariser: Regulariser) -> None:
        super().__init__(own, options)
        self.regulariser = regulariser
        self.wide_regulariser = OnFirst(regulariser, self.inner_size) if own.shared.n_rows else regulariser
        self.weights = self.centre = self.wide_regulariser.prox(self.weights, 0.0)

    def kkt(self, value: float, slope: Array, parts: Sequence[tuple[Bounds, Array, Array]]) -> Residual:
        return with_regulariser(super().kkt(value, slope, parts), self.answer, slope, self.regulariser)

    def average(self, tolerance: float) -> tuple[Array, float]:
        """Return argmin P_0 + h + Σ ρ_i/2 ‖ũ_i − w‖², and the residual of this solution."""
        if isinstance(self.regulariser, Zero):
            return super().average(tolerance)
        regulariser, total, beta = self.wide_regulariser, float(self.strengths.sum()), self.options.penalty
        mean = self.strengths @ self.anchors / total
        proximity = 1.0 / ((len(self.names) + 1) * beta)
        if self.alone:
            # Without inequalities of the server's own, this is one proximal step.
            strength = total + proximity
            middle = (total * mean + proximity * self.centre) / strength
            found = regulariser.prox(middle, 1.0 / strength)
            return found, regulariser.distance(found, strength * (found - middle))
        augmented = Augmented(self.head, self.multipliers, beta, self.centre, proximity)
        pull = Pull(np.zeros_like(mean), mean, total)
        here = augmented.at(self.weights)
        solved = minimise_composite(self.minimiser, augmented, here, pull, regulariser, tolerance)
        self.effort += solved.effort
        point = solved.point
        return point.weights, max(tolerance, regulariser.distance(point.weights, pull.gradient(point)))


@dataclass(frozen=True, eq=False)
class RegularisedModel(SQPModel):
    """Constants of a program with h."""

    regulariser: Regulariser

    def cones(self, weights: Array) -> ConeRows | None:
        return None if isinstance(self.regulariser, Zero) else cone_rows(self.regulariser, weights)

    def settled(self, trials: Array) -> Array:
        """Move trials exactly onto the kinks and into the domain of h, which an arc may leave."""
        h = self.regulariser
        return trials if isinstance(h, Zero) else np.array([h.settle(h.prox(trial, 0.0)) for trial in trials])

    def merit(self, weights: Array, value: float, rows: Array, penalty: float) -> float:
        """Return f + h + ν Σ violation."""
        return super().merit(weights, value + self.regulariser.value(weights), rows, penalty)

    def residual(self, evaluation: Evaluation, net: Array) -> Residual:
        slope = evaluation.gradient + net @ evaluation.jacobian
        return with_regulariser(super().residual(evaluation, net), evaluation.weights, slope, self.regulariser)

    def predicted(self, evaluation: Evaluation, found: QuadraticStep) -> float:
        h, weights = self.regulariser, evaluation.weights
        return super().predicted(evaluation, found) + h.value(weights + found.step) - h.value(weights)


class RegularisedSQPServer(SQPServer):
    """Server of `sqp` with h."""

    def __init__(self, own: ServerPart, options: SQP, regulariser: Regulariser) -> None:
        self.regulariser = regulariser
        super().__init__(replace(own, start=regulariser.prox(own.start, 0.0)), options)

    def make_model(self, bounds: Bounds, allowed: float) -> SQPModel:
        return RegularisedModel(bounds, allowed, self.regulariser)
