"""Decide when a run of the subspace solver is as near to the optimum as its tolerance asks.

Each round gives two numbers. The bound on the distance (`vertical/server.py`) is several times the distance, and
falls late where the server has only sums. The gain that parties' own quadratic models promise is a fraction of the
distance, because they ignore the coupling between parties. `benchmarks/stopping.py` measures where runs stop by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from evenhand.arrays import Array

FEASIBLE: Final = 1e-6
"""Largest violation and complementarity at which a run may stop. The tiny problem is solved to a tenth of it."""
PATIENCE: Final = 10
"""Rounds without progress after which a run stops: its constraints cannot hold, or its tolerance is out of reach."""
MISSES: Final = 4
"""Number of rounds that meet every stopping criterion but the exact rates, before the run stops without them."""
SHARPNESS: Final = 8.0
"""Typical ratio of the bound to the distance: a run stops when the bound is this many times tol."""
SHARPER: Final = 3.0
"""The same, where the label holder's own columns are in the tiny problem."""
STILL: Final = 0.12
"""Share of tol that parties promise in two successive rounds when the distance is about tol.

It applies where the label holder's columns are in the tiny problem. In a single round parties may promise little and
then find more.
"""
STILL_BLIND: Final = 0.04
"""The same, where ν is hidden from the parties: they use the bound on the curvature, and promise about a third."""
PROMISE: Final = 0.2
"""Typical share of the distance that parties promise. It decides where there is no bound."""


def near(
    left: float | None, promised: tuple[float, float], tol: float, *, own_columns: bool, blind: bool = False
) -> bool:
    """Return whether the distance from the optimum is about tol, or less.

    Parameters
    ----------
    left
        Bound on the distance, or its estimate; None without a regulariser.
    promised
        Gain that parties promise in this round and in the one before, relative to the objective like the distance.
    own_columns
        Whether the label holder's own columns are in the tiny problem.
    blind
        Whether ν is hidden from the parties.
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
        Objective of the last round, and the gain that parties promised relative to it.
    least_violation
        Smallest violation so far.
    futile
        Rounds in a row without progress.
    missed
        Rounds that met every stopping criterion but the exact rates.
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
    """Scores and multipliers of the best model so far; the parties keep its weights.

    Attributes
    ----------
    excess, objective
        Excess of its exact rates over their bounds, and its objective. They rank models in this order.
    shift
        δ of `ShiftedBounds` with which it was found.
    own_weights
        Weights of the label holder, where all its columns are in the tiny problem.
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
