"""The best solution seen while bounds move: its exact rates miss least, then its objective is the least."""

from __future__ import annotations

from dataclasses import dataclass

from evenhand.arrays import Array
from evenhand.horizontal.sqp.search import Evaluation
from evenhand.programs.optimality import Residual


@dataclass(frozen=True, eq=False)
class Seen:
    """A model: by how much its worst exact rate misses, values of rows, net multipliers, optimality as asked."""

    excess: float
    weights: Array
    rows: Array
    exact: Array
    errors: Array
    net: Array
    residual: Residual

    @classmethod
    def of(cls, at: Evaluation, excess: float, net: Array, residual: Residual) -> Seen:
        return cls(excess, at.weights, at.rows, at.exact, at.errors, net, residual)

    @property
    def rank(self) -> tuple[float, float]:
        return self.excess, self.residual.objective
