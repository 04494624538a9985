"""Bounds with their multipliers, and the regulariser functions h."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.programs import prox_by_search, random_sides

from evenhand.constraints.slices import Bounds
from evenhand.errors import ConstraintError, InputError
from evenhand_reproductions.programs.regularisers import L1, Ball, Box, Regulariser, Zero


def test_sides_of_every_kind_of_row() -> None:
    sides = Bounds([-np.inf, -1.0, 0.5, 0.0], [2.0, 1.0, 0.5, np.inf])
    assert sides.n_sides == 5
    values = np.array([3.0, -4.0, 0.2, 7.0])
    assert sides.violation(values) == 3.0
    multipliers = np.zeros(5)
    assert sides.distance(values, sides.table(multipliers)) == 3.0
    # A multiplier on a side with room counts its slack.
    assert sides.distance(np.array([0.0, 0.0, 0.5, 7.0]), sides.table(np.array([0.0, 0.0, 9.0, 0.0, 0.3]))) == 7.0
    assert sides.complementarity(
        np.array([0.0, 0.0, 0.5, 7.0]), sides.table(np.array([0.0, 0.0, 9.0, 0.0, 0.3]))
    ) == pytest.approx(2.1)


@given(seed=st.integers(0, 10_000), rows=st.integers(0, 6))
def test_net_multipliers_there_and_back(seed: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    sides = random_sides(rng, rows)
    multipliers = np.maximum(rng.standard_normal(sides.n_sides), 0.0)
    net = sides.net(multipliers)
    table = sides.table(multipliers)
    np.testing.assert_allclose(table[0] - table[1], net)
    np.testing.assert_allclose(sides.net(sides.of_net(net)), net)


@pytest.mark.parametrize(
    ("lower", "upper"), [([1.0], [0.0]), ([np.nan], [0.0]), ([0.0], [1.0, 2.0]), ([np.inf], [np.inf])]
)
def test_bounds_that_nothing_meets_are_refused(lower: list[float], upper: list[float]) -> None:
    with pytest.raises(ConstraintError):
        Bounds(lower, upper)


SIMPLE: list[Regulariser] = [Zero(), L1(0.7), Box(-0.5, 1.0), Ball(1.2)]


@pytest.mark.parametrize("regulariser", SIMPLE, ids=lambda regulariser: type(regulariser).__name__)
def test_prox_is_a_minimiser_and_its_residual_a_subgradient(regulariser: Regulariser) -> None:
    rng = np.random.default_rng(5)
    for _ in range(5):
        weights = 2.0 * rng.standard_normal(4)
        assert prox_by_search(regulariser, weights, 0.8) >= -1e-12
        found = regulariser.prox(weights, 0.8)
        # w − prox(w) is step times a subgradient of h at prox(w).
        assert regulariser.distance(found, (found - weights) / 0.8) <= 1e-9
        assert regulariser.distance(found, (found - weights) / 0.8 + 0.3 * np.eye(4)[0]) <= 0.3 + 1e-9


def test_distance_is_not_always_zero() -> None:
    assert L1(1.0).distance(np.array([0.0, 2.0]), np.array([1.5, -1.0])) == 0.5
    assert Box(0.0, 1.0).distance(np.array([0.0, 1.0, 0.5]), np.array([-2.0, -3.0, 0.1])) == 2.0
    assert Ball(1.0).distance(np.array([1.0, 0.0]), np.array([3.0, 0.5])) == 3.0
    assert Ball(1.0).distance(np.array([1.0, 0.0]), np.array([-3.0, 0.5])) == 0.5


def test_simple_functions_refuse_nonsense() -> None:
    with pytest.raises(InputError):
        L1(-1.0)
    with pytest.raises(InputError):
        Box(1.0, 0.0)
    with pytest.raises(InputError):
        Ball(0.0)
