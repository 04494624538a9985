"""The certificate of a solver: how well its result satisfies the optimality conditions."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Certificate:
    """Optimality conditions, measured at the returned model and multipliers.

    Attributes
    ----------
    stationarity
        Norm of the gradient of the full Lagrangian in all parties' weights, regularisers included.
    violation
        Largest violation of a constraint on the training rows; zero if all hold.
    complementarity
        Complementary slackness: the largest multiplier × slack.
    objective
        Mean training loss plus regularisers.
    rounds
        Communication rounds used.
    converged
        Whether the solver's stopping rule was met before the round limit.
    bound
        Upper bound on (F − F*) / F, the relative distance of the objective from the constrained optimum. None if no
        bound holds or it was not measured.
    estimate
        Estimate of that distance where no bound holds: for rates, and where constraints give a row negative weight.
    """

    stationarity: float
    violation: float
    complementarity: float
    objective: float
    rounds: int
    converged: bool
    bound: float | None = None
    estimate: float | None = None

    def as_dict(self) -> dict[str, float | int | bool | None]:
        return asdict(self)
