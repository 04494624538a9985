"""Settings of sequential quadratic programming."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from evenhand.errors import InputError
from evenhand.numbers import is_number, is_whole

CurvatureRule = Literal["auto", "exact", "bfgs"]
LENGTHS = (1.0, 0.5, 0.2, 0.05, 0.01)
"""Fractions of a step that are judged in one round."""


@dataclass(frozen=True)
class SQPOptions:
    """Options of `sqp`.

    Parameters
    ----------
    stationarity, feasibility
        ε₁ and ε₂ of proximal AL Definition 1, on the measured residual.
    max_rounds
        Most exchanges of messages; meeting it is reported as not converged.
    curvature
        ``"exact"``: clients send second derivatives, d(d+1)/2 numbers. ``"bfgs"``: the server builds its own from
        gradients, which needs more rounds and d numbers a round. ``"auto"``: exact up to `exact_limit` weights.
    exact_limit
        See `curvature`.
    penalty
        ν of the merit function f + h + ν Σ (what rows miss), to begin with; raised as the rows need it.
    exact_rates
        Whether the bounds of measures ``"error"`` and ``"positive"`` are met by the exact rates of the training rows.
        None: wherever lower and upper bound differ, since counts cannot be equal to the last digit. False keeps them
        by the smooth rates only, which end on their bounds while the exact ones may be far beyond.
    """

    stationarity: float = 1e-3
    feasibility: float = 1e-3
    max_rounds: int = 200
    curvature: CurvatureRule = "auto"
    exact_limit: int = 1000
    penalty: float = 1.0
    exact_rates: bool | None = None

    def __post_init__(self) -> None:
        for name in ("stationarity", "feasibility", "penalty"):
            value = getattr(self, name)
            if not (is_number(value) and value > 0):
                raise InputError(f"{name} is {value!r}; it must be a number above zero")
        for name in ("max_rounds", "exact_limit"):
            value = getattr(self, name)
            if not (is_whole(value) and value >= 1):
                raise InputError(f"{name} is {value!r}; it must be a whole number, at least 1")
        if self.exact_rates not in (None, True, False):
            raise InputError(f"exact_rates is {self.exact_rates!r}; choose true or false, or leave it out")
        if self.curvature not in get_args(CurvatureRule):
            raise InputError(f"curvature is {self.curvature!r}; choose 'auto', 'exact' or 'bfgs'")

    def is_exact(self, weights: int) -> bool:
        return self.curvature == "exact" or (self.curvature == "auto" and weights <= self.exact_limit)
