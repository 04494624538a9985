"""Small programs with known answers, dealt to clients. References are written from the definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize
from support.problems import small

from evenhand.constraints.kinds import (
    Constraint,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    GroupAgainstOverall,
    LossParity,
    NeymanPearson,
)
from evenhand.constraints.labelled_rows import FeatureRows
from evenhand.constraints.slices import Bounds
from evenhand.programs.program import Program
from evenhand_reproductions.programs.pooled import Pooled
from evenhand_reproductions.programs.quadratic import QuadraticProgram
from evenhand_reproductions.programs.regularisers import Regulariser
from evenhand_reproductions.programs.smooth import SmoothProgram
from evenhand_reproductions.programs.solving import Solution

Array = np.ndarray

KINDS: list[Constraint] = [
    kind
    for measure in ("loss", "error", "positive")
    for kind in (
        EqualOpportunity(0.1, measure=measure),
        EqualizedOdds(0.1, measure=measure),
        LossParity(0.1, measure=measure),
        DemographicParity(0.1, measure=measure),
        GroupAgainstOverall(0.1, measure=measure),
        NeymanPearson(0.1, measure=measure),
    )
]


def samples(seed: int = 3, rows: int = 120, clients: int = 3, groups: str = "ab") -> list[FeatureRows]:
    """Rows dealt in turn, so that every client has every label and group; the last column is constant."""
    problem = small(seed, rows, groups=groups)
    features = np.column_stack([problem.matrix, np.ones(rows)])
    dealt = [np.arange(rows) // 4 % clients == place for place in range(clients)]
    found = []
    for inside in dealt:
        labels = problem.labels[inside].copy()
        frame = problem.sensitive[inside].reset_index(drop=True)
        for group in groups:
            first, second = np.flatnonzero(frame["group"] == group)[:2]
            labels[first], labels[second] = 1.0, -1.0
        found.append(FeatureRows(features[inside], labels, frame))
    return found


def strongly_convex(
    seed: int, clients: int, weights: int, rows: int
) -> tuple[list[QuadraticProgram], QuadraticProgram]:
    """Quadratic clients with inequality rows that the origin meets, and a server with rows of its own."""
    rng = np.random.default_rng(seed)

    def bounded() -> tuple[Array, Array, Array]:
        matrix = rng.standard_normal((rows, weights))
        return matrix, -rng.uniform(0.0, 1.0, rows), rng.uniform(0.0, 1.0, rows)

    found = []
    for _ in range(clients):
        root = rng.standard_normal((weights, weights))
        matrix = root @ root.T / weights + 0.5 * np.eye(weights)
        found.append(QuadraticProgram(matrix, 3.0 * rng.standard_normal(weights), *bounded()))
    return found, QuadraticProgram(None, None, *bounded())


def unit_discs() -> list[SmoothProgram]:
    """min (w₁ − 2)² + w₂² over ‖w‖² ≤ 1 at one client and w₁ ≥ 0.8 at another: the answer is (1, 0), μ = 1 and 0."""

    def disc(w: Array) -> Array:
        return np.array([w @ w])

    first = SmoothProgram(
        2,
        lambda w: float((w[0] - 2.0) ** 2 + w[1] ** 2),
        lambda w: np.array([2.0 * (w[0] - 2.0), 2.0 * w[1]]),
        hessian=lambda w: 2.0 * np.eye(2),
        constraints=disc,
        jacobian=lambda w: 2.0 * w[None, :],
        constraint_hessian=lambda w, y: 2.0 * y[0] * np.eye(2),
        lower=[-np.inf],
        upper=[1.0],
    )
    second = SmoothProgram(
        2,
        constraints=lambda w: w[:1],
        jacobian=lambda w: np.array([[1.0, 0.0]]),
        lower=[0.8],
        upper=[np.inf],
    )
    return [first, second]


def contradicting(weights: int = 3) -> list[QuadraticProgram]:
    """Two clients whose rows contradict: w₁ ≥ 2 and w₁ ≤ 1. Both misses are smallest, squared, at w₁ = 1.5."""
    row = np.eye(weights)[:1]
    return [
        QuadraticProgram(np.eye(weights), np.zeros(weights), row, [2.0], [np.inf]),
        QuadraticProgram(np.eye(weights), np.ones(weights), row, [-np.inf], [1.0]),
    ]


def by_scipy(program: Program, start: Array | None = None, **options: Any) -> tuple[Array, Array]:
    """Weights by SLSQP, and net multipliers from the stationarity condition at them."""
    sides = program.own
    constraints = [
        {
            "type": "eq" if sides.free[place] else "ineq",
            "fun": lambda w, place=place: -sides.side_excess(program.at(w).constraints)[place],
            "jac": lambda w, place=place: -sides.sign[place] * program.at(w).jacobian[sides.row[place]],
        }
        for place in range(sides.n_sides)
    ]
    found = minimize(
        lambda w: program.at(w).value,
        np.zeros(program.weights) if start is None else start,
        jac=lambda w: program.at(w).gradient,
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000, **options},
    )
    assert found.success, found.message
    point = program.at(found.x)
    excess = sides.side_excess(point.constraints)
    tight = np.unique(sides.row[np.abs(excess) < 1e-6])
    net = np.zeros(sides.n_rows)
    net[tight] = np.linalg.lstsq(point.jacobian[tight].T, -point.gradient, rcond=None)[0]
    return found.x, net


def net_of(solution: Solution, pooled: Pooled, names: list[str]) -> Array:
    """A solution's multipliers in the order of the pooled rows."""
    tables = [solution.multipliers[name] for name in names]
    return np.concatenate([table[0] - table[1] for table in tables])


def check_derivatives(program: Program, at: Array, net: Array) -> None:
    """Gradient, Jacobian and second derivatives against central differences of values and of first derivatives."""
    width = 1e-5

    def lagrangian_slope(w: Array) -> Array:
        point = program.at(w)
        return point.gradient + net @ point.jacobian

    point = program.at(at)
    for place, unit in enumerate(np.eye(len(at))):
        up, down = program.at(at + width * unit), program.at(at - width * unit)
        np.testing.assert_allclose(point.gradient[place], (up.value - down.value) / (2 * width), atol=1e-6)
        slope = (up.constraints - down.constraints) / (2 * width)
        np.testing.assert_allclose(point.jacobian[:, place], slope, atol=1e-6)
        bend = (lagrangian_slope(at + width * unit) - lagrangian_slope(at - width * unit)) / (2 * width)
        np.testing.assert_allclose(point.hessian(net)[:, place], bend, atol=1e-5)
        np.testing.assert_allclose(point.hessian_product(net, unit), bend, atol=1e-5)


def random_sides(rng: np.random.Generator, rows: int) -> Bounds:
    lower = np.where(rng.random(rows) < 0.5, -np.inf, -rng.random(rows))
    return Bounds(lower, np.where(np.isinf(lower) | (rng.random(rows) < 0.5), rng.random(rows), np.inf))


def prox_by_search(regulariser: Regulariser, weights: Array, step: float, draws: int = 2000) -> float:
    """The least ‖v − w‖²/2 + step·h(v) that perturbations of the claimed minimiser find, minus its own."""
    claimed = regulariser.prox(weights, step)
    rng = np.random.default_rng(0)

    def cost(v: Array) -> float:
        return 0.5 * float((v - weights) @ (v - weights)) + step * regulariser.value(v)

    best = np.inf
    for _ in range(draws):
        # Through prox with no step, so that the perturbation stays in h's domain.
        v = regulariser.prox(claimed + 0.1 * rng.standard_normal(len(weights)) * rng.random(), 0.0)
        best = min(best, cost(v) - cost(claimed))
    return best
