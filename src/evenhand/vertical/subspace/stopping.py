"""When a run of the subspace solver is as near to the optimum as it was asked to be.

Two numbers come with every round. The bound on the distance (`vertical/distance.py`) is several times the distance, and
falls late where the server has nothing but sums. What parties promise by their own quadratic models is a fraction of
it: these see no coupling between parties. `benchmarks/stopping.py` shows how far from the optimum runs stop by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from evenhand.arrays import Array

FEASIBLE: Final = 1e-6
"""Largest violation and complementarity at which a run may stop; the tiny problem is solved to a tenth of it."""
PATIENCE: Final = 10
"""Rounds without progress after which a run is given up: its rows cannot hold, or its tolerance is out of reach."""
MISSES: Final = 4
"""Times that all but the exact rates say that a run has ended, before it does: they have had their passes each time."""
SHARPNESS: Final = 8.0
"""How many times the distance its bound is, as a rule: a run stops when the bound is as many times tol."""
SHARPER: Final = 3.0
"""The same where the label holder's own columns are in the tiny problem."""
STILL: Final = 0.12
"""Share of tol that parties promise in two rounds running, where those columns are in the tiny problem, when a run is
as near as tol. In a single round they may promise little, and be about to find more."""
STILL_BLIND: Final = 0.04
"""The same where parties are not told ν: they take curvature for its bound, and promise about a third."""
PROMISE: Final = 0.2
"""Share of the distance that the parties promise, as a rule: where there is no bound, it must do."""


def near(
    left: float | None, promised: tuple[float, float], tol: float, *, own_columns: bool, blind: bool = False
) -> bool:
    """Whether the distance is about tol, or less.

    Parameters
    ----------
    left
        The bound on the distance, or the estimate; None without regulariser.
    promised
        By parties in this round, and in the one before: relative to the objective, as the distance is.
    own_columns
        Whether the label holder's own columns are in the tiny problem.
    blind
        Whether parties are not told ν.
    """
    if left is None:
        return promised[0] <= PROMISE * tol
    if not own_columns:
        return left <= SHARPNESS * tol
    return left <= SHARPER * tol or max(promised) <= (STILL_BLIND if blind else STILL) * tol


class RoundProgress:
    """What the rounds so far say about stopping.

    Attributes
    ----------
    objective, promised
        Of the last round: the objective, and what parties promised relative to it.
    least_violation
        The least that was seen.
    futile
        Rounds in a row without progress.
    missed
        Rounds that only exact rates kept from being the last.
    """

    state_fields: ClassVar = {
        "objective": float,
        "promised": float,
        "least_violation": float,
        "futile": int,
        "missed": int,
    }

    def __init__(self) -> None:
        self.objective = self.promised = self.least_violation = float("inf")
        self.futile = self.missed = 0

    def gained_little(self, objective: float, tol: float) -> bool:
        """Return whether the last round lowered the objective by less than half of tol."""
        return self.objective - objective <= 0.5 * tol * objective

    def gives_up(self, objective: float, violation: float, settling: bool) -> bool:
        """Count a round that did not converge, and return whether the run should end without convergence.

        It should if neither violation nor objective got better for a while, or if exact rates missed too often.
        """
        nearer = violation < (1.0 - 1e-4) * self.least_violation
        better = self.objective - objective > 1e-12 * self.objective
        progress = nearer or (better and violation <= FEASIBLE) or settling
        self.futile = 0 if progress else self.futile + 1
        self.least_violation = violation if nearer else self.least_violation
        return self.futile >= PATIENCE or self.missed >= MISSES

    def note(self, objective: float, decrement: float) -> None:
        """Remember a round's objective, and what parties promised."""
        self.objective, self.promised = objective, decrement / objective


@dataclass(frozen=True, eq=False)
class BestSeen:
    """A model's scores and multipliers; the weights are with the parties.

    Attributes
    ----------
    excess, objective
        By how much its exact rates miss their bounds, and then its objective, say which of two models is the better.
    shift
        δ of `ShiftedBounds` with which it was found.
    own_weights
        Of the label holder, where all its columns are in the tiny problem.
    """

    excess: float
    objective: float
    scores: Array
    multipliers: Array
    squared_norms: Array
    shift: Array
    own_weights: Array

    @property
    def rank(self) -> tuple[float, float]:
        return self.excess, self.objective
