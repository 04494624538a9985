"""A row that counts twice is as good as the row twice: in the loss, in constraints, with every solver that takes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.problems import Problem, small, train

from evenhand.constraints import DemographicParity, EqualOpportunity
from evenhand.constraints.binding import bind_inequalities, inequalities
from evenhand.constraints.evaluation import Lagrangian
from evenhand.constraints.groups import groups_of
from evenhand.constraints.kinds import Constraint
from evenhand.constraints.leave_one_out import measured
from evenhand.errors import InputError
from evenhand.vertical.server import is_convex

BLOCKS = ((0, 1), (2,), (3,))
PROBLEM = small(seed=3, rows=80)
TIMES = np.random.default_rng(5).integers(0, 4, 80)
REPEATED = Problem(
    PROBLEM.matrix.repeat(TIMES, axis=0),
    PROBLEM.labels.repeat(TIMES),
    PROBLEM.sensitive.loc[PROBLEM.sensitive.index.repeat(TIMES)].reset_index(drop=True),
)
LOSS, PARITY = EqualOpportunity(0.02), DemographicParity(0.05)


def bound(problem: Problem, constraint: Constraint, people: Any = None) -> Lagrangian:
    groups = groups_of(problem.sensitive)
    rows = inequalities(constraint, groups)
    return Lagrangian(problem.labels, bind_inequalities(rows, groups, problem.labels, problem.sensitive, people))


@pytest.mark.parametrize("constraint", [LOSS, PARITY, EqualOpportunity(0.1, measure="error")])
def test_the_lagrangian_is_that_of_repeated_rows(constraint: Constraint) -> None:
    scores = np.random.default_rng(0).normal(size=len(TIMES))
    # In any unit: all that counts is how rows compare.
    one, many = bound(PROBLEM, constraint, 0.5 * TIMES), bound(REPEATED, constraint)
    here, there = one.at(scores), many.at(scores.repeat(TIMES))
    assert here.loss == pytest.approx(there.loss)
    np.testing.assert_allclose(here.values, there.values)
    np.testing.assert_allclose(here.exact, there.exact)
    multipliers = np.array([[0.3], [0.1]])
    owner = np.arange(len(TIMES)).repeat(TIMES)
    for mine, theirs in (
        (here.derivative(multipliers), there.derivative(multipliers)),
        (here.curvature(multipliers), there.curvature(multipliers)),
    ):
        np.testing.assert_allclose(mine, np.bincount(owner, weights=theirs, minlength=len(TIMES)))
    some = np.array([3, 7, 8])
    np.testing.assert_allclose(here.curvature(multipliers, some), here.curvature(multipliers)[some])
    assert is_convex(one, multipliers) == is_convex(many, multipliers)
    largest = np.abs(here.curvature(multipliers)).max()
    assert largest <= one.curvature_limit(multipliers) / len(TIMES)


def test_standard_errors_are_those_of_rows_that_vary_and_not_of_repeated_ones() -> None:
    scores = np.random.default_rng(0).normal(size=len(TIMES))
    plain, alike = bound(PROBLEM, PARITY), bound(PROBLEM, PARITY, np.full(len(TIMES), 7.0))
    columns = np.column_stack([PROBLEM.matrix, np.ones(len(TIMES))])
    multipliers, ridge = np.array([[0.3], [0.0]]), 0.1 * np.eye(5)
    for mine, theirs in zip(
        measured(plain, scores, multipliers, columns, ridge),
        measured(alike, scores, multipliers, columns, ridge),
        strict=True,
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-7, atol=1e-12)
    many = bound(REPEATED, PARITY)
    weighted = bound(PROBLEM, PARITY, TIMES.astype(float))
    value, error = weighted.constraints.reported(PROBLEM.labels, scores)
    theirs, too_sure = many.constraints.reported(REPEATED.labels, scores.repeat(TIMES))
    np.testing.assert_allclose(value, theirs)
    assert error > 1.2 * too_sure


SOLVERS: list[tuple[str, dict[str, Any]]] = [
    ("fairvfl", {"options": {"step": 0.5}, "max_rounds": 25, "constraint": LOSS}),
    ("fairvfl", {"options": {"step": 0.5, "local_steps": 3}, "max_rounds": 25, "constraint": PARITY, "active": (0, 1)}),
    ("fedbcd", {"options": {"step": 0.5}, "max_rounds": 25, "active": (0, 1, 2)}),
    ("subspace", {"tol": 1e-8, "constraint": LOSS}),
    ("subspace", {"tol": 1e-8, "constraint": LOSS, "protection": "none"}),
    ("subspace", {"tol": 1e-8, "constraint": PARITY, "options": {"exact_rates": False}}),
]


@pytest.mark.parametrize(("solver", "settings"), SOLVERS)
def test_a_row_of_weight_two_is_the_row_twice(solver: str, settings: dict[str, Any]) -> None:
    shared = {"solver": solver, "blocks": BLOCKS, "alpha": 0.05, "tol": 1e-6, **settings}
    weighted = train(PROBLEM, runtime={"sample_weight": TIMES.astype(float)}, **shared)
    repeated = train(REPEATED, **shared)
    plain = train(PROBLEM, **shared)
    for name, model in weighted.models.items():
        np.testing.assert_allclose(model.weights, repeated.models[name].weights, atol=2e-5)
        assert np.abs(model.weights - plain.models[name].weights).max() > 1e-2
    assert weighted.certificate.objective == pytest.approx(repeated.certificate.objective, abs=1e-7)
    np.testing.assert_allclose(weighted.multipliers, repeated.multipliers, atol=1e-4)


def test_exact_rates_are_met_as_people_are_counted() -> None:
    run = train(
        PROBLEM,
        PARITY,
        solver="subspace",
        blocks=BLOCKS,
        alpha=0.05,
        runtime={"sample_weight": TIMES.astype(float)},
    )
    scores = sum(
        model.predict(PROBLEM.matrix[:, list(block)]) for model, block in zip(run.models.values(), BLOCKS, strict=True)
    )
    assert abs(bound(REPEATED, PARITY).at(scores.repeat(TIMES)).exact[0]) <= 0.05


@pytest.mark.parametrize("solver", ["vfb2-sgd", "vfb2-svrg", "vfb2-saga"])
def test_solvers_that_draw_rows_refuse(solver: str) -> None:
    with pytest.raises(InputError, match=r"does not support sample_weight; choose 'subspace' or .*'fedbcd'"):
        train(PROBLEM, solver=solver, blocks=BLOCKS, runtime={"sample_weight": TIMES.astype(float)})
