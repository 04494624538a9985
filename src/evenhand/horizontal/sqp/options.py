"""Settings of sequential quadratic programming."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evenhand.protocol.job import CheckedOptions, Count, Positive

CurvatureRule = Literal["auto", "exact", "bfgs"]
LENGTHS = (1.0, 0.5, 0.2, 0.05, 0.01)
"""Fractions of a step that are judged in one round."""


@dataclass(frozen=True)
class SQP(CheckedOptions):
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

    stationarity: Positive = 1e-3
    feasibility: Positive = 1e-3
    max_rounds: Count = 200
    curvature: CurvatureRule = "auto"
    exact_limit: Count = 1000
    penalty: Positive = 1.0
    exact_rates: bool | None = None

    def is_exact(self, weights: int) -> bool:
        return self.curvature == "exact" or (self.curvature == "auto" and weights <= self.exact_limit)
