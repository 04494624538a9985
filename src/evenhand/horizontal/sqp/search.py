"""Sequential quadratic programming without messages: from functions at a point to the next trial points.

At w, with the inequalities of all holders stacked, one elastic quadratic program gives a step p and multipliers y.
Fractions of the step are evaluated by the merit function f + ν Σ violation. Safeguards:

- *Curvature.* Second derivatives of the Lagrangian are raised to at least a fraction of the objective's. A damping
  grows if no fraction of a step is acceptable, and decays after full steps.
- *Contradicting constraints.* The quadratic programs are elastic and raise ν. If that ends at a stationary point of the
  violation, the program is infeasible.
- *Maratos effect.* If curved constraints reject the step, a second-order correction is tried, along an arc. A full step
  that the merit function rejects is still taken if it halves the best residual so far. This happens only finitely
  often.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh, lapack, solve_triangular

from evenhand.arrays import Array
from evenhand.constraints.slices import Bounds
from evenhand.horizontal.sqp.options import LENGTHS
from evenhand.programs.elastic_qp import PENALTY_LIMIT, ConeRows, QuadraticStep, elastic_step
from evenhand.programs.minimise import ARMIJO, convexified
from evenhand.programs.optimality import Residual, is_infeasible, kkt_residual

NEGLIGIBLE = 1e-7
"""Multipliers below this, relative to the largest or to one, count as zero: interior-point methods give no zeros."""

LEAST = 0.2
"""Smallest curvature of the Lagrangian in a step's model, relative to the objective's."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """All functions at one w: value, gradient, inequalities, Jacobian, and curvature of Lagrangian and objective.

    `exact` holds the values of inequalities with counted people if rates are bounded; else it equals `rows`.
    `errors` holds their standard errors, if known.
    """

    weights: Array
    value: float
    gradient: Array
    rows: Array
    exact: Array
    errors: Array
    jacobian: Array
    curvature: Array
    objective_curvature: Array


@dataclass(frozen=True, eq=False)
class SQPModel:
    """Constants of the program.

    Attributes
    ----------
    bounds
        Bounds of all inequalities.
    allowed
        Violation of a constraint that does not count in the merit. Without it, the curvature of constraints, times ν,
        would reject every full step near the end.
    """

    bounds: Bounds
    allowed: float

    def missed(self, rows: Array) -> float:
        return float(np.maximum(np.abs(self.bounds.missed(rows)) - self.allowed, 0.0).sum())

    def cones(self, weights: Array) -> ConeRows | None:
        """Return convex parts of the objective beside f, for the quadratic programs at a point; none here."""
        return None

    def settled(self, trials: Array) -> Array:
        """Return trials in the domain of these parts."""
        return trials

    def merit(self, weights: Array, value: float, rows: Array, penalty: float) -> float:
        """Return f + ν Σ violation."""
        return value + penalty * self.missed(rows)

    def clean(self, net: Array) -> Array:
        """Set negligible multipliers to zero, and keep only signs that the bounds allow."""
        small = NEGLIGIBLE * max(1.0, float(np.max(np.abs(net), initial=0.0)))
        return self.bounds.net(self.bounds.of_net(np.where(np.abs(net) < small, 0.0, net)))

    def residual(self, evaluation: Evaluation, net: Array) -> Residual:
        table = self.bounds.table(self.bounds.of_net(net))
        slope = evaluation.gradient + net @ evaluation.jacobian
        return kkt_residual(evaluation.value, slope, [(self.bounds, evaluation.rows, table)])

    def step(self, evaluation: Evaluation, penalty: float, damping: float, rows: Array | None = None) -> QuadraticStep:
        """Solve the quadratic program at a point, with the values of inequalities there or given ones."""
        rows = evaluation.rows if rows is None else rows
        found = elastic_step(
            positive(evaluation.curvature, evaluation.objective_curvature, damping),
            evaluation.gradient,
            evaluation.jacobian,
            self.bounds.lower - rows,
            self.bounds.upper - rows,
            penalty,
            self.cones(evaluation.weights),
            0.5 * self.allowed,
        )
        return replace(found, net=self.clean(found.net))

    def corrected(self, evaluation: Evaluation, found: QuadraticStep, damping: float, rows: Array) -> Array:
        """Return a second-order correction: constraint values after the full step, minus their linear change."""
        return self.step(evaluation, found.penalty, damping, rows - evaluation.jacobian @ found.step).step

    def predicted(self, evaluation: Evaluation, found: QuadraticStep) -> float:
        """Return the change of the merit by the full step, as predicted by a linear model."""
        fall = self.missed(evaluation.rows + evaluation.jacobian @ found.step) - self.missed(evaluation.rows)
        return float(evaluation.gradient @ found.step) + found.penalty * fall

    def acceptable(
        self, evaluation: Evaluation, found: QuadraticStep, trials: Array, values: Array, rows: Array
    ) -> list[float]:
        """Return the merit of each fraction of the step; infinite if it does not decrease enough beyond rounding."""
        before = self.merit(evaluation.weights, evaluation.value, evaluation.rows, found.penalty)
        noise = 1e-13 * (abs(before) + found.penalty * 1e-3)
        fall = min(self.predicted(evaluation, found), 0.0)
        merits = []
        for length, trial, value, own in zip(LENGTHS, trials, values, rows, strict=True):
            after = self.merit(trial, float(value), own, found.penalty)
            good = np.isfinite(after) and after <= before + ARMIJO * length * fall + noise
            merits.append(after if good else np.inf)
        return merits

    def infeasible(self, evaluation: Evaluation, feasibility: float) -> bool:
        """Return whether the violation, Σ (excess)₊, is stationary here: whether it has a subgradient near zero.

        Constraints that are clearly met or violated have a fixed share in a subgradient, 0 or 1. The shares of the
        others minimise its norm.
        """
        bounds = self.bounds
        if bounds.violation(evaluation.rows) <= feasibility:
            return False
        excess = bounds.side_excess(evaluation.rows)
        sure = np.abs(excess) > feasibility
        share = np.where(bounds.free, np.sign(excess), (excess > 0.0).astype(np.float64))
        slopes = bounds.incidence @ evaluation.jacobian
        slope = share[sure] @ slopes[sure]
        if not sure.all():
            least = np.where(bounds.free[~sure], -1.0, 0.0)
            # Imported here, because it loads slowly and is needed only if constraints seem to contradict each other.
            from scipy.optimize import lsq_linear

            chosen = lsq_linear(slopes[~sure].T, -slope, (least, np.ones_like(least))).x
            slope = slope + chosen @ slopes[~sure]
        total = float(np.abs(bounds.missed(evaluation.rows)).sum())
        return is_infeasible(total, slope, evaluation.weights)

    def stuck(self, evaluation: Evaluation, found: QuadraticStep, feasibility: float) -> bool:
        """Return whether constraints are violated and, with this penalty ν, no step improves the merit."""
        small = 1e-6 * (1.0 + float(np.linalg.norm(evaluation.weights)))
        missing = self.bounds.violation(evaluation.rows) > feasibility
        return missing and found.penalty < PENALTY_LIMIT and float(np.linalg.norm(found.step)) <= small


def positive(curvature: Array, metric: Array, damping: float) -> Array:
    """Return the curvature H, raised to at least a fraction of the objective's M, plus a damping.

    In the metric of M (made positive definite) the eigenvalues of H below `LEAST` become `LEAST`. So negative curvature
    of the constraints gives steps of ordinary length, not long ones. If H is safely positive definite, it is unchanged.
    """
    size = len(curvature)
    bends, most = float(np.abs(metric.diagonal()).max()), float(np.abs(curvature.diagonal()).max())
    # If the objective has no curvature, use that of the constraints, or a constant.
    ridge = (1e-9 * bends if bends > 1e-9 * most else 1e-3 * most or 1e-3) * np.eye(size)
    metric, curvature = metric + ridge, curvature + 1e-9 * ridge
    factor, failed = lapack.dpotrf(metric, lower=1, clean=1)
    if not failed and not lapack.dpotrf(curvature - LEAST * metric, lower=1)[1]:
        # Nothing to raise; a factorisation shows this a dozen times faster than eigenvalues.
        return curvature + damping * metric
    if failed:
        factor = np.linalg.cholesky(convexified(metric, 1e-4))
    half = solve_triangular(factor, curvature, lower=True)
    values, vectors = eigh(solve_triangular(factor, half.T, lower=True))
    lifted = np.maximum(values, LEAST) + damping
    spread = factor @ vectors
    return (spread * lifted) @ spread.T


def bfgs(matrix: Array | None, step: Array, change: Array) -> Array:
    """Return Powell's damped BFGS update, for a step and the change of the Lagrangian's gradient."""
    square = float(step @ step)
    if square == 0.0:
        return np.eye(len(step)) if matrix is None else matrix
    if matrix is None:
        bend = float(change @ step) / square
        matrix = max(bend, 1e-4 * float(np.linalg.norm(change)) / np.sqrt(square), 1e-8) * np.eye(len(step))
    image = matrix @ step
    curve, model = float(change @ step), float(step @ image)
    share = 1.0 if curve >= 0.2 * model else 0.8 * model / (model - curve)
    mixed = share * change + (1.0 - share) * image
    return matrix - np.outer(image, image) / model + np.outer(mixed, mixed) / float(mixed @ step)
