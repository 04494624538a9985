"""One convex quadratic program with elastic rows, solved through its dual.

    min over p, t ≥ 0:   gᵀp + ½ pᵀHp + ρ Σ t    subject to   below − t ≤ J p ≤ above + t

The slack t makes every such program solvable: rows that cannot hold are missed by t, at the price ρ. The dual has one
unknown per row, the net multiplier y = λ⁺ − λ⁻:

    min over |y| ≤ ρ:    ½ (g + Jᵀy)ᵀ H⁻¹ (g + Jᵀy) + Σ max(above · y, below · y)

It is as small as the number of rows however many unknowns p has, and ρ enters it only as the side of a box.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from evenhand.arrays import Array, Booleans

PENALTY_LIMIT = 1e6
"""Largest ρ: rows that are still missed at this price count as impossible."""


@dataclass(frozen=True)
class ElasticStep:
    """Solution of the program.

    Attributes
    ----------
    step
        p.
    net
        y: positive where the upper side of a row holds p back, negative where the lower side does.
    missed
        Σ t, what the linearised rows still miss.
    decrement
        ½ (g + Jᵀy)ᵀ H⁻¹ (g + Jᵀy): what the quadratic model of the Lagrangian falls by. It does not depend on the
        units of the unknowns.
    penalty
        The ρ it was solved with.
    """

    step: Array
    net: Array
    missed: float
    decrement: float
    penalty: float


def elastic_step(
    root: Array, gradient: Array, jacobian: Array, below: Array, above: Array, penalty: float
) -> ElasticStep:
    """Solve the program for H⁻¹ = root · rootᵀ, raising ρ as far as the rows need; sides may be infinite.

    ρ is raised tenfold until the linearised rows fall by 0.9 of what they would fall by at `PENALTY_LIMIT` (the
    steering rule of Byrd, Nocedal and Waltz). So ρ stays moderate where rows can hold, and where they cannot it does
    not grow without end.
    """
    a = root.T @ gradient
    b = root.T @ jacobian.T
    quadratic, linear = b.T @ b, b.T @ a

    def solve(rho: float) -> ElasticStep:
        net = minimise_kinked(quadratic, linear, below, above, rho)
        whitened = a + b @ net
        step = -(root @ whitened)
        return ElasticStep(step, net, missed(jacobian @ step, below, above), 0.5 * float(whitened @ whitened), rho)

    found = solve(penalty)
    if float(np.max(np.abs(found.net), initial=0.0)) < penalty:
        return found
    least = solve(PENALTY_LIMIT).missed
    now = missed(np.zeros_like(below), below, above)
    enough = least + 0.1 * max(now - least, 0.0) + 1e-12
    while found.missed > enough and found.penalty < PENALTY_LIMIT:
        found = solve(min(10.0 * found.penalty, PENALTY_LIMIT))
    return found


def missed(values: Array, below: Array, above: Array) -> float:
    """Σ of the amounts by which values leave [below, above]."""
    return float((np.maximum(values - above, 0.0) + np.maximum(below - values, 0.0)).sum())


def minimise_kinked(
    quadratic: Array, linear: Array, below: Array, above: Array, side: float, sweeps: int = 200
) -> Array:
    """argmin ½ yᵀQy + qᵀy + Σ max(above · y, below · y) over |y| ≤ side; Q positive semidefinite, below ≤ above.

    Sweeps of exact coordinate minimisations settle the signs; a Newton step on the coordinates that are neither zero
    nor at the side, within their signs, then finishes in a few iterations.
    """
    y = np.zeros(len(linear))
    if not len(y):
        return y
    # Pairwise rows of several groups are linearly dependent, and so is Q; the ridge picks one of the many solutions.
    ridge = 1e-13 * max(float(np.trace(quadratic)), 1e-300)
    matrix = quadratic + ridge * np.eye(len(y))
    small = 1e-13 * (1.0 + float(np.abs(linear).max()))
    for _ in range(sweeps):
        before = y.copy()
        for i in range(len(y)):
            rest = float(matrix[i] @ y) - matrix[i, i] * y[i] + linear[i]
            if rest + above[i] < 0.0:
                y[i] = min(-(rest + above[i]) / matrix[i, i], side)
            elif rest + below[i] > 0.0:
                y[i] = max(-(rest + below[i]) / matrix[i, i], -side)
            else:
                y[i] = 0.0
        slope = matrix @ y + linear + np.where(y > 0.0, above, np.where(y < 0.0, below, 0.0))
        free = (y != 0.0) & ((np.abs(y) < side) | (slope * y > 0.0))
        settled = bool(np.array_equal(np.sign(y), np.sign(before)))
        if settled and (not free.any() or float(np.abs(slope[free]).max()) <= small):
            break
        if free.any():
            y = _newton(matrix, y, slope, free, side)
    return y


def _newton(matrix: Array, y: Array, slope: Array, free: Booleans, side: float) -> Array:
    """A Newton step on the free coordinates, kept within their signs and halved until it lowers the quadratic."""
    move = np.zeros_like(y)
    move[free] = -cho_solve(cho_factor(matrix[np.ix_(free, free)]), slope[free])
    low, high = np.where(y < 0.0, -side, 0.0), np.where(y > 0.0, side, 0.0)
    for halving in range(12):
        change = np.clip(y + 0.5**halving * move, low, high) - y
        if float(slope @ change + 0.5 * change @ matrix @ change) < 0.0:
            return y + change
    return y
