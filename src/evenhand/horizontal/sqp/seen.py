"""The best solution seen while bounds move: its exact rates miss least, then its objective is the least."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from evenhand.arrays import Array
from evenhand.horizontal.sqp.search import Evaluation
from evenhand.programs.optimality import Residual
from evenhand.protocol.roles import State

_ARRAYS = ("weights", "rows", "exact", "errors", "net")


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

    def snapshot(self) -> State:
        arrays = {f"seen {name}": getattr(self, name).copy() for name in _ARRAYS}
        return {**arrays, "seen excess": self.excess, "seen residual": asdict(self.residual)}

    @classmethod
    def restored(cls, state: State) -> Seen | None:
        if "seen excess" not in state:
            return None
        arrays = {name: np.array(state[f"seen {name}"]) for name in _ARRAYS}
        return cls(excess=float(state["seen excess"]), residual=Residual(**state["seen residual"]), **arrays)
