"""Parameters of both proximal augmented Lagrangian methods, federated and pooled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evenhand.protocol.options import CheckedOptions, Count, Positive


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
