"""Minimise a smooth function plus a regulariser, by proximal Newton steps.

    min over u:   P(u) + ⟨b, u⟩ + (ρ/2)‖u − centre‖² + h(u)

Each step minimises the quadratic model plus h by accelerated proximal gradients, which cost no pass over the data.
Without second derivatives the same iteration runs on the function itself.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import eigvalsh

from evenhand.arrays import Array
from evenhand.programs.minimise import ARMIJO, DENSE_LIMIT, Found, Minimiser, Objective, PointT, Pull, convexified
from evenhand_reproductions.programs.regularisers import Regulariser, Zero


def minimise_composite(
    minimiser: Minimiser,
    objective: Objective[PointT],
    start: PointT,
    pull: Pull,
    regulariser: Regulariser,
    tolerance: float,
) -> Found[PointT]:
    """Minimise from a point in h's domain until dist∞(0, ∂(...)) is at most `tolerance`."""
    if isinstance(regulariser, Zero):
        return minimiser.minimise(objective, start, pull, tolerance)
    if objective.curvature != "matrix" or len(start.weights) > DENSE_LIMIT:
        return _proximal_gradient(objective, start, pull, regulariser, tolerance)
    point, effort, size = start, 0.0, len(start.weights)
    for _ in range(minimiser.max_steps):
        gradient = pull.gradient(point)
        residual = regulariser.distance(point.weights, gradient)
        if residual <= tolerance:
            return Found(point, True, effort)
        matrix = point.hessian()
        matrix[np.diag_indices(size)] += pull.strength
        bends = eigvalsh(matrix)
        if bends[0] <= 0.0:
            matrix = convexified(matrix)
            bends = eigvalsh(matrix)
        goal = minimise_model(matrix, gradient, point.weights, regulariser, bends[-1], 0.1 * min(tolerance, residual))
        effort += objective.effort * size / 2
        after, tried = _descend(objective, point, pull, regulariser, gradient, goal - point.weights)
        effort += objective.effort * tried
        if after is None:
            return Found(point, False, effort)
        point = after
    return Found(point, regulariser.distance(point.weights, pull.gradient(point)) <= tolerance, effort)


def minimise_model(
    matrix: Array, gradient: Array, weights: Array, regulariser: Regulariser, largest: float, accuracy: float
) -> Array:
    """Return argmin over v of gᵀ(v − w) + ½ (v − w)ᵀH(v − w) + h(v)."""

    def slope(v: Array) -> Array:
        return gradient + matrix @ (v - weights)

    return accelerated(slope, weights, regulariser, largest, accuracy, 20000)


def accelerated(
    slope: Callable[[Array], Array], start: Array, regulariser: Regulariser, largest: float, accuracy: float, limit: int
) -> Array:
    """Run FISTA with restarts; `largest` bounds the smooth part's curvature."""
    point, ahead, momentum = start, start, 1.0
    for count in range(limit):
        after = regulariser.prox(ahead - slope(ahead) / largest, 1.0 / largest)
        if float((ahead - after) @ (after - point)) > 0.0:
            momentum, ahead = 1.0, point
            after = regulariser.prox(ahead - slope(ahead) / largest, 1.0 / largest)
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead = after + (momentum - 1.0) / following * (after - point)
        point, momentum = after, following
        if count % 5 == 0 and regulariser.distance(point, slope(point)) <= accuracy:
            break
    return point


def _descend(
    objective: Objective[PointT], point: PointT, pull: Pull, regulariser: Regulariser, gradient: Array, step: Array
) -> tuple[PointT | None, int]:
    """Take the first of 1, ½, ¼, ... of the step that lowers the sum enough; convexity keeps it in h's domain."""
    before = regulariser.value(point.weights)
    value = pull.value(point) + before
    predicted = float(gradient @ step) + regulariser.value(point.weights + step) - before
    residual = regulariser.distance(point.weights, gradient)
    length, tried = 1.0, 0
    while length > 1e-10:
        trial, tried = objective.at(point.weights + length * step), tried + 1
        now = pull.value(trial) + regulariser.value(trial.weights)
        if now <= value + ARMIJO * length * min(predicted, 0.0):
            return trial, tried
        drowned = abs(now - value) <= 1e-12 * (1.0 + abs(value))
        if drowned and regulariser.distance(trial.weights, pull.gradient(trial)) < residual:
            return trial, tried
        length *= 0.5
    return None, tried


def _proximal_gradient(
    objective: Objective[PointT], start: PointT, pull: Pull, regulariser: Regulariser, tolerance: float
) -> Found[PointT]:
    """Run accelerated proximal gradients with backtracking on the function itself."""
    point, ahead, momentum, bend = start, start, 1.0, max(pull.strength, 1e-3)
    effort = 0.0
    for _ in range(20000):
        if regulariser.distance(point.weights, pull.gradient(point)) <= tolerance:
            return Found(point, True, effort)
        gradient, value = pull.gradient(ahead), pull.value(ahead)
        while True:
            after = objective.at(regulariser.prox(ahead.weights - gradient / bend, 1.0 / bend))
            effort += objective.effort
            step = after.weights - ahead.weights
            bound = value + float(gradient @ step) + 0.5 * bend * float(step @ step)
            if pull.value(after) <= bound + 1e-12 * (1.0 + abs(value)) or bend > 1e15:
                break
            bend *= 2.0
        if float((ahead.weights - after.weights) @ (after.weights - point.weights)) > 0.0 and momentum > 1.0:
            ahead, momentum = point, 1.0
            continue
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead_weights = after.weights + (momentum - 1.0) / following * (after.weights - point.weights)
        point, momentum = after, following
        ahead = objective.at(ahead_weights)
        effort += objective.effort
    return Found(point, False, effort)
