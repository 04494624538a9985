"""Bounds on the signs of a party's weights, for columns in which scores may only rise, or only fall.

Bounds and weights stay with the party. Its direction solves its own quadratic model under the bounds, and consists of
two parts: what takes weights to their bound, and the rest. So the server can take the first part as a whole, and such
weights are exactly zero. With its direction the party tells the *reach* of each column: how far the coefficient may go
in both directions, whatever the other coefficients do within their own reach. All combinations that the server
may choose then keep the bounds.

A reach is zero, a power of two, or without limit. It is told as a count in one of these classes.

The first part is the sum of w_j·x_j over the columns that go to their bound, so it may be one column, or nothing. A sum
over parties would then be one party's vector. So bounds on signs are refused under masks (`check_monotone`). A mix of
both parts that the server knows would not help, because the server can undo it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from evenhand.arrays import Array, Booleans, Integers
from evenhand.programs.combining.elastic import Box, minimise_kinked

_SMALLEST: Final = -8
_LARGEST: Final = 8
REACHES: Final = np.array([0.0, *(2.0**power for power in range(_SMALLEST, _LARGEST + 1)), np.inf])
"""The classes of reach."""
_SPARE: Final = 1e-12
"""Share of the largest weight below which the distance of a weight from its bound is rounding."""
BANDS: Final = 2
"""Parts of a direction under bounds: to the bound, and the rest."""


def least_gradient(gradient: Array, weights: Array, signs: Integers, regulariser: float) -> Array:
    """Return the gradient, without what the bounds take up.

    A step along a weight gains at most g²/2μ, and at most g·|w| − μw²/2 before it reaches the bound. The result has
    these gains, as a gradient: zero if the weight is at its bound and would go beyond. Its squared norm over 2μ
    bounds the distance from the constrained optimum.
    """
    towards = (signs * gradient > 0.0) & (np.abs(gradient) > regulariser * np.abs(weights))
    size = np.abs(weights)
    gain = 2.0 * np.abs(gradient) * size - regulariser * size**2
    return np.where(towards, np.sign(gradient) * np.sqrt(np.maximum(regulariser * gain, 0.0)), gradient)


@dataclass(frozen=True, eq=False)
class SignBounds:
    """The bounds of one party.

    Attributes
    ----------
    places
        Which weights have a bound.
    signs
        1 where such a weight may not be negative, −1 where it may not be positive.
    """

    places: Integers
    signs: Integers

    @classmethod
    def of(cls, signs: Integers) -> SignBounds:
        """Return the bounds, given a sign for each weight, or 0."""
        places = np.flatnonzero(signs)
        return cls(places, signs[places])

    def kept(self, weights: Array) -> Array:
        """Return the weights, with those beyond their bound at zero."""
        found = weights.copy()
        found[self.places] = self.signs * np.maximum(self.signs * weights[self.places], 0.0)
        return found

    def direction(self, inverse: Callable[[Array], Array], gradient: Array, weights: Array) -> tuple[Array, float]:
        """Return the two parts of the best direction of a quadratic model under the bounds, and the model's gain.

        With multipliers π ≥ 0 of the bounds, d = −H⁻¹(g − Sπ). Which are positive is a quadratic program with one
        unknown for each bound.

        Parameters
        ----------
        inverse
            Multiplies a vector, or columns, by H⁻¹.
        gradient, weights
            g and θ, of the weights without the intercept.
        """
        columns = np.zeros((len(gradient), len(self.places)))
        columns[self.places, np.arange(len(self.places))] = self.signs
        responses, free = inverse(columns), -inverse(gradient)
        distances = self.signs * weights[self.places]
        square = self.signs[:, None] * responses[self.places]
        units = 1.0 / np.sqrt(np.maximum(square.diagonal(), np.finfo(float).tiny))
        reached = units * (distances + self.signs * free[self.places])
        none, most = np.zeros_like(units), np.full_like(units, np.inf)
        multipliers = minimise_kinked((square + square.T) / 2.0 * units * units[:, None], reached, -most, none, most)
        multipliers *= units
        whole = free + responses @ multipliers
        # Up to rounding, and where H⁻¹ is only approximate, the bounds hold; now exactly.
        whole = self.kept(weights + whole) - weights
        bound = self.places[multipliers > 0.0]
        parts = np.zeros((BANDS, len(gradient)))
        parts[0, bound] = -weights[bound]
        parts[1] = whole
        parts[1, bound] = 0.0
        gain = -0.5 * float(gradient @ parts.sum(axis=0)) + 0.5 * float(distances @ multipliers)
        return parts, gain

    def reach(self, directions: Array, steps: Array, weights: Array) -> tuple[Array, Array]:
        """Return how far each column may go down and up, with the others anywhere within their own reach.

        Both parts of the direction may be taken as a whole, together. What this leaves of the distances to the bounds
        is divided among all columns; recent steps get more than old ones.
        """
        towards = self.signs * np.vstack([directions, steps])[:, self.places]
        distances = self.signs * weights[self.places]
        spare = distances - np.maximum(-towards[: len(directions)], 0.0).sum(axis=0)
        spare = np.where(spare > _SPARE * float(distances.max(initial=0.0)), spare, 0.0)
        age = np.arange(1.0, len(steps) + 1.0)
        shares = np.append(np.full(len(directions), 0.5 / len(directions)), 0.5 / (age * (age + 1.0)))
        room = shares[:, None] * spare

        def limit(moves: Array) -> Array:
            """Return the largest multiple of each column's moves towards the bounds."""
            least = np.divide(room, moves, out=np.full_like(moves, np.inf), where=moves > 0.0)
            found: Array = least.min(axis=1, initial=np.inf)
            return found

        up = limit(np.maximum(-towards, 0.0))
        up[: len(directions)] += 1.0
        return limit(np.maximum(towards, 0.0)), up


def classes_of(down: Array, up: Array, size: int) -> Array:
    """Return reaches as a count in their class, (2, size, classes); columns beyond these have no limit."""
    counts = np.zeros((2, size, len(REACHES)))
    for side, reach in zip(counts, (down, up), strict=True):
        places = np.searchsorted(REACHES, reach, side="right") - 1
        side[np.arange(len(reach)), places] = 1.0
        side[len(reach) :, -1] = 1.0
    return counts


def box_of(counts: Array, width: int) -> Box:
    """Return the bounds on coefficients: the smallest reach that any party has told."""
    told: Booleans = counts[:, :width] > 0.5
    down, up = REACHES[np.argmax(told, axis=2)]
    return Box(-down, up)


def weights_box(weights: Array, signs: Integers) -> Box:
    """Return the bounds on changes of weights."""
    return Box(np.where(signs > 0, -weights, -np.inf), np.where(signs < 0, -weights, np.inf))
