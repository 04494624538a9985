"""What only the server knows of a run on shared weights: which combination of directions the weights are.

Every step of a subspace run is a combination of directions. So the weights of a party are

    θ_k = Σ_t a_t d_{k,t},

with the same a_t for all parties. The directions d_{k,t} are in shares between the party and the label holder. The
server keeps the coefficients a_t, those of the last steps, and those of the best model so far. Parties do not know
them: coefficients of two runs that differ by one person would tell that person's label.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from evenhand.arrays import Array
from evenhand.errors import ProtocolError
from evenhand.vertical.subspace.blocks import split_step

START = 0
"""Number of the vectors that a run starts from: the weights of a warm start, and zeros."""


class Trail:
    """Coefficients of weights and steps over all directions so far, `bands` of them for each number.

    Attributes
    ----------
    numbers
        Numbers of the exchanges with directions that count. An exchange that failed its range check is left out.
    weights
        a_t.
    steps
        Coefficients of the last steps, newest first.
    best
        a_t of the best model so far.
    """

    state_fields: ClassVar = {
        "numbers": list[int],
        "weights": Array,
        "steps": list[Array],
        "best": Array | None,
    }

    def __init__(self, bands: int, history: int) -> None:
        self.bands, self.history = bands, history
        self.numbers = [START]
        self.weights: Array = np.eye(1, bands)[0]
        self.steps: list[Array] = []
        self.best: Array | None = None

    @property
    def steps_taken(self) -> int:
        """Number of exchanges whose directions are in the weights."""
        after = self.weights[self.bands :].reshape(-1, self.bands)
        return int(after.any(axis=1).sum())

    def extend(self, number: int) -> None:
        """Add the directions of an exchange."""
        self.numbers.append(number)
        self.weights = np.pad(self.weights, (0, self.bands))
        self.steps = [np.pad(step, (0, self.bands)) for step in self.steps]
        if self.best is not None:
            self.best = np.pad(self.best, (0, self.bands))

    def drop_last(self) -> None:
        """Leave out the directions of the last exchange, before any step was taken along them."""
        self.numbers.pop()
        self.weights = self.weights[: -self.bands]
        self.steps = [step[: -self.bands] for step in self.steps]
        if self.best is not None:
            self.best = self.best[: -self.bands]

    @property
    def basis(self) -> Array:
        """Coefficients of the newest directions and of the last steps, one row each."""
        newest = np.eye(self.bands, len(self.weights), k=len(self.weights) - self.bands)
        return np.array([*newest, *self.steps])

    def go(self, coefficients: Array, *, keep: bool) -> None:
        """Take a step along the basis."""
        if len(self.numbers) > 1:
            basis = self.basis
            parts = split_step(coefficients[: len(basis)], self.bands) @ basis
            self.weights = self.weights + parts.sum(axis=0)
            self.steps = [*parts, *self.steps][: self.history]
        if keep:
            self.best = self.weights.copy()

    def go_back(self) -> None:
        if self.best is None:
            raise ProtocolError("the server goes back to a model that it never told to keep; the message is refused")
        self.weights = self.best.copy()
