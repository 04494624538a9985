"""Minimise smooth functions to a given gradient norm: the local work between two messages.

    min over u:   P(u) + ⟨b, u⟩ + (ρ/2) ‖u − centre‖²

Newton's method keeps its inverse Hessian while steps converge: P hardly changes between two messages, so most solves
need no second derivatives. Without Hessian matrices it uses conjugate gradients on products, or L-BFGS. Negative
curvature (tilted losses, sigmoids) is reversed, so every step descends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, NamedTuple, Protocol, TypeVar, get_args

import numpy as np
from scipy.linalg import eigh, lapack

from evenhand.arrays import Array
from evenhand.errors import DivergenceError, InputError
from evenhand.programs.program import Curvature

Method = Literal["auto", "newton", "cg", "lbfgs"]
DENSE_LIMIT = 1500
"""Most weights for which a d × d matrix is formed."""
KEEP = 0.3
"""A kept inverse must shrink the gradient to this fraction; otherwise a new one is made."""
ARMIJO = 1e-4


class DescentPoint(Protocol):
    @property
    def weights(self) -> Array: ...
    @property
    def value(self) -> float: ...
    @property
    def gradient(self) -> Array: ...
    def hessian(self) -> Array: ...
    def hessian_product(self, direction: Array) -> Array: ...


PointT = TypeVar("PointT", bound=DescentPoint)
PointOut = TypeVar("PointOut", bound=DescentPoint, covariant=True)


class Objective(Protocol[PointOut]):
    @property
    def curvature(self) -> Curvature: ...
    @property
    def effort(self) -> float: ...
    def at(self, weights: Array) -> PointOut: ...


@dataclass(frozen=True, eq=False)
class Pull:
    """⟨b, u⟩ + (ρ/2)‖u − centre‖²: what an ADMM step adds to P."""

    linear: Array
    centre: Array
    strength: float

    def value(self, point: DescentPoint) -> float:
        away = point.weights - self.centre
        return point.value + float(self.linear @ point.weights) + 0.5 * self.strength * float(away @ away)

    def gradient(self, point: DescentPoint) -> Array:
        return point.gradient + self.linear + self.strength * (point.weights - self.centre)


class Found(NamedTuple, Generic[PointT]):
    """Result of a minimisation: the point, whether it converged, and the multiplications used."""

    point: PointT
    reached: bool
    effort: float


class Minimiser:
    """Minimise one objective after another, and keep the inverse of the last Hessian.

    Attributes
    ----------
    inverse
        Inverse of the last (convexified) Hessian, or None. It is the only state.
    """

    state_fields: ClassVar = {"inverse": Array | None}

    def __init__(self, method: Method = "auto", max_steps: int = 200) -> None:
        if method not in get_args(Method):
            raise InputError(f"local solver is {method!r}; choose one of {', '.join(map(repr, get_args(Method)))}")
        self.method = method
        self.max_steps = max_steps
        self.inverse: Array | None = None

    def minimise(self, objective: Objective[PointT], start: PointT, pull: Pull, tolerance: float) -> Found[PointT]:
        """Minimise from `start` until the gradient's largest entry is at most `tolerance`."""
        method = self._method(objective.curvature, len(start.weights))
        if method == "lbfgs":
            return _lbfgs(objective, start, pull, tolerance, self.max_steps)
        if method == "cg":
            return self._newton_cg(objective, start, pull, tolerance)
        return self._newton(objective, start, pull, tolerance)

    def _method(self, curvature: Curvature, weights: int) -> Method:
        if self.method != "auto":
            return self.method
        if curvature == "matrix" and weights <= DENSE_LIMIT:
            return "newton"
        return "lbfgs" if curvature == "none" else "cg"

    def forget(self) -> None:
        """Drop the inverse if the strength of the pull has changed."""
        self.inverse = None

    def _newton(self, objective: Objective[PointT], start: PointT, pull: Pull, tolerance: float) -> Found[PointT]:
        point, gradient, effort = start, pull.gradient(start), 0.0
        size = len(gradient)
        for _ in range(self.max_steps):
            norm = largest(gradient)
            if not np.isfinite(norm):
                raise DivergenceError("a local problem diverged; scale the features, or lower beta")
            if norm <= tolerance:
                return Found(point, True, effort)
            if self.inverse is not None:
                trial = objective.at(point.weights - self.inverse @ gradient)
                slope = pull.gradient(trial)
                effort += objective.effort + size**2
                if largest(slope) <= max(KEEP * norm, tolerance):
                    point, gradient = trial, slope
                    continue
            matrix = point.hessian()
            matrix[np.diag_indices(size)] += pull.strength
            self.inverse = convex_inverse(matrix)
            effort += objective.effort * size / 2 + size**3 / 3
            step = -self.inverse @ gradient
            after = _line_search(objective, point, pull, gradient, step)
            effort += objective.effort
            if after is None:
                return Found(point, False, effort)
            point, gradient = after, pull.gradient(after)
        return Found(point, largest(gradient) <= tolerance, effort)

    def _newton_cg(self, objective: Objective[PointT], start: PointT, pull: Pull, tolerance: float) -> Found[PointT]:
        point, gradient, effort = start, pull.gradient(start), 0.0
        for _ in range(self.max_steps):
            norm = largest(gradient)
            if norm <= tolerance:
                return Found(point, True, effort)
            step, products = _conjugate_gradients(point, pull, gradient, min(0.1, np.sqrt(norm)))
            effort += objective.effort * (products + 1)
            after = _line_search(objective, point, pull, gradient, step)
            if after is None:
                return Found(point, False, effort)
            point, gradient = after, pull.gradient(after)
        return Found(point, largest(gradient) <= tolerance, effort)


def largest(vector: Array) -> float:
    """Return max |entry|, zero for an empty array; faster than `np.max` on small vectors."""
    return float(abs(vector).max()) if len(vector) else 0.0


def convex_inverse(matrix: Array, floor: float = 1e-8) -> Array:
    """Invert a symmetric matrix, with negative curvature reversed.

    An inverse, not a factor: it is applied hundreds of times, and one product is cheaper than two triangular solves.
    """
    # Symmetric: the transpose has the memory layout that LAPACK needs.
    factor, failed = lapack.dpotrf(matrix.T, lower=1)
    if failed:
        factor, failed = lapack.dpotrf(convexified(matrix, floor), lower=1)
    if failed:
        raise DivergenceError("second derivatives are not finite; scale the features, or lower beta")
    lower, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
    inverse: Array = lower.T + lower
    inverse[np.diag_indices(len(inverse))] *= 0.5
    return np.ascontiguousarray(inverse)


def convexified(matrix: Array, floor: float = 1e-8) -> Array:
    """Replace eigenvalues of a symmetric matrix by their absolute values, at least `floor` times the largest."""
    if not np.isfinite(matrix).all():
        raise DivergenceError("second derivatives are not finite; scale the features, or lower beta")
    values, vectors = eigh(matrix)
    lifted = np.maximum(np.abs(values), max(floor * float(np.abs(values).max()), 1e-300))
    found: Array = (vectors * lifted) @ vectors.T
    return found


def _line_search(
    objective: Objective[PointT], point: PointT, pull: Pull, gradient: Array, step: Array
) -> PointT | None:
    """Take the first of 1, ½, ¼, ... of the step that descends enough; None if rounding hides every descent."""
    value, slope = pull.value(point), float(gradient @ step)
    norm = largest(gradient)
    length = 1.0
    while length > 1e-10:
        trial = objective.at(point.weights + length * step)
        now = pull.value(trial)
        if now <= value + ARMIJO * length * slope:
            return trial
        # Near the minimum the change of the value is below rounding; that of the gradient is not.
        if abs(now - value) <= 1e-12 * (1.0 + abs(value)) and largest(pull.gradient(trial)) < norm:
            return trial
        length *= 0.5
    return None


def _conjugate_gradients(point: DescentPoint, pull: Pull, gradient: Array, accuracy: float) -> tuple[Array, int]:
    """Return −H⁻¹g up to a relative accuracy; stop at negative curvature (Steihaug)."""
    step, residual = np.zeros_like(gradient), gradient.copy()
    direction, square = -residual, float(residual @ residual)
    goal = accuracy**2 * square
    for count in range(1, 10 * len(gradient) + 1):
        image = point.hessian_product(direction) + pull.strength * direction
        bend = float(direction @ image)
        if bend <= 1e-14 * float(direction @ direction):
            return (direction if count == 1 else step), count
        length = square / bend
        step = step + length * direction
        residual = residual + length * image
        before, square = square, float(residual @ residual)
        if square <= goal:
            return step, count
        direction = -residual + (square / before) * direction
    return step, 10 * len(gradient)


def _lbfgs(objective: Objective[PointT], start: PointT, pull: Pull, tolerance: float, max_steps: int) -> Found[PointT]:
    # Slow to import, and only models of many weights need it.
    from scipy.optimize import minimize

    known: dict[bytes, PointT] = {start.weights.tobytes(): start}

    def both(weights: Array) -> tuple[float, Array]:
        point = objective.at(weights.copy())
        known.clear()
        known[weights.tobytes()] = point
        return pull.value(point), pull.gradient(point)

    if largest(pull.gradient(start)) <= tolerance:
        return Found(start, True, 0.0)
    found = minimize(
        both,
        start.weights,
        jac=True,
        method="L-BFGS-B",
        options={"gtol": tolerance, "ftol": 0.0, "maxiter": max_steps * 20, "maxfun": max_steps * 40, "maxcor": 20},
    )
    point = known.get(found.x.tobytes()) or objective.at(found.x)
    reached = largest(pull.gradient(point)) <= tolerance
    return Found(point, reached, objective.effort * float(found.nfev))
