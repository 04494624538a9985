"""Solve the tiny constrained problem of a subspace round: combine a few known columns of scores.

    min over α:   F(α) = mean loss(z₀ + C α) + c + bᵀα + ½ αᵀGα
    subject to    lower ≤ rows(z₀ + C α) ≤ upper,   and α in a box

with n rows of data, p columns (a few dozen; see `columns.py`) and R inequalities. The method is sequential quadratic
programming with four safeguards:

- *Curvature.* H = Cᵀ diag(w) C + G with w = ∂²f/∂z². Tilts and sigmoids make w negative somewhere. H is split into
  H₊ (rows of data with w ≥ 0, and G) and H₋ (the others); in the metric of H₊ the eigenvalues of H are 1 + e with
  e ≤ 0, and those below a floor are lifted to it. A safely positive definite H is not changed.
- *Infeasible rows.* Each step is an elastic quadratic program (`elastic_step`), which always has a solution.
- *Descent.* A step must lower the exact penalty φ(α) = F(α) + ρ Σ (excess)₊; one second-order correction is tried
  first where the curvature of the rows would forbid the full step (Maratos' effect).
- *Feasibility.* What is returned never violates the rows more than the start did (beyond the tolerance), so the
  violation falls from round to round whatever the columns are.

Results do not depend on the units of the columns; zero, repeated and dependent columns are allowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np
from scipy.linalg import eigh, lapack, solve_triangular

from evenhand.arrays import ALL, Array, Booleans, Rows
from evenhand.constraints.evaluation import Lagrangian, Point
from evenhand.errors import DivergenceError
from evenhand.programs.combining.columns import Columns, DenseColumns, SampledColumns
from evenhand.programs.combining.elastic import Box, ElasticStep, elastic_step, missed

CURVATURE_FLOOR = 0.3
"""Smallest eigenvalue of the Hessian in the metric of its positive part."""
CHORD = 1e-4
"""Below this decrement a full step may be followed by one with the same Hessian: Newton's method is then so close
that the passes over the data for a new Hessian buy nothing."""
RIDGE = 1e-11
"""Added to the unit diagonal of the scaled Hessian, so that dependent columns share their weight."""


AT_BOUND = 1e-9
"""Distance from a bound, relative to it where it is above 1, at which a coefficient is at the bound."""
SQUARED_SINE = 1e-8
"""A vector closer than this to the span of others adds nothing but rounding."""


class Status(Enum):
    CONVERGED = "converged"
    INFEASIBLE = "infeasible"
    """The rows cannot hold within these columns; their violation is as small as it gets nearby."""
    STALLED = "stalled"
    """No step improves within the precision of the arithmetic, though the tolerance is not met."""
    LIMIT = "iteration limit"


@dataclass(frozen=True)
class Quadratic:
    """c + bᵀα + ½ αᵀGα: the parties' regulariser as a function of the coefficients."""

    gram: Array
    linear: Array
    constant: float = 0.0

    def value(self, coefficients: Array) -> float:
        return self.constant + float(coefficients @ (self.linear + 0.5 * self.gram @ coefficients))


@dataclass(frozen=True)
class ReducedSolution:
    """Solution of the tiny problem.

    Attributes
    ----------
    coefficients
        α.
    multipliers
        λ, (2, R), non-negative: upper sides first.
    point
        The Lagrangian at z₀ + C α, with values and derivatives that were computed.
    objective
        F(α).
    stationarity
        max |∂(F + λ·rows)/∂α|, each column in units that make its curvature one.
    decrement
        Further decrease of the objective within these columns, by a quadratic model.
    violation, complementarity
        Largest violation of a row; largest multiplier × slack.
    penalty
        ρ of the merit function at the end.
    root
        W with W Wᵀ = H⁻¹, for the Hessian of the last step.
    """

    coefficients: Array
    multipliers: Array
    point: Point
    objective: float
    stationarity: float
    decrement: float
    violation: float
    complementarity: float
    penalty: float
    root: Array
    status: Status
    iterations: int


class _Trial:
    """Coefficients with their objective and rows; each quantity is computed once, when first asked for."""

    def __init__(self, search: _Search, coefficients: Array, point: Point | None = None) -> None:
        self._search = search
        self.coefficients = coefficients
        self.point = search.at(coefficients) if point is None else point

    @cached_property
    def objective(self) -> float:
        return self.point.loss + self._search.regulariser.value(self.coefficients)

    @cached_property
    def missed(self) -> float:
        """Sum of the rows' violations."""
        rows = self._search.rows
        return missed(self.point.values, rows.bounds.lower, rows.bounds.upper)

    def merit(self, penalty: float) -> float:
        return self.objective + penalty * self.missed

    @cached_property
    def slopes(self) -> tuple[Array, Array]:
        """∇F, and the derivative in α of every row's value."""
        search, rows = self._search, self._search.rows
        gradient = search.columns.sums(self.point.derivative(rows.bounds.no_multipliers()))
        gradient += search.regulariser.linear + search.regulariser.gram @ self.coefficients
        return gradient, self.point.jacobian(search.columns.tilted_sums, len(self.coefficients))


def solve_reduced(
    lagrangian: Lagrangian,
    scores: Array,
    columns: Array | Columns,
    regulariser: Quadratic,
    multipliers: Array,
    *,
    start: Array | None = None,
    penalty: float = 1.0,
    tolerance: float = 1e-9,
    feasibility: float = 1e-7,
    limit: int = 50,
    sample: SampledColumns | None = None,
    root: Array | None = None,
    known: Point | None = None,
    box: Box | None = None,
) -> ReducedSolution:
    """Minimise over the coefficients of `columns`; see the module for the problem.

    Parameters
    ----------
    columns
        C, (n, p): an array, not copied if it is in Fortran order; or another `Columns` object.
    multipliers
        λ to start from; they shape the first Hessian only.
    start
        Coefficients to start from; None is zero.
    penalty
        ρ to start from; it is raised when the rows need it.
    tolerance
        Stop when the decrement is at most this, relative to 1 + |F|.
    feasibility
        Stop when violation and complementarity are at most this.
    limit
        Largest number of steps.
    sample
        Rows of data to compute the curvature from; None means all.
    root
        `ReducedSolution.root` of a similar problem, to start from.
    known
        The Lagrangian at `scores`, as far as it has been computed.
    box
        Bounds on α. A start is moved inside, and every trial keeps them.
    """
    given = DenseColumns(columns) if isinstance(columns, np.ndarray) else columns
    search = _Search(lagrangian, scores, given, regulariser, sample, box)
    if start is None:
        first = _Trial(search, np.zeros(given.width), lagrangian.at(scores) if known is None else known)
    else:
        first = _Trial(search, start if box is None else np.clip(start, *box))
    return search.run(first, multipliers, penalty, tolerance, feasibility, limit, root)


class _Search:
    """The problem's data, and its passes over the rows of data."""

    def __init__(
        self,
        lagrangian: Lagrangian,
        scores: Array,
        columns: Columns,
        regulariser: Quadratic,
        sample: SampledColumns | None,
        box: Box | None,
    ) -> None:
        self.box = box
        self.lagrangian = lagrangian
        self.rows = lagrangian.constraints
        self.start = scores
        self.columns = columns
        self.regulariser = regulariser
        self.sample = sample

    def run(
        self,
        now: _Trial,
        multipliers: Array,
        penalty: float,
        tolerance: float,
        feasibility: float,
        limit: int,
        given: Array | None,
    ) -> ReducedSolution:
        # Largest sum of violations that are each within the tolerance.
        allowed = max(feasibility, now.point.violation), max(feasibility * len(self.rows), now.missed)
        safe = now
        status, chord, last = Status.LIMIT, given is not None, np.inf
        root = np.zeros((self.columns.width, self.columns.width)) if given is None else given
        iteration = 0
        while True:
            found = self.step(now, root, penalty) if chord else None
            if found is None or found.decrement > 0.2 * last:
                chord, root = False, self.inverse_root(now.point, multipliers)
                found = self.step(now, root, penalty)
            penalty, last = found.penalty, found.decrement
            multipliers = np.stack([np.maximum(found.net, 0.0), np.maximum(-found.net, 0.0)])
            slack = max(now.point.violation, self.rows.bounds.complementarity(now.point.values, multipliers))
            if found.decrement <= tolerance * (1.0 + abs(now.objective)) and slack <= feasibility:
                status = Status.CONVERGED
                break
            if iteration == limit:
                break
            iteration += 1
            after = self.search(now, root, found)
            if after is None and chord:
                chord, last = False, -np.inf
                continue
            if after is None and self.sample is not None:
                self.sample, last = None, -np.inf
                continue
            if after is None:
                status = Status.INFEASIBLE if now.point.violation > feasibility else Status.STALLED
                break
            now, full = after
            chord = full and found.decrement < CHORD
            if not full:
                # The sample may be misleading: use all rows.
                self.sample = None
            if now.point.violation <= allowed[0] and now.missed <= allowed[1]:
                safe = now
        return self.finish(safe, multipliers, penalty, root, status, iteration)

    def at(self, coefficients: Array) -> Point:
        scores = self.columns.scores(coefficients)
        scores += self.start
        return self.lagrangian.at(scores)

    def step(self, now: _Trial, root: Array, penalty: float, values: Array | None = None) -> ElasticStep:
        """Solve the quadratic program at a trial; other `values` of the rows than its own correct for curvature."""
        values = now.point.values if values is None else values
        bounds, box, at = self.rows.bounds, self.box, now.coefficients
        room = None if box is None else Box(box.lower - at, box.upper - at)
        return elastic_step(root, *now.slopes, bounds.lower - values, bounds.upper - values, penalty, room)

    def moved(self, now: _Trial, step: Array) -> _Trial:
        """Return the trial after a step; coefficients that are about at a bound are exactly there."""
        to = now.coefficients + step
        if self.box is not None:
            for side in self.box:
                near = np.abs(to - side) <= AT_BOUND * np.maximum(1.0, np.abs(side))
                to = np.where(np.isfinite(side) & near, side, to)
            to = np.clip(to, *self.box)
        return _Trial(self, to)

    def inverse_root(self, point: Point, multipliers: Array) -> Array:
        """W with W Wᵀ = H⁻¹ for the convexified Hessian H of the Lagrangian."""
        columns, rows, stands_for = self.sample or SampledColumns(self.columns, ALL, 1.0)
        convex, concave = self._curvature(point, multipliers, rows, stands_for)
        positive = columns.add_gram(self.regulariser.gram, convex)
        if not np.isfinite(positive).all():
            raise DivergenceError("scores or columns of a subspace round are not finite; check the parties' columns")
        size = np.sqrt(positive.diagonal())
        units = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0.0)
        positive *= units * units[:, None]
        factor, failed, ridge = None, 1, RIDGE
        while failed:
            np.fill_diagonal(positive, 1.0 + ridge)
            factor, failed = lapack.dpotrf(positive, lower=1)
            ridge *= 100.0
        root: Array = solve_triangular(factor, np.diag(units), lower=True).T
        if concave.any():
            values, vectors = eigh(columns.whitened_gram(root, concave))
            root = root @ (vectors / np.sqrt(np.maximum(1.0 - values, CURVATURE_FLOOR)))
        return root

    def _curvature(
        self, point: Point, multipliers: Array, rows: Rows, stands_for: Array | float
    ) -> tuple[Array, Array]:
        """Return a positive semi-definite part of the curvature of these rows, and what to subtract from it."""
        weights = point.curvature(multipliers, rows) * stands_for
        # Saturated scores have no curvature left; the floor keeps Newton steps finite.
        bound = self.lagrangian.loss.curvature_bound / point.scores.shape[-1]
        floor = 1e-7 * (bound if np.isfinite(bound) else float(np.abs(weights).mean()))
        if weights.ndim == 1:
            return np.maximum(weights, floor), np.maximum(-weights, 0.0)
        convex, every = point.loss_curvature(rows) * stands_for, np.arange(len(weights))
        concave = convex - weights
        convex[every, every] += floor
        return convex, concave

    def search(self, now: _Trial, root: Array, found: ElasticStep) -> tuple[_Trial, bool] | None:
        """Return a trial with a lower merit, and whether it took the full step; None if there is none."""
        gradient, jacobian = now.slopes
        penalty, merit = found.penalty, now.merit(found.penalty)
        predicted = float(gradient @ found.step) + penalty * (found.missed - now.missed)
        # Rounding error of the merit; a smaller change is no descent.
        noise = 1e-14 * (abs(now.objective) + penalty * (now.missed + 1e-3))
        if predicted > -noise:
            return None
        length = 1.0
        while length > 1e-9:
            trial = self.moved(now, length * found.step)
            if trial.merit(penalty) <= merit + 1e-4 * length * predicted + noise:
                return trial, length == 1.0
            if length == 1.0 and trial.missed > now.missed:
                # Second-order correction: the rows after the step, minus their linear part.
                bent = trial.point.values - jacobian @ found.step
                corrected = self.moved(now, self.step(now, root, penalty, bent).step)
                if corrected.merit(penalty) <= merit + 1e-4 * predicted + noise:
                    return corrected, True
            length *= 0.5 if np.isfinite(trial.objective) else 0.1
        return None

    def finish(
        self, trial: _Trial, multipliers: Array, penalty: float, root: Array, status: Status, iterations: int
    ) -> ReducedSolution:
        gradient, jacobian = trial.slopes
        slope = gradient + (multipliers[0] - multipliers[1]) @ jacobian
        if self.box is not None:
            # The multiplier of a bound takes up what would lead beyond it.
            at, (lower, upper) = trial.coefficients, self.box
            slope = np.where(((at <= lower) & (slope > 0.0)) | ((at >= upper) & (slope < 0.0)), 0.0, slope)
        whitened = root.T @ slope
        units = np.sqrt((root**2).sum(axis=1))
        return ReducedSolution(
            coefficients=trial.coefficients,
            multipliers=multipliers,
            point=trial.point,
            objective=trial.objective,
            stationarity=float(np.max(np.abs(slope) * units, initial=0.0)),
            decrement=0.5 * float(whitened @ whitened),
            violation=trial.point.violation,
            complementarity=self.rows.bounds.complementarity(trial.point.values, multipliers),
            penalty=penalty,
            root=root,
            status=status,
            iterations=iterations,
        )


def independent(gram: Array) -> Booleans:
    """Select vectors, given their inner products, that are not nearly combinations of earlier ones.

    Directions and steps of a party with few columns soon become nearly dependent. Their combinations are differences of
    large numbers, which party and server would round differently.
    """
    size = np.sqrt(gram.diagonal())
    units = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0.0)
    # Inner products without the part that earlier vectors span.
    left = gram * units * units[:, None]
    used = np.zeros(len(gram), dtype=bool)
    for place in range(len(gram)):
        squared_sine = left[place, place]
        used[place] = squared_sine > SQUARED_SINE
        if used[place]:
            shadow = left[place] / np.sqrt(squared_sine)
            left -= shadow * shadow[:, None]
    return used
