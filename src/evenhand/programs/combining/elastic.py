"""Solve a convex quadratic program with elastic rows through its dual.

    min over p, t ≥ 0:   gᵀp + ½ pᵀHp + ρ Σ t    subject to   below − t ≤ J p ≤ above + t

The slack t makes every program feasible: rows that cannot hold are violated by t, at the price ρ. The dual has one
unknown per row, the net multiplier y = λ⁺ − λ⁻:

    min over |y| ≤ ρ:    ½ (g + Jᵀy)ᵀ H⁻¹ (g + Jᵀy) + Σ max(above · y, below · y)

Its size is the number of rows, whatever the size of p, and ρ is the side of a box. Bounds on entries of p are rows
that must hold: they have no slack, and their multipliers no limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from evenhand.arrays import Array, Booleans

PENALTY_LIMIT = 1e6
"""Largest ρ: rows that are still missed at this price count as impossible."""


class Box(NamedTuple):
    """Lower and upper bounds on the unknowns; infinite where there are none, and with zero inside."""

    lower: Array
    upper: Array

    @property
    def bounded(self) -> Booleans:
        """Which unknowns have a bound."""
        found: Booleans = np.isfinite(self.lower) | np.isfinite(self.upper)
        return found


@dataclass(frozen=True)
class ElasticStep:
    """Solution of the program.

    Attributes
    ----------
    step
        p.
    net
        y: positive where the upper bound of a row is active, negative where the lower bound is.
    missed
        Σ t, the violations of the linearised rows.
    decrement
        ½ (g + Jᵀy)ᵀ H⁻¹ (g + Jᵀy): the decrease of the quadratic model of the Lagrangian. It does not depend on the
        units of the unknowns.
    penalty
        ρ of the solution.
    """

    step: Array
    net: Array
    missed: float
    decrement: float
    penalty: float


def elastic_step(
    root: Array, gradient: Array, jacobian: Array, below: Array, above: Array, penalty: float, box: Box | None = None
) -> ElasticStep:
    """Solve the program for H⁻¹ = root · rootᵀ, raising ρ as far as the rows need; bounds may be infinite.

    `box` bounds the entries of p.

    ρ is raised tenfold until the linearised rows fall by 0.9 of what they would fall by at `PENALTY_LIMIT` (the
    steering rule of Byrd, Nocedal and Waltz). So ρ stays moderate where rows can hold, and bounded
    where they cannot.
    """
    a, rows = root.T @ gradient, len(jacobian)
    b, least, most = root.T @ jacobian.T, below, above
    if box is not None:
        # In units in which these rows weigh as much as others.
        sizes = np.sqrt((root**2).sum(axis=1))
        held = box.bounded & (sizes > 0.0)
        units = sizes[held]
        b = np.hstack([b, root.T[:, held] / units])
        least, most = np.append(below, box.lower[held] / units), np.append(above, box.upper[held] / units)
    quadratic, linear, sides = b.T @ b, b.T @ a, np.full(b.shape[1], np.inf)

    def solve(rho: float) -> ElasticStep:
        sides[:rows] = rho
        net = minimise_kinked(quadratic, linear, least, most, sides)
        whitened = a + b @ net
        step = -(root @ whitened)
        miss = missed(jacobian @ step, below, above)
        return ElasticStep(step, net[:rows], miss, 0.5 * float(whitened @ whitened), rho)

    found = solve(penalty)
    if float(np.max(np.abs(found.net), initial=0.0)) < penalty:
        return found
    fewest = solve(PENALTY_LIMIT).missed
    now = missed(np.zeros_like(below), below, above)
    enough = fewest + 0.1 * max(now - fewest, 0.0) + 1e-12
    while found.missed > enough and found.penalty < PENALTY_LIMIT:
        found = solve(min(10.0 * found.penalty, PENALTY_LIMIT))
    return found


def missed(values: Array, below: Array, above: Array) -> float:
    """Return the sum of the violations of [below, above]."""
    return float((np.maximum(values - above, 0.0) + np.maximum(below - values, 0.0)).sum())


def minimise_kinked(quadratic: Array, linear: Array, below: Array, above: Array, side: Array) -> Array:
    """Return argmin ½ yᵀQy + qᵀy + Σ max(above · y, below · y) over |y| ≤ side; Q positive semidefinite, below ≤ above.

    Sides may be infinite.

    An active-set method: fixed coordinates are at zero (the kink) or at the side. The free ones take Newton steps, cut
    where the first of them becomes fixed. When the free ones are stationary, the fixed coordinate that gains most is
    freed. Every iteration lowers the objective and there are finitely many sets, so it terminates.
    """
    y = np.zeros(len(linear))
    if not len(y):
        return y
    # Pairwise rows of several groups make Q singular; the ridge picks one of the solutions.
    matrix = quadratic + (1e-13 * float(np.trace(quadratic)) or 1e-13) * np.eye(len(y))
    small = 1e-13 * (1.0 + float(np.abs(linear).max()))
    sign, free = np.zeros(len(y)), np.zeros(len(y), dtype=bool)
    for _ in range(100 + 20 * len(y)):
        slope = matrix @ y + linear
        up, down = -(slope + above), slope + below
        # A coordinate at zero may move up or down; one at the side, inwards only.
        gain = np.where(sign == 0.0, np.maximum(up, down), np.where(sign > 0.0, -up, -down))
        gain[free] = 0.0
        best = int(np.argmax(gain))
        if gain[best] <= small:
            break
        if sign[best] == 0.0:
            sign[best] = 1.0 if up[best] >= down[best] else -1.0
        free[best] = True
        y = _settle(matrix, linear, below, above, y, sign, free, side)
    return y


def _settle(
    matrix: Array, linear: Array, below: Array, above: Array, y: Array, sign: Array, free: Booleans, side: Array
) -> Array:
    """Take Newton steps on the free coordinates until one is not cut; newly fixed ones leave `free` and `sign`."""
    y = y.copy()
    while free.any():
        here = np.flatnonzero(free)
        slope = (matrix @ y + linear)[here] + np.where(sign[here] > 0.0, above[here], below[here])
        _, solved, failed = lapack.dposv(matrix[np.ix_(here, here)], slope)
        if failed:
            raise np.linalg.LinAlgError(f"minor {failed} of a quadratic program is not positive definite")
        move = -solved
        rest = np.where(move * sign[here] > 0.0, side[here] * sign[here], 0.0)
        room = np.divide(rest - y[here], move, out=np.full(len(here), np.inf), where=move != 0.0)
        first = int(np.argmin(room))
        y[here] += min(max(room[first], 0.0), 1.0) * move
        if room[first] >= 1.0:
            break
        resting = here[first]
        y[resting], free[resting] = rest[first], False
        sign[resting] = np.sign(rest[first])
    return y
