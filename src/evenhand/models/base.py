"""The contracts of a party's model."""

from __future__ import annotations

from typing import Protocol

from evenhand.arrays import Array, Matrix


class Scorer(Protocol):
    """A model over one party's columns that scores rows; its weights are one flat vector."""

    weights: Array

    def predict(self, matrix: Matrix) -> Array:
        """Score other rows."""
        ...


class PartyModel(Scorer, Protocol):
    """A model that is trained with gradients in its weights.

    Its regulariser (μ/2)‖θ_k‖² is part of it, because only the party knows its weights.
    """

    rows: int

    @property
    def effort(self) -> float:
        """Number of multiplications of one pass over the party's data."""
        ...

    def scores(self) -> Array:
        """Return the party's contribution to every row's score."""
        ...

    def gradient(self, nu: Array) -> Array:
        """Return the gradient, in the weights, of ν·scores + regulariser."""
        ...

    def move(self, change: Array) -> None:
        """Add a change to the weights."""
        ...

    def squared_norm(self) -> float:
        """‖θ_k‖² over the regularised weights."""
        ...

    def spectral_bound(self) -> float:
        """Bound the squared spectral norm of the scores' derivative in the weights."""
        ...
