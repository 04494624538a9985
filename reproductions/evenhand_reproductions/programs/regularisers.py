"""Regularisers h: closed convex parts of the objective that everybody knows, with a cheap proximal operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import clarabel
import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array
from evenhand.errors import InputError
from evenhand.programs.elastic_qp import ConeRows


class Regulariser(Protocol):
    """h of proximal AL Eq. 5."""

    def value(self, weights: Array) -> float:
        """Return h(w), for w in its domain."""
        ...

    def prox(self, weights: Array, step: float) -> Array:
        """Return argmin over v of ‖v − w‖²/2 + step · h(v)."""
        ...

    def distance(self, weights: Array, gradient: Array) -> float:
        """Return dist∞(0, gradient + ∂h(w)), or an upper bound of it."""
        ...

    def settle(self, weights: Array) -> Array:
        """Move w onto a kink or boundary of h that it almost reaches, as interior-point methods do."""
        ...


SNAP = 1e-7
"""How near to a kink or boundary counts as being on it."""


@dataclass(frozen=True)
class Zero:
    """h = 0."""

    def value(self, weights: Array) -> float:
        return 0.0

    def prox(self, weights: Array, step: float) -> Array:
        return weights

    def distance(self, weights: Array, gradient: Array) -> float:
        return float(np.max(np.abs(gradient), initial=0.0))

    def settle(self, weights: Array) -> Array:
        return weights


@dataclass(frozen=True)
class L1:
    """h(w) = scale · ‖w‖₁."""

    scale: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.scale) and self.scale >= 0):
            raise InputError(f"scale is {self.scale}; it must be a finite number, zero or more")

    def value(self, weights: Array) -> float:
        return self.scale * float(np.abs(weights).sum())

    def prox(self, weights: Array, step: float) -> Array:
        shrunk = np.maximum(np.abs(weights) - step * self.scale, 0.0)
        return np.copysign(shrunk, weights) * (shrunk > 0.0)

    def distance(self, weights: Array, gradient: Array) -> float:
        at_zero = np.maximum(np.abs(gradient) - self.scale, 0.0)
        elsewhere = np.abs(gradient + self.scale * np.sign(weights))
        return float(np.max(np.where(weights == 0.0, at_zero, elsewhere), initial=0.0))

    def settle(self, weights: Array) -> Array:
        return np.where(np.abs(weights) < SNAP, 0.0, weights)


class Box:
    """h is zero on lower ≤ w ≤ upper (numbers or one a weight), infinite elsewhere."""

    def __init__(self, lower: npt.ArrayLike, upper: npt.ArrayLike) -> None:
        self.lower: Array = np.array(lower, dtype=np.float64)
        self.upper: Array = np.array(upper, dtype=np.float64)
        if not (self.lower <= self.upper).all():
            raise InputError("a box needs lower ≤ upper everywhere")

    def value(self, weights: Array) -> float:
        return 0.0

    def prox(self, weights: Array, step: float) -> Array:
        return np.clip(weights, self.lower, self.upper)

    def distance(self, weights: Array, gradient: Array) -> float:
        # The normal cone absorbs a positive gradient at the lower bound, a negative one at the upper bound.
        left = np.where(weights <= self.lower, np.minimum(gradient, 0.0), gradient)
        left = np.where(weights >= self.upper, np.maximum(left, 0.0), left)
        return float(np.max(np.abs(left), initial=0.0))

    def settle(self, weights: Array) -> Array:
        low = np.where(weights - self.lower < SNAP, self.lower, weights)
        return np.where(self.upper - low < SNAP, self.upper, low)


@dataclass(frozen=True)
class Ball:
    """h is zero on ‖w‖₂ ≤ radius, infinite elsewhere."""

    radius: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.radius) and self.radius > 0):
            raise InputError(f"radius is {self.radius}; it must be a positive number")

    def value(self, weights: Array) -> float:
        return 0.0

    def prox(self, weights: Array, step: float) -> Array:
        norm = float(np.linalg.norm(weights))
        return weights if norm <= self.radius else weights * (self.radius / norm)

    def distance(self, weights: Array, gradient: Array) -> float:
        """Return an upper bound of dist∞, by Euclidean projection onto the normal cone."""
        squared = float(weights @ weights)
        if squared < (self.radius * (1.0 - 1e-9)) ** 2:
            return float(np.max(np.abs(gradient), initial=0.0))
        push = max(0.0, -float(gradient @ weights) / squared)
        return float(np.max(np.abs(gradient + push * weights), initial=0.0))

    def settle(self, weights: Array) -> Array:
        norm = float(np.linalg.norm(weights))
        return weights * (self.radius / norm) if norm > self.radius * (1.0 - SNAP) else weights


ZERO = Zero()


@dataclass(frozen=True, eq=False)
class OnFirst:
    """h on w, and zero on z."""

    regulariser: Regulariser
    inner: int

    def value(self, weights: Array) -> float:
        return self.regulariser.value(weights[: self.inner])

    def prox(self, weights: Array, step: float) -> Array:
        return np.append(self.regulariser.prox(weights[: self.inner], step), weights[self.inner :])

    def distance(self, weights: Array, gradient: Array) -> float:
        rest = float(np.max(np.abs(gradient[self.inner :]), initial=0.0))
        return max(self.regulariser.distance(weights[: self.inner], gradient[: self.inner]), rest)

    def settle(self, weights: Array) -> Array:
        return np.append(self.regulariser.settle(weights[: self.inner]), weights[self.inner :])


def cone_rows(regulariser: Regulariser, weights: Array) -> ConeRows:
    """Return h(w + p) as a part of a quadratic program in p."""
    size = len(weights)
    none, eye = np.zeros(0), np.eye(size)
    if isinstance(regulariser, L1):
        # |w + p| ≤ r for an extra unknown r each.
        rows = np.block([[eye, -eye], [-eye, -eye]])
        cones = [clarabel.NonnegativeConeT(2 * size)]
        return ConeRows(np.full(size, regulariser.scale), rows, np.concatenate([-weights, weights]), cones)
    if isinstance(regulariser, Box):
        lower = np.broadcast_to(regulariser.lower, (size,)) - weights
        upper = np.broadcast_to(regulariser.upper, (size,)) - weights
        above, under = np.isfinite(upper), np.isfinite(lower)
        bounds = np.concatenate([upper[above], -lower[under]])
        cones = [clarabel.NonnegativeConeT(len(bounds))] if len(bounds) else []
        return ConeRows(none, np.vstack([eye[above], -eye[under]]), bounds, cones)
    if isinstance(regulariser, Ball):
        rows = np.vstack([np.zeros((1, size)), -eye])
        return ConeRows(none, rows, np.append(regulariser.radius, weights), [clarabel.SecondOrderConeT(size + 1)])
    raise InputError(
        f"the quadratic programs do not support {type(regulariser).__name__}; use L1, Box, Ball, or solver prox-al"
    )
