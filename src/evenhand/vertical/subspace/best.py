"""The best model a subspace server has seen: what it must remember to have everybody go back to it."""

from __future__ import annotations

from dataclasses import dataclass

from evenhand.arrays import Array


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
