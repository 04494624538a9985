"""The quadratic programs of a round against SLSQP and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.programs import by_scipy, random_sides

from evenhand.errors import InputError
from evenhand.programs.elastic_qp import elastic_step
from evenhand_reproductions.programs.quadratic import QuadraticProgram
from evenhand_reproductions.programs.regularisers import L1, ZERO, Ball, Box, OnFirst, Regulariser, cone_rows


@given(seed=st.integers(0, 10_000), rows=st.integers(0, 5))
def test_the_program_is_solved_primal_and_dual(seed: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((4, 4))
    matrix, gradient = root @ root.T + np.eye(4), rng.standard_normal(4)
    jacobian, sides = rng.standard_normal((rows, 4)), random_sides(rng, rows)
    found = elastic_step(matrix, gradient, jacobian, sides.lower, sides.upper, 1.0)
    program = QuadraticProgram(matrix, gradient, jacobian, sides.lower, sides.upper)
    step, net = by_scipy(program)
    np.testing.assert_allclose(found.step, step, atol=1e-6)
    np.testing.assert_allclose(found.net, net, atol=1e-4)
    assert found.missed <= 1e-7


def test_rows_that_contradict_are_missed_as_little_as_possible() -> None:
    jacobian = np.array([[1.0, 0.0], [1.0, 0.0]])
    found = elastic_step(np.eye(2), np.zeros(2), jacobian, np.array([2.0, -np.inf]), np.array([np.inf, 1.0]), 1.0)
    assert found.missed == pytest.approx(1.0, abs=1e-3)
    assert 1.0 - 1e-3 <= found.step[0] <= 2.0 + 1e-3


def test_the_price_rises_only_where_rows_need_it() -> None:
    row, needed = np.eye(2)[:1], np.array([50.0])
    far = elastic_step(np.eye(2), np.zeros(2), row, needed, np.array([np.inf]), 1.0)
    assert far.missed <= 1e-6
    assert far.net[0] == pytest.approx(-50.0, abs=1e-4)
    assert 50.0 < far.penalty <= 1000.0
    near = elastic_step(np.eye(2), np.zeros(2), row, np.array([0.5]), np.array([np.inf]), 1.0)
    assert near.penalty == 1.0


@pytest.mark.parametrize("regulariser", [ZERO, L1(0.5), Box(-0.3, 0.2), Ball(0.6)], ids=lambda s: type(s).__name__)
def test_h_enters_as_it_is(regulariser: Regulariser) -> None:
    rng = np.random.default_rng(3)
    root = rng.standard_normal((3, 3))
    matrix, gradient, weights = root @ root.T + np.eye(3), 2.0 * rng.standard_normal(3), np.array([0.1, 0.0, -0.1])
    row = rng.standard_normal((1, 3))
    found = elastic_step(
        matrix,
        gradient,
        row,
        np.array([-np.inf]),
        np.array([0.1]),
        1.0,
        None if regulariser is ZERO else cone_rows(regulariser, weights),
    )
    slope = gradient + matrix @ found.step + found.net @ row
    there = regulariser.settle(regulariser.prox(weights + found.step, 0.0))
    assert regulariser.distance(there, slope) <= 1e-4


def test_an_h_the_programs_do_not_know_is_refused() -> None:
    with pytest.raises(InputError, match="OnFirst"):
        cone_rows(OnFirst(L1(1.0), 1), np.zeros(2))


def test_equalities_are_met_to_the_last_digits_at_a_price_above_their_multipliers() -> None:
    rng = np.random.default_rng(4)
    half, jacobian, targets = rng.normal(size=(12, 12)), rng.normal(size=(5, 12)), 3.0 * rng.normal(size=5)
    matrix, gradient = half @ half.T + np.eye(12), rng.normal(size=12)
    found = elastic_step(matrix, gradient, jacobian, targets, targets, 1.0)
    np.testing.assert_allclose(jacobian @ found.step, targets, atol=1e-12)
    np.testing.assert_allclose(matrix @ found.step + gradient, -found.net @ jacobian, atol=1e-11)
    assert found.penalty >= np.abs(found.net).max() > found.penalty / 10.0


def test_equalities_that_depend_on_each_other_are_left_to_the_elastic_program() -> None:
    """x = 1 twice holds; x = 1 and x = 2 cannot, and are missed by one in all."""
    rows, twice, apart = np.array([[1.0, 0.0], [1.0, 0.0]]), np.ones(2), np.array([1.0, 2.0])
    found = elastic_step(np.eye(2), np.zeros(2), rows, twice, twice, 1.0)
    np.testing.assert_allclose(found.step, [1.0, 0.0], atol=1e-7)
    np.testing.assert_allclose(found.net.sum(), -1.0, atol=1e-7)
    assert elastic_step(np.eye(2), np.zeros(2), rows, apart, apart, 1.0).missed == pytest.approx(1.0, abs=1e-7)
