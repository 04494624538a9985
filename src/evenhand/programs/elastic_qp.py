"""Solve a convex quadratic program with elastic inequalities, by one factorisation where possible, else by Clarabel.

    min over p, t ≥ 0:   gᵀp + ½ pᵀHp + ν Σ t    subject to    below − t ≤ J p ≤ above + t

The slack t makes every program feasible: inequalities that cannot hold are violated by t, at the price ν. More convex
parts of the objective can be added as cones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import clarabel
import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack

from evenhand.arrays import Array
from evenhand.errors import DivergenceError

PENALTY_LIMIT = 1e6
"""Largest ν: inequalities that are still missed at this price count as impossible."""
ROUNDING = 1e-13
"""What an inequality may be beyond its bound and count as on it, relative to its size."""
MOST_GUESSES = 8
"""Most guesses at which inequalities are on their bounds, before the interior-point method is asked."""
TOLERANCES = (1e-11, 1e-8)
"""Of the interior-point method: the second is for programs too badly scaled for the first."""


@dataclass(frozen=True, eq=False)
class QuadraticStep:
    """Solution of the program.

    Attributes
    ----------
    step
        p.
    net
        y = λ⁺ − λ⁻ of each row.
    missed
        Sum of the violations of the linearised inequalities.
    penalty
        ν of the solution.
    """

    step: Array
    net: Array
    missed: float
    penalty: float


class ConeRows(NamedTuple):
    """More parts of the program: the cost of extra unknowns, and rows with bounds and cones in Clarabel's form."""

    cost: Array
    rows: Array
    bounds: Array
    cones: list[Any]


def elastic_step(
    matrix: Array,
    gradient: Array,
    jacobian: Array,
    below: Array,
    above: Array,
    penalty: float,
    cones: ConeRows | None = None,
    tolerance: float = 1e-9,
) -> QuadraticStep:
    """Solve the program, raising ν as far as the inequalities need; bounds may be infinite.

    ν is raised tenfold until the linearised inequalities fall by 0.9 of what they would fall by at `PENALTY_LIMIT` (the
    steering rule of Byrd, Nocedal and Waltz), so it stays moderate where inequalities can hold. A total violation below
    `tolerance` does not raise ν.
    """
    direct = None if cones is not None else _Direct(matrix, gradient, jacobian, below, above)
    if direct is not None and (below == above).all():
        # Equalities that can hold do hold, for any ν above their multipliers.
        held = direct.solve(PENALTY_LIMIT)
        if held is not None and held.missed <= tolerance:
            while penalty < float(np.abs(held.net).max(initial=0.0)):
                penalty = min(10.0 * penalty, PENALTY_LIMIT)
            return replace(held, penalty=penalty)
    interior: list[_Problem] = []

    def solve(penalty: float) -> QuadraticStep:
        found = None if direct is None else direct.solve(penalty)
        if found is None:
            if not interior:
                interior.append(_Problem(matrix, gradient, jacobian, below, above, cones))
            found = interior[0].solve(penalty)
        return found

    found = solve(penalty)
    if found.missed <= tolerance or penalty >= PENALTY_LIMIT:
        return found
    now, least = missed(np.zeros(len(below)), below, above), solve(PENALTY_LIMIT).missed
    enough = least + 0.1 * max(now - least, 0.0) + tolerance
    while found.missed > enough and found.penalty < PENALTY_LIMIT:
        found = solve(min(10.0 * found.penalty, PENALTY_LIMIT))
    return found


class _Direct:
    """The program by one factorisation of H, and a guess of the active and the violated inequalities.

    An active inequality has the multiplier that puts it on its bound; one that would need more than ν is violated.
    A guess that turns out right is the exact solution.
    """

    def __init__(self, matrix: Array, gradient: Array, jacobian: Array, below: Array, above: Array) -> None:
        self.jacobian, self.below, self.above, self.equal = jacobian, below, above, below == above
        factor, self.failed = lapack.dpotrf(matrix, lower=1)
        if not self.failed:
            # Direct LAPACK calls: for few weights scipy's checks take longer than the solve.
            self.behind = lapack.dpotrs(factor, np.column_stack([gradient, jacobian.T]), lower=1)[0]
            self.free, self.inner = -(jacobian @ self.behind[:, 0]), jacobian @ self.behind[:, 1:]
            self.room = ROUNDING * (1.0 + np.abs(self.free))

    def solve(self, penalty: float) -> QuadraticStep | None:
        """Return the solution; None if a factorisation fails or the guesses cycle."""
        net = None if self.failed else self._net(penalty)
        if net is None:
            return None
        step = -(self.behind[:, 0] + self.behind[:, 1:] @ net)
        return QuadraticStep(step, net, missed(self.jacobian @ step, self.below, self.above), penalty)

    def _net(self, penalty: float) -> Array | None:
        free, inner, equal = self.free, self.inner, self.equal
        high, low = self.above + self.room, self.below - self.room
        values, net, priced = free, np.zeros(len(free)), np.zeros(len(free))
        for _ in range(MOST_GUESSES):
            over, under = (values > high) | (net > 0.0), (values < low) | (net < 0.0)
            held = np.flatnonzero((over | under | equal) & (priced == 0.0))
            root, failed = lapack.dpotrf(inner[np.ix_(held, held)], lower=1)
            if failed:
                return None
            net = priced.copy()
            if len(held):
                targets = np.where(over, self.above, self.below)[held]
                net[held] = lapack.dpotrs(root, free[held] - inner[held] @ priced - targets, lower=1)[0]
            values = free - inner @ net
            # A multiplier of the wrong sign: the inequality is not active. A multiplier of ν: it is violated.
            wrong = ~equal & ((over & (net < 0.0)) | (under & (net > 0.0)))
            dear = ~wrong & (np.abs(net) > penalty)
            within = ((priced > 0.0) & (values < self.above - self.room)) | (
                (priced < 0.0) & (values > self.below + self.room)
            )
            beyond = (priced == 0.0) & ((values > high) | (values < low))
            if not (wrong | dear | within | beyond).any():
                return net
            net[wrong] = 0.0
            priced = np.where(dear, np.sign(net) * penalty, np.where(within, 0.0, priced))
        return None


def missed(values: Array, below: Array, above: Array) -> float:
    """Return the sum of the violations of [below, above]."""
    return float((np.maximum(values - above, 0.0) + np.maximum(below - values, 0.0)).sum())


class _Problem:
    """The program in Clarabel's form: min ½xᵀPx + qᵀx subject to Ax + s = b, s in a product of cones."""

    def __init__(
        self, matrix: Array, gradient: Array, jacobian: Array, below: Array, above: Array, cones: ConeRows | None
    ) -> None:
        self.size = len(gradient)
        self.matrix, self.gradient, self.jacobian = matrix, gradient, jacobian
        self.below, self.above = below, above
        self.upper, self.lower = np.flatnonzero(np.isfinite(above)), np.flatnonzero(np.isfinite(below))
        self.slacks = len(self.upper) + len(self.lower)
        part = cones or ConeRows(np.zeros(0), np.zeros((0, self.size)), np.zeros(0), [])
        known = self.size + len(part.cost)
        # Filled in dense form: the programs are small, and assembling sparse blocks would cost more than solving them.
        quadratic = np.zeros((known + self.slacks, known + self.slacks))
        quadratic[: self.size, : self.size] = np.triu(matrix)
        rows = np.zeros((2 * self.slacks + len(part.rows), known + self.slacks))
        rows[: self.slacks, : self.size] = np.vstack([jacobian[self.upper], -jacobian[self.lower]])
        rows[: self.slacks, known:] = rows[self.slacks : 2 * self.slacks, known:] = -np.eye(self.slacks)
        rows[2 * self.slacks :, :known] = part.rows
        self.quadratic, self.rows = _by_columns(quadratic), _by_columns(rows)
        self.bounds = np.concatenate([above[self.upper], -below[self.lower], np.zeros(self.slacks), part.bounds])
        self.cost = part.cost
        self.cones = [*([clarabel.NonnegativeConeT(2 * self.slacks)] if self.slacks else []), *part.cones]

    def solve(self, penalty: float) -> QuadraticStep:
        if not self.cones:
            newton: Array = np.asarray(-np.linalg.solve(self.matrix, self.gradient), dtype=np.float64)
            return QuadraticStep(newton, np.zeros(len(self.above)), 0.0, penalty)
        linear = np.concatenate([self.gradient, self.cost, np.full(self.slacks, penalty)])
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_threads = 1
        for tolerance in TOLERANCES:
            settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
            solver = clarabel.DefaultSolver(self.quadratic, linear, self.rows, self.bounds, self.cones, settings)
            solution = solver.solve()
            found: Array = np.array(solution.x, dtype=np.float64)
            if np.isfinite(found).all() and "Solved" in str(solution.status):
                break
        else:
            raise DivergenceError(
                f"a quadratic program of a round was not solved ({solution.status}); scale the features, or add a "
                "regulariser"
            )
        duals = np.array(solution.z)
        net = np.zeros(len(self.above))
        net[self.upper] += duals[: len(self.upper)]
        net[self.lower] -= duals[len(self.upper) : len(self.upper) + len(self.lower)]
        step = found[: self.size]
        return QuadraticStep(step, net, missed(self.jacobian @ step, self.below, self.above), penalty)


def _by_columns(dense: Array) -> sp.csc_array:
    """Return `csc_array(dense)`, three times as fast."""
    columns, rows = np.nonzero(dense.T)
    ends = np.concatenate([[0], np.cumsum(np.bincount(columns, minlength=dense.shape[1]))])
    return sp.csc_array((dense[rows, columns], rows, ends), shape=dense.shape)
