"""Optimality conditions measured on the functions themselves, and the result of a solver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.slices import Bounds
from evenhand.programs.minimise import largest
from evenhand.protocol.job import CheckedOptions, Count, Positive
from evenhand.protocol.solver import Certificate

SHARED = "shared"
"""Who holds inequalities that all clients have summands of."""
FAR = 100.0
"""A program counts as infeasible when no feasible point can be nearer than this many times 1 + ‖w‖."""


class SolveStatus(Enum):
    CONVERGED = "converged"
    """The solver's own stopping rule was met."""
    INFEASIBLE = "infeasible"
    """The inequalities cannot all hold near the returned point, which misses them least (anywhere, if convex)."""
    LIMIT = "a cap was met before the stopping rule"
    STALLED = "no step improves within the precision of the arithmetic"


@dataclass(frozen=True)
class Residual:
    """The optimality conditions at (w, μ), proximal AL Eq. 8.

    Attributes
    ----------
    stationarity
        ‖∇f(w) + ∇c(w)μ‖∞.
    violation
        Largest violation of an inequality.
    complementarity
        Complementary slackness: the largest multiplier × slack.
    distance
        dist∞(c(w), N(μ)) (proximal AL Definition 1): violation, and the slack of sides with a multiplier.
    objective
        f(w).
    """

    stationarity: float
    violation: float
    complementarity: float
    distance: float
    objective: float

    def within(self, stationarity: float, feasibility: float) -> bool:
        """Return whether (w, μ) is an (ε₁, ε₂)-optimal solution (proximal AL Definition 1)."""
        return self.stationarity <= stationarity and self.distance <= feasibility

    def certificate(self, rounds: int, converged: bool, unmet: str | None = None) -> Certificate:
        numbers = self.stationarity, self.violation, self.complementarity, self.objective
        return Certificate(*numbers, rounds, converged, unmet=None if converged else unmet)


def kkt_residual(value: float, slope: Array, parts: Sequence[tuple[Bounds, Array, Array]]) -> Residual:
    """Compute the optimality conditions at w.

    Parameters
    ----------
    value
        f(w).
    slope
        ∇f(w) + ∇c(w)μ.
    parts
        Bounds, values and multipliers (as a table) of inequalities.
    """
    found = [bounds.conditions(values, table) for bounds, values, table in parts]
    violation, complementarity, distance = map(max, zip(*found, strict=True))
    return Residual(largest(slope), violation, complementarity, distance, value)


def feasible_radius(missed: float, slope: Array) -> float:
    """Return a lower bound on the distance to a feasible point of convex inequalities, from a measure and its slope."""
    steep = float(np.linalg.norm(slope))
    return np.inf if steep == 0.0 else missed / steep


def is_infeasible(missed: float, slope: Array, weights: Array) -> bool:
    """Return whether the measure is too flat at w for a feasible point nearby."""
    return missed > 0.0 and feasible_radius(missed, slope) > FAR * (1.0 + float(np.linalg.norm(weights)))


@dataclass(frozen=True)
class ResidualOptions(CheckedOptions):
    """Tolerances of proximal AL Definition 1, on the measured residual.

    Parameters
    ----------
    stationarity, feasibility
        ε₁ and ε₂. If given they win over the job's ``tol``; None is ``tol``, or 1e-3 without a job.
    """

    stationarity: Positive | None = None
    feasibility: Positive | None = None

    @property
    def tolerances(self) -> tuple[float, float]:
        """Return ε₁ and ε₂."""
        return self.stationarity or 1e-3, self.feasibility or 1e-3


@dataclass(frozen=True)
class ProxALTolerances(ResidualOptions):
    """Parameters of both proximal AL methods, with the defaults of the paper's Section 5.1.

    Parameters
    ----------
    stationarity, feasibility
        ε₁ and ε₂. If given they win over the job's ``tol``; None is ``tol``, or 1e-3 without a job.
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

    penalty: Positive = 300.0
    subproblem: Positive = 1e-3
    max_outer: Count = 500
    stop: Literal["rule", "residual"] = "rule"

    def tau(self, outer: int) -> float:
        """Return τ_k."""
        return self.subproblem / (outer + 1) ** 2

    def rule(self, outer: int, moved: float, changed: float) -> bool:
        """Return whether ‖w^{k+1} − w^k‖∞ + βτ_k ≤ βε₁ and ‖μ^{k+1} − μ^k‖∞ ≤ βε₂ (proximal AL Eq. 11)."""
        stationarity, feasibility = self.tolerances
        near = moved + self.penalty * self.tau(outer) <= self.penalty * stationarity
        return near and changed <= self.penalty * feasibility
