"""The certificate every solver ends with: how far its answer is from satisfying the optimality conditions."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Certificate:
    """Measured at the returned model and multipliers.

    Attributes
    ----------
    stationarity
        Norm of the gradient of the full Lagrangian in all parties' weights, regularisers included.
    violation
        Worst amount by which a constraint row is exceeded on the training rows; zero when all hold.
    complementarity
        Largest product of a multiplier and its row's slack.
    objective
        Mean training loss plus regularisers.
    rounds
        Communication rounds used.
    converged
        Whether the solver's own stopping rule was met, rather than a cap on rounds.
    bound
        (F − F*) / F is at most this: how far the objective can still be above the constrained optimum. None where that
        cannot be said, or nobody has measured it.
    estimate
        About how far it is, where no bound holds: for rates, and where constraints give a row of data negative weight.
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
