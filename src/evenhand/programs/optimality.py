"""Optimality conditions measured on the functions themselves, and the result of a solver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.slices import NO_BOUNDS, Bounds
from evenhand.programs.program import Program, ProgramPoint
from evenhand.programs.regularisers import ZERO, Regulariser
from evenhand.protocol.job import CheckedOptions, Count, Positive
from evenhand.protocol.roles import SERVER, Report
from evenhand.protocol.solver import Certificate

SHARED = "shared"
"""Who holds inequalities that all clients have summands of."""
FAR = 100.0
"""A program counts as infeasible when no feasible point can be nearer than this many times 1 + ‖w‖."""


class SolveStatus(Enum):
    CONVERGED = "converged"
    """The solver's own stopping rule was met."""
    INFEASIBLE = "infeasible"
    """The rows cannot all hold near the returned point, which misses them least (anywhere, if they are convex)."""
    LIMIT = "a cap was met before the stopping rule"
    STALLED = "no step improves within the precision of the arithmetic"


@dataclass(frozen=True)
class Residual:
    """The optimality conditions at (w, μ), proximal AL Eq. 8.

    Attributes
    ----------
    stationarity
        dist∞(0, ∇f(w) + ∂h(w) + ∇c(w)μ).
    violation
        Largest violation of a row.
    complementarity
        Complementary slackness: the largest multiplier × slack.
    distance
        dist∞(c(w), N(μ)) (proximal AL Definition 1): violation, and the slack of sides with a multiplier.
    objective
        f(w) + h(w).
    """

    stationarity: float
    violation: float
    complementarity: float
    distance: float
    objective: float

    def within(self, stationarity: float, feasibility: float) -> bool:
        """Return whether (w, μ) is an (ε₁, ε₂)-optimal solution (proximal AL Definition 1)."""
        return self.stationarity <= stationarity and self.distance <= feasibility

    def certificate(self, rounds: int, converged: bool) -> Certificate:
        return Certificate(self.stationarity, self.violation, self.complementarity, self.objective, rounds, converged)


@dataclass(frozen=True, eq=False)
class Solution:
    """Result of a solver of programs.

    Attributes
    ----------
    weights
        w.
    multipliers
        (2, rows): λ⁺ and λ⁻ of each row, by holder: the clients' names, ``"server"`` and ``"shared"``.
    residual
        The optimality conditions at these weights and multipliers.
    rounds
        Exchanges of messages between the server and all clients.
    outer
        Outer iterations (steps of the multipliers, or quadratic programs).
    history
        One entry per outer iteration.
    """

    weights: Array
    multipliers: Mapping[str, Array]
    residual: Residual
    status: SolveStatus
    rounds: int
    outer: int
    history: Sequence[Report] = ()

    @property
    def converged(self) -> bool:
        return self.status is SolveStatus.CONVERGED

    @property
    def certificate(self) -> Certificate:
        return self.residual.certificate(self.rounds, self.converged)


def measure(
    weights: Array,
    multipliers: Mapping[str, Array],
    clients: Mapping[str, Program],
    server: Program | None = None,
    shared: Bounds = NO_BOUNDS,
    regulariser: Regulariser = ZERO,
) -> Residual:
    """Measure the residual at w and at the multipliers of a `Solution`, on all participants' functions."""
    slope, value = np.zeros(len(weights)), 0.0
    sums = np.zeros(shared.n_rows)
    everybody = dict(clients) if server is None else {**clients, SERVER: server}
    parts: list[tuple[Bounds, Array, Array]] = []
    shared_table = multipliers.get(SHARED, np.zeros((2, shared.n_rows)))
    for name, program in everybody.items():
        point = program.at(weights)
        table = multipliers.get(name, np.zeros((2, program.own.n_rows)))
        own = program.own.n_rows
        net = np.concatenate([table[0] - table[1], (shared_table[0] - shared_table[1])[: program.shared]])
        value += point.value
        slope += point.gradient + net @ point.jacobian
        sums[: program.shared] += point.constraints[own:]
        parts.append((program.own, point.constraints[:own], table))
    parts.append((shared, sums, shared_table))
    known = [(bounds, values, bounds.table(bounds.of_net(table[0] - table[1]))) for bounds, values, table in parts]
    return kkt_residual(weights, value, slope, known, regulariser)


def kkt_residual(
    weights: Array,
    value: float,
    slope: Array,
    parts: Sequence[tuple[Bounds, Array, Array]],
    regulariser: Regulariser = ZERO,
) -> Residual:
    """Compute the optimality conditions at w.

    Parameters
    ----------
    value
        f(w).
    slope
        ∇f(w) + ∇c(w)μ.
    parts
        Bounds, values and multipliers (as a table) of rows.
    """
    found = [bounds.conditions(values, table) for bounds, values, table in parts]
    violation, complementarity, distance = map(max, zip(*found, strict=True))
    stationarity, objective = regulariser.distance(weights, slope), value + regulariser.value(weights)
    return Residual(stationarity, violation, complementarity, distance, objective)


def feasible_radius(missed: float, slope: Array) -> float:
    """Return a lower bound on the distance to a feasible point of convex rows, from a convex measure and its slope."""
    steep = float(np.linalg.norm(slope))
    return np.inf if steep == 0.0 else missed / steep


def is_infeasible(missed: float, slope: Array, weights: Array) -> bool:
    """Return whether the measure is too flat at w for a feasible point nearby."""
    return missed > 0.0 and feasible_radius(missed, slope) > FAR * (1.0 + float(np.linalg.norm(weights)))


def residual_at(
    point: ProgramPoint, program: Program, weights: Array, multipliers: Array, regulariser: Regulariser
) -> Residual:
    """Compute the optimality conditions of one program at an evaluated point."""
    bounds = program.own
    slope = point.gradient + bounds.net(multipliers) @ point.jacobian
    return kkt_residual(
        weights, point.value, slope, [(bounds, point.constraints, bounds.table(multipliers))], regulariser
    )


@dataclass(frozen=True)
class ProxALTolerances(CheckedOptions):
    """Parameters of both proximal AL methods, with the defaults of the paper's Section 5.1.

    Parameters
    ----------
    stationarity, feasibility
        ε₁ and ε₂.
    penalty
        β.
    subproblem
        s̄ of τ_k = s̄/(k+1)².
    max_outer
        Largest number of outer iterations; a run that reaches it has not converged.
    stop
        ``"rule"``: by the changes of w and μ, proximal AL Eq. 11. ``"residual"``: when the measured residual is within
        (ε₁, ε₂), which the rule implies.
    """

    stationarity: Positive = 1e-3
    feasibility: Positive = 1e-3
    penalty: Positive = 300.0
    subproblem: Positive = 1e-3
    max_outer: Count = 500
    stop: Literal["rule", "residual"] = "rule"

    def tau(self, outer: int) -> float:
        """Return τ_k."""
        return self.subproblem / (outer + 1) ** 2

    def rule(self, outer: int, moved: float, changed: float) -> bool:
        """Return whether ‖w^{k+1} − w^k‖∞ + βτ_k ≤ βε₁ and ‖μ^{k+1} − μ^k‖∞ ≤ βε₂ (proximal AL Eq. 11)."""
        near = moved + self.penalty * self.tau(outer) <= self.penalty * self.stationarity
        return near and changed <= self.penalty * self.feasibility
