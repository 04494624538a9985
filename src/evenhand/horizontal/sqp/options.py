"""Options of sequential quadratic programming."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evenhand.programs.optimality import ResidualOptions
from evenhand.programs.slices import ObjectiveWeights
from evenhand.protocol.job import Count, Positive

CurvatureRule = Literal["auto", "exact", "bfgs"]
LENGTHS = (1.0, 0.5, 0.2, 0.05, 0.01)
"""Fractions of a step that are evaluated in one round."""
LEAST_FACTOR = 0.05
"""Smallest factor on the temperature of rates that clients answer."""


@dataclass(frozen=True)
class SQP(ResidualOptions):
    """Options of `sqp`.

    Parameters
    ----------
    stationarity, feasibility
        ε₁ and ε₂ of proximal AL Definition 1. If given they win over the job's ``tol``; None is ``tol``, or 1e-3
        without a job.
    max_rounds
        Largest number of communication rounds; a run that reaches it has not converged. If given it wins over that of
        the job; None is the job's, or 200 without a job.
    curvature
        ``"exact"``: clients send second derivatives, d(d+1)/2 numbers. ``"bfgs"``: the server approximates them from
        gradients, which needs more rounds with d numbers each. ``"auto"``: exact up to `exact_limit` weights.
    exact_limit
        See `curvature`.
    penalty
        Initial ν of the merit function f + ν Σ violation; it is raised if the constraints need it.
    exact_rates
        Whether exact rates on the training rows meet the bounds of the measures ``"error"`` and ``"positive"``. None:
        if the lower and upper bounds differ, because counts cannot be equal to the last digit. False: only the smooth
        rates meet them, and the exact rates may be far beyond.
    leave_one_out
        Whether bounds on exact rates are tightened by what rows lose if they are left out, so that they hold for new
        people. It takes an exchange whenever the bounds have settled, and second derivatives (see `curvature`). False
        bounds the rates of the training rows.
    objective
        ``"rows"``: the mean loss over all clients' rows. ``"clients"``: the mean over clients of each client's mean
        loss (proximal AL Eq. 32). ``"other-class"``: the same over the class that Neyman-Pearson leaves without a bound
        (proximal AL Eq. 30).
    """

    max_rounds: Count | None = None
    curvature: CurvatureRule = "auto"
    exact_limit: Count = 1000
    penalty: Positive = 1.0
    exact_rates: bool | None = None
    leave_one_out: bool = True
    objective: ObjectiveWeights = "rows"

    @property
    def round_limit(self) -> int:
        return self.max_rounds or 200

    def is_exact(self, weights: int) -> bool:
        return self.curvature == "exact" or (self.curvature == "auto" and weights <= self.exact_limit)
