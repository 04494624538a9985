"""Decide when a run of the subspace solver is as near to the optimum as its tolerance asks.

Each round gives two numbers. The bound on the distance (`vertical/server.py`) holds always, and is many times the
distance. The gain of another round, which the server computes from the parties' directions without a message, is never
above the distance, and may be far below it. Both together give an estimate that is seldom below the distance and a few
times as large (`likely_left`). A run stops when the estimate is at most tol.
`benchmarks/stopping.py` measures where runs stop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from evenhand.arrays import Array

FEASIBLE: Final = 1e-6
"""Largest violation and complementarity at which a run may stop. The tiny problem is solved to a tenth of it."""
PATIENCE: Final = 10
"""Rounds without progress after which a run stops: its constraints cannot hold, or its tolerance is out of reach."""
MISSES: Final = 4
"""Number of rounds that meet every stopping criterion but the exact rates, before the run stops without them."""
MOST_LEFT: Final = 50.0
"""The gains of two rounds count when the bound is at most this many times tol. A round in which parties find little may
be followed by one in which they find much; the bound then tells that they will."""
MOST_LEFT_OF_RATES: Final = 8.0
"""The same where bounds move, so that the gain of another round is not comparable."""
MOST_LEFT_IN_REACH: Final = 3.0
"""The same where signs of weights are bounded: the gain of another round is then limited by the parties' reach."""
PROMISE: Final = 0.2
"""Share of the distance that parties promise. It decides where there is neither a bound nor a comparable gain."""
GAINS_LEFT: Final = 3.0
"""The distance is at least the gain of two rounds, and at most this many times that gain in nearly all runs."""
MEANS_LEFT: Final = 1.5
"""The distance is between the gain of another round and the bound, and at most this many times their geometric mean in
nearly all runs."""

LEAST_GAIN: Final = 1e-3
"""Smallest gain of another round that counts, as a share of tol. Smaller ones are lost in rounding."""


def likely_left(next_gain: float, last_gain: float, bound: float | None, tol: float) -> float:
    """Estimate the relative distance from the optimum, so that it is seldom above the estimate.

    Parameters
    ----------
    next_gain, last_gain
        Relative gains of the next and of the last round. The sum of both is compared with the distance before the last
        round.
    bound
        Upper bound on the distance; None if there is none.
    tol
        Tolerance of the run.
    """
    next_gain = max(next_gain, LEAST_GAIN * tol)
    gained = GAINS_LEFT * (max(last_gain, 0.0) + next_gain)
    if bound is None:
        return gained
    mean = MEANS_LEFT * float(np.sqrt(bound * next_gain))
    return min(bound, mean, gained) if bound <= MOST_LEFT * tol else mean


class RoundProgress:
    """What the rounds so far say about stopping.

    Attributes
    ----------
    objective
        Objective of the last round.
    least_violation
        Smallest violation so far.
    futile
        Rounds in a row without progress.
    missed
        Rounds that met every stopping criterion but the exact rates.
    """

    state_fields: ClassVar = {
        "objective": float,
        "least_violation": float,
        "futile": int,
        "missed": int,
    }

    def __init__(self) -> None:
        self.objective = self.least_violation = float("inf")
        self.futile = self.missed = 0

    def last_gain(self, objective: float) -> float:
        """Return the relative gain of the last round; infinite before the first."""
        return (self.objective - objective) / max(objective, float(np.finfo(float).tiny))

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


@dataclass(frozen=True, eq=False)
class BestSeen:
    """Scores and multipliers of the best model so far; the parties keep its weights.

    Attributes
    ----------
    excess, objective
        Excess of its exact rates over their bounds, and its objective. They rank models in this order.
    shift, factor
        δ of `ShiftedBounds` and the factor on the temperature with which it was found.
    drift
        By how much its constraints' values differ on left-out rows.
    own_weights
        Weights of the label holder, where all its columns are in the tiny problem.
    """

    excess: float
    objective: float
    scores: Array
    multipliers: Array
    squared_norms: Array
    shift: Array
    factor: float
    drift: Array
    own_weights: Array

    @property
    def rank(self) -> tuple[float, float]:
        return self.excess, self.objective
