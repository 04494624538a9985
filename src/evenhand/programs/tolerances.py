"""Parameters of both proximal augmented Lagrangian methods, federated and pooled."""

from __future__ import annotations

from dataclasses import dataclass

from evenhand.errors import InputError
from evenhand.numbers import is_number, is_whole


@dataclass(frozen=True)
class ProxALTolerances:
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

    stationarity: float = 1e-3
    feasibility: float = 1e-3
    penalty: float = 300.0
    subproblem: float = 1e-3
    max_outer: int = 500
    stop: str = "rule"

    def __post_init__(self) -> None:
        for name in ("stationarity", "feasibility", "penalty", "subproblem"):
            value = getattr(self, name)
            if not (is_number(value) and value > 0):
                raise InputError(f"{name} is {value!r}; it must be a number above zero")
        if not (is_whole(self.max_outer) and self.max_outer >= 1):
            raise InputError(f"max_outer is {self.max_outer!r}; it must be a whole number, at least 1")
        if self.stop not in ("rule", "residual"):
            raise InputError(f"stop is {self.stop!r}; choose 'rule' or 'residual'")

    def tau(self, outer: int) -> float:
        """Return τ_k."""
        return self.subproblem / (outer + 1) ** 2

    def rule(self, outer: int, moved: float, changed: float) -> bool:
        """Return whether ‖w^{k+1} − w^k‖∞ + βτ_k ≤ βε₁ and ‖μ^{k+1} − μ^k‖∞ ≤ βε₂ (proximal AL Eq. 11)."""
        near = moved + self.penalty * self.tau(outer) <= self.penalty * self.stationarity
        return near and changed <= self.penalty * self.feasibility
