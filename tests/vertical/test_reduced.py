"""The tiny problem of a subspace round, against independent solvers and its own optimality conditions."""

from __future__ import annotations

import clarabel
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import NonlinearConstraint, minimize

from evenhand.arrays import Array
from evenhand.constraints.binding import bind
from evenhand.constraints.evaluation import Lagrangian
from evenhand.constraints.kinds import (
    Constraint,
    Constraints,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    GroupAgainstOverall,
    LossParity,
    NeymanPearson,
)
from evenhand.constraints.losses import Squared
from evenhand.errors import DivergenceError
from evenhand.programs.combining import columns as sampling
from evenhand.programs.combining.columns import DenseColumns, ListedColumns, SampledColumns, draw_sample
from evenhand.programs.combining.elastic import elastic_step, minimise_kinked
from evenhand.programs.combining.reduced import Quadratic, ReducedSolution, Status, solve_reduced


class Problem:
    """A random tiny problem whose groups differ, so that its constraints bite."""

    def __init__(self, constraints: Constraints, *, n: int = 300, p: int = 5, groups: int = 2, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        group = np.concatenate([np.repeat(np.arange(groups), 4), rng.integers(groups, size=n - 4 * groups)])
        self.columns = np.asfortranarray(rng.normal(size=(n, p)))
        self.columns[:, 0] += group
        self.columns[:, -1] = 1.0
        truth = self.columns @ rng.normal(size=p) - 0.5 * group
        self.labels = np.where(truth + rng.logistic(size=n) > 0, 1.0, -1.0)
        # Every group has both labels.
        self.labels[: 4 * groups] = np.tile([1.0, -1.0], 2 * groups)
        sensitive = None if constraints is None else pd.DataFrame({"group": group})
        self.lagrangian = Lagrangian(self.labels, bind(constraints, self.labels, sensitive))
        self.scores = 0.1 * rng.normal(size=n)
        root = rng.normal(size=(p, p))
        self.regulariser = Quadratic(0.01 * root @ root.T, 0.01 * rng.normal(size=p), 0.3)

    def solve(self, **options: object) -> ReducedSolution:
        return solve_reduced(
            self.lagrangian,
            self.scores,
            self.columns,
            self.regulariser,
            self.lagrangian.constraints.bounds.no_multipliers(),
            **{"tolerance": 1e-13, "feasibility": 1e-9, **options},  # type: ignore[arg-type]
        )

    def objective(self, alpha: Array) -> float:
        return self.lagrangian.at(self.scores + self.columns @ alpha).loss + self.regulariser.value(alpha)

    def gradient(self, alpha: Array, multipliers: Array | None = None) -> Array:
        rows = self.lagrangian.constraints
        nu = self.lagrangian.at(self.scores + self.columns @ alpha).derivative(
            rows.bounds.no_multipliers() if multipliers is None else multipliers
        )
        return self.columns.T @ nu + self.regulariser.linear + self.regulariser.gram @ alpha

    def values(self, alpha: Array) -> Array:
        return self.lagrangian.at(self.scores + self.columns @ alpha).values

    def jacobian(self, alpha: Array) -> Array:
        rows, base = self.lagrangian.constraints, self.gradient(alpha)
        out = []
        for index in range(len(rows)):
            unit = rows.bounds.no_multipliers()
            unit[0, index] = 1.0
            out.append(self.gradient(alpha, unit) - base)
        return np.array(out)

    def merit(self, alpha: Array, penalty: float) -> float:
        excess = self.lagrangian.constraints.bounds.excess(self.values(alpha))
        return self.objective(alpha) + penalty * float(np.maximum(excess, 0.0).sum())

    def assert_optimal(self, found: ReducedSolution, *, to: float = 1e-6) -> None:
        """Karush-Kuhn-Tucker, from the problem's own functions."""
        rows, alpha = self.lagrangian.constraints, found.coefficients
        assert found.status is Status.CONVERGED
        assert (found.multipliers >= 0).all()
        np.testing.assert_allclose(self.gradient(alpha, found.multipliers), 0.0, atol=to)
        assert rows.bounds.violation(self.values(alpha)) <= to
        assert rows.bounds.complementarity(self.values(alpha), found.multipliers) <= to
        assert found.objective == pytest.approx(self.objective(alpha), abs=1e-12)
        np.testing.assert_allclose(found.point.scores, self.scores + self.columns @ alpha, atol=1e-12)
        assert found.decrement <= to
        assert found.violation <= to
        assert found.complementarity <= to
        assert found.stationarity <= 1e-4


CONSTRAINTS: list[Constraint] = [
    EqualOpportunity(0.01),
    EqualizedOdds(0.02),
    EqualizedOdds(0.02, measure="error", temperature=0.5),
    DemographicParity(0.02, temperature=0.5),
    LossParity(0.0),
    GroupAgainstOverall(0.005),
    NeymanPearson(0.25),
]


@pytest.mark.portable
@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=lambda c: f"{c.kind}-{c.measure}")
@pytest.mark.parametrize("seed", [0, 1])
def test_agrees_with_an_independent_solver_primal_and_dual(constraint: Constraint, seed: int) -> None:
    problem = Problem(constraint, seed=seed)
    found = problem.solve()
    problem.assert_optimal(found)
    rows = problem.lagrangian.constraints
    assert found.multipliers.max() > 1e-4, "the constraint should bite, or the test says little"
    other = minimize(
        problem.objective,
        # Sigmoids have several local optima; the other solver is to confirm this one, from nearby.
        found.coefficients + 0.01 * np.random.default_rng(seed).normal(size=len(found.coefficients)),
        jac=problem.gradient,
        method="SLSQP",
        constraints=NonlinearConstraint(problem.values, rows.bounds.lower, rows.bounds.upper, jac=problem.jacobian),
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert found.objective == pytest.approx(other.fun, abs=1e-7)
    values, jacobian = problem.values(other.x), problem.jacobian(other.x)
    np.testing.assert_allclose(found.point.values, values, atol=2e-5)
    # The other solver's multipliers, from stationarity at its answer: zero but for the rows that are tight there. Rows
    # that depend on one another share them in many ways; what they do to the gradient is unique.
    tight = np.minimum(abs(values - rows.bounds.lower), abs(values - rows.bounds.upper)) < 1e-6
    theirs = np.linalg.lstsq(jacobian[tight].T, -problem.gradient(other.x), rcond=None)[0]
    net = found.multipliers[0] - found.multipliers[1]
    np.testing.assert_allclose(net @ problem.jacobian(found.coefficients), theirs @ jacobian[tight], atol=1e-4)


def test_without_rows_it_is_the_plain_minimum() -> None:
    problem = Problem(None)
    found = problem.solve()
    problem.assert_optimal(found)
    other = minimize(
        problem.objective, np.zeros(5), jac=problem.gradient, method="L-BFGS-B", options={"ftol": 0, "gtol": 1e-10}
    )
    assert found.objective == pytest.approx(other.fun, abs=1e-12)
    np.testing.assert_allclose(found.coefficients, other.x, atol=1e-5)
    assert found.multipliers.shape == (2, 0)


def test_the_squared_loss_takes_one_step() -> None:
    problem = Problem(None)
    problem.lagrangian = Lagrangian(problem.labels, problem.lagrangian.constraints, Squared())
    found = problem.solve()
    problem.assert_optimal(found)
    assert found.iterations == 1


@pytest.mark.parametrize("groups", [3, 6])
def test_many_groups(groups: int) -> None:
    """Pairwise rows of several groups depend on one another: 30 rows of rank 10, some slices two rows small."""
    problem = Problem(EqualizedOdds(0.05), groups=groups, n=150, p=12)
    assert len(problem.lagrangian.constraints) == groups * (groups - 1)
    problem.assert_optimal(problem.solve())


def test_a_slice_of_one_row_and_negative_weights() -> None:
    """A large multiplier on a slice of one row turns the weights of the other slice negative."""
    problem = Problem(None, n=400, p=6)
    group = np.zeros(400, dtype=int)
    group[np.flatnonzero(problem.labels > 0)[0]] = 1
    rows = bind(EqualOpportunity(0.0), problem.labels, pd.DataFrame({"group": group}))
    problem.lagrangian = Lagrangian(problem.labels, rows)
    found = problem.solve()
    problem.assert_optimal(found)
    flipped = problem.lagrangian.constraints.bounds.no_multipliers()
    flipped[1, 0] = 5.0
    assert problem.lagrangian.at(problem.scores).curvature(flipped).min() < 0
    again = solve_reduced(
        problem.lagrangian, problem.scores, problem.columns, problem.regulariser, flipped, tolerance=1e-12
    )
    assert again.objective == pytest.approx(found.objective, abs=1e-7)


def test_repeated_dependent_and_zero_columns_change_nothing() -> None:
    problem = Problem(EqualizedOdds(0.02))
    plain = problem.solve()
    mix = np.zeros((5, 9))
    mix[:, :5] = np.eye(5)
    mix[:, 5], mix[:, 6], mix[:, 8] = mix[:, 0], 1e-8 * mix[:, 1], [1.0, 2.0, 0.0, -1.0, 1e5]
    base = problem.regulariser
    problem.columns = np.asfortranarray(problem.columns @ mix)
    problem.regulariser = Quadratic(mix.T @ base.gram @ mix, mix.T @ base.linear, base.constant)
    wide = problem.solve()
    assert wide.status is Status.CONVERGED
    assert wide.objective == pytest.approx(plain.objective, abs=1e-9)
    np.testing.assert_allclose(wide.point.scores, plain.point.scores, atol=1e-4)
    np.testing.assert_allclose(wide.multipliers, plain.multipliers, atol=1e-5)


def test_units_of_the_columns_do_not_matter() -> None:
    problem = Problem(EqualizedOdds(0.02, measure="error"))
    plain = problem.solve()
    units = np.array([1e-6, 1e5, 1.0, 1e3, 1e-3])
    base = problem.regulariser
    problem.columns = problem.columns * units
    problem.regulariser = Quadratic(base.gram * units * units[:, None], base.linear * units, base.constant)
    scaled = problem.solve()
    assert scaled.iterations == plain.iterations
    np.testing.assert_allclose(scaled.coefficients * units, plain.coefficients, rtol=1e-5, atol=1e-7)


def test_nothing_but_zero_columns() -> None:
    problem = Problem(EqualOpportunity(0.01))
    problem.columns = np.zeros((300, 3), order="F")
    problem.regulariser = Quadratic(np.zeros((3, 3)), np.zeros(3))
    found = problem.solve()
    np.testing.assert_array_equal(found.coefficients, 0.0)
    assert np.isfinite([found.objective, found.stationarity, found.decrement]).all()


def test_columns_that_are_not_finite_are_refused() -> None:
    problem = Problem(EqualOpportunity(0.01))
    problem.columns[3, 2] = np.nan
    with pytest.raises(DivergenceError, match="not finite"):
        problem.solve()


def test_a_solution_is_recognised_at_once() -> None:
    problem = Problem(EqualizedOdds(0.02))
    found = problem.solve()
    gram, linear = problem.regulariser.gram, problem.regulariser.linear
    moved = Quadratic(gram, linear + gram @ found.coefficients, problem.regulariser.value(found.coefficients))
    again = solve_reduced(
        problem.lagrangian, found.point.scores, problem.columns, moved, found.multipliers, penalty=found.penalty
    )
    assert (again.status, again.iterations) == (Status.CONVERGED, 0)
    assert again.objective == pytest.approx(found.objective, abs=1e-12)


def test_rows_that_cannot_hold_are_missed_by_as_little_as_possible() -> None:
    """Both classes' losses below 0.05 is out of reach: what is left is the least sum of excesses."""
    problem = Problem([NeymanPearson(0.05), NeymanPearson(0.05, label=-1)])
    found = problem.solve(limit=200)
    assert found.status is Status.INFEASIBLE
    start = problem.lagrangian.at(problem.scores)
    assert found.violation < start.violation

    least = minimize(lambda alpha: problem.merit(alpha, found.penalty), found.coefficients, method="Nelder-Mead")
    assert problem.merit(found.coefficients, found.penalty) <= least.fun + 1e-8 * found.penalty


SAFE = settings(max_examples=60, deadline=None)
ANY_CONSTRAINT = st.sampled_from(
    [
        None,
        *CONSTRAINTS,
        EqualizedOdds(0.0, measure="error", temperature=0.05),
        [DemographicParity(0.01, temperature=0.1), LossParity(0.01)],
        [NeymanPearson(0.05), NeymanPearson(0.05, label=-1)],
    ]
)


@SAFE
@given(
    constraints=ANY_CONSTRAINT,
    seed=st.integers(0, 10_000),
    groups=st.integers(2, 4),
    p=st.integers(1, 8),
    spread=st.sampled_from([0.1, 3.0, 30.0]),
    limit=st.integers(0, 30),
)
def test_merit_and_violation_never_get_worse(
    constraints: Constraints, seed: int, groups: int, p: int, spread: float, limit: int
) -> None:
    problem = Problem(constraints, n=80, p=p, groups=groups, seed=seed)
    problem.scores = problem.scores * spread
    found = problem.solve(limit=limit, feasibility=1e-7)
    rows, start = problem.lagrangian.constraints, problem.lagrangian.at(problem.scores)
    assert np.isfinite(found.coefficients).all()
    assert np.isfinite(found.multipliers).all()
    assert (found.multipliers >= 0).all()
    slack = 1e-12 + 1e-7 * len(rows)
    assert found.violation <= max(start.violation, 1e-7) + 1e-12
    before = problem.merit(np.zeros(p), found.penalty)
    assert problem.merit(found.coefficients, found.penalty) <= before + found.penalty * slack + 1e-12 * abs(before)


@SAFE
@given(seed=st.integers(0, 10_000), rows=st.integers(0, 12), rank=st.integers(1, 12), side=st.sampled_from([0.1, 1e4]))
def test_dual_program_agrees_with_clarabel(seed: int, rows: int, rank: int, side: float) -> None:
    """Also where it is singular (rank below rows), with equalities and missing sides."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(rows, rank))
    quadratic, linear = root @ root.T, root @ rng.normal(size=rank)
    below = rng.normal(size=rows) - 0.5
    above = below + rng.choice([0.0, 0.1, 1.0], size=rows)
    above[rng.random(rows) < 0.2] = np.inf
    below[rng.random(rows) < 0.2] = -np.inf
    y = minimise_kinked(quadratic, linear, below, above, np.full(rows, side))
    assert (np.abs(y) <= side).all()

    def value(net: Array) -> float:
        kinks = np.where(net > 0, above, np.where(net < 0, below, 0.0))
        return float(0.5 * net @ quadratic @ net + linear @ net + kinks[net != 0] @ net[net != 0])

    # y = positive − negative, both in [0, side] or fixed at zero where there is no bound.
    double = np.block([[quadratic, -quadratic], [-quadratic, quadratic]])
    sides = np.concatenate([np.where(np.isfinite(above), side, 0.0), np.where(np.isfinite(below), side, 0.0)])
    cost = np.concatenate(
        [linear + np.where(np.isfinite(above), above, 0), -linear - np.where(np.isfinite(below), below, 0)]
    )
    if rows:
        options = clarabel.DefaultSettings()
        options.verbose = False
        eye = sparse.eye(2 * rows)
        other = clarabel.DefaultSolver(
            sparse.csc_matrix(np.triu(double)),
            cost,
            sparse.vstack([eye, -eye]).tocsc(),
            np.concatenate([sides, np.zeros(2 * rows)]),
            [clarabel.NonnegativeConeT(4 * rows)],
            options,
        ).solve()
        assert value(y) <= other.obj_val + 1e-6 * (1.0 + abs(other.obj_val))


def test_penalty_rises_only_where_it_helps() -> None:
    root, gradient = np.eye(2), np.array([0.0, 100.0])
    far = np.array([[0.0, 1.0]])
    needed = elastic_step(root, gradient, far, np.array([-1.0]), np.array([1.0]), 1.0)
    assert needed.missed == pytest.approx(0.0, abs=1e-9)
    assert needed.penalty == 100.0
    flat = elastic_step(root, gradient, np.zeros((1, 2)), np.array([2.0]), np.array([3.0]), 1.0)
    assert (flat.missed, flat.penalty) == (2.0, 1.0)


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=lambda c: f"{c.kind}-{c.measure}")
def test_curvature_of_a_sample_leads_to_the_same_optimum(
    constraint: Constraint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "FROM_EACH_STRATUM", 10)
    problem = Problem(constraint, n=4000, p=5)
    sample = draw_sample(problem.lagrangian.constraints.stratum, problem.columns.shape[1])
    assert sample is not None
    exact, found = problem.solve(), problem.solve(sample=sample.of(DenseColumns(problem.columns)))
    problem.assert_optimal(found)
    np.testing.assert_allclose(found.coefficients, exact.coefficients, atol=1e-5)
    again = problem.solve(start=found.coefficients, root=found.root)
    assert again.iterations == 0
    np.testing.assert_array_equal(again.root, found.root)


def test_a_sample_that_misleads_is_given_up() -> None:
    """As if every row stood for next to nothing: steps are far too long, and no shorter ones would do in the end."""
    problem = Problem(EqualOpportunity(0.01))
    few = np.arange(2)
    misleading = SampledColumns(DenseColumns(problem.columns).some(few), few, np.full(2, 1e-6))
    problem.assert_optimal(problem.solve(sample=misleading))


def test_a_sample_has_enough_of_every_cell_and_stands_for_all_rows() -> None:
    rng = np.random.default_rng(3)
    cell = np.concatenate([np.zeros(90_000, np.int64), np.ones(9_985, np.int64), np.full(15, 2)])
    cell = rng.permutation(cell)
    sample = draw_sample(cell, 40)
    assert sample is not None
    counts = np.bincount(cell[sample.rows])
    assert counts.tolist() == [7200, 1000, 15]
    np.testing.assert_allclose(np.bincount(cell[sample.rows], sample.stands_for), np.bincount(cell))
    assert len(np.unique(sample.rows)) == len(sample.rows)
    again = draw_sample(cell, 40)
    assert again is not None
    np.testing.assert_array_equal(again.rows, sample.rows)
    assert draw_sample(cell[:10_000], 40) is None


@pytest.mark.parametrize("constraint", [EqualOpportunity(0.01), DemographicParity(0.02, temperature=0.5)])
def test_columns_side_by_side_and_wherever_they_are_give_the_same(constraint: Constraint) -> None:
    problem = Problem(constraint, n=5000)
    listed = ListedColumns([column.copy() for column in problem.columns.T])
    expected = problem.solve()
    found = solve_reduced(
        problem.lagrangian,
        problem.scores,
        listed,
        problem.regulariser,
        problem.lagrangian.constraints.bounds.no_multipliers(),
        tolerance=1e-13,
        feasibility=1e-9,
    )
    np.testing.assert_allclose(found.coefficients, expected.coefficients, atol=1e-9)
    some = listed.some(np.array([3, 4999])).scores(np.ones(5))
    np.testing.assert_allclose(some, problem.columns[[3, 4999]].sum(axis=1))


def test_what_is_known_of_the_start_is_used_and_changes_nothing() -> None:
    problem = Problem(EqualOpportunity(0.02))
    known = problem.lagrangian.at(problem.scores)
    assert known.loss > 0.0
    assert problem.solve(known=known, limit=0).point is known
    found, alone = problem.solve(known=known), problem.solve()
    np.testing.assert_array_equal(found.coefficients, alone.coefficients)
    np.testing.assert_array_equal(found.multipliers, alone.multipliers)
