"""Local minimisation reaches the gradient it is asked for, by every method, with curvature of either sign."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.programs import samples

from evenhand.constraints.kinds import LossParity
from evenhand.errors import InputError
from evenhand.programs.augmented import Augmented
from evenhand.programs.minimise import Method, Minimiser, Pull, convex_inverse, convexified
from evenhand_reproductions.programs.composite import minimise_composite
from evenhand_reproductions.programs.problems import constrained, neyman_pearson
from evenhand_reproductions.programs.regularisers import L1, Ball, Box, Regulariser
from evenhand_reproductions.programs.smooth import SmoothProgram


def local_problem(seed: int = 0) -> tuple[Augmented, Pull]:
    rng = np.random.default_rng(seed)
    program = neyman_pearson(samples(seed), 0.2).clients[0]
    augmented = Augmented(program, np.array([0.5]), 30.0, np.zeros(5), 0.01)
    return augmented, Pull(0.1 * rng.standard_normal(5), rng.standard_normal(5), 0.05)


@pytest.mark.parametrize("method", ["auto", "newton", "cg", "lbfgs"])
def test_every_method_reaches_the_tolerance(method: Method) -> None:
    augmented, pull = local_problem()
    found = Minimiser(method).minimise(augmented, augmented.at(np.zeros(5)), pull, 1e-7)
    assert found.reached
    assert np.abs(pull.gradient(found.point)).max() <= 1e-7
    best = Minimiser("newton").minimise(augmented, augmented.at(np.ones(5)), pull, 1e-11).point
    np.testing.assert_allclose(found.point.weights, best.weights, atol=1e-5)


def test_a_kept_inverse_serves_the_next_problem() -> None:
    augmented, pull = local_problem()
    minimiser = Minimiser()
    first = minimiser.minimise(augmented, augmented.at(np.zeros(5)), pull, 1e-8)
    kept = minimiser.inverse
    moved = Pull(pull.linear + 1e-3, pull.centre, pull.strength)
    second = minimiser.minimise(augmented, first.point, moved, 1e-8)
    assert second.reached
    assert minimiser.inverse is kept
    assert second.effort < first.effort


@given(seed=st.integers(0, 500))
def test_negative_curvature_does_not_mislead(seed: int) -> None:
    """A tilted loss: the problem is not convex, yet each solve ends at a stationary point below its start."""
    rng = np.random.default_rng(seed)
    program = constrained(samples(seed % 7), LossParity(0.0), scope="local").clients[0]
    augmented = Augmented(program, np.array([3.0]), 10.0, np.zeros(5), 0.05)
    pull = Pull(np.zeros(5), np.zeros(5), 0.0)
    start = augmented.at(rng.standard_normal(5))
    found = Minimiser("newton").minimise(augmented, start, pull, 1e-6)
    assert found.reached
    assert pull.value(found.point) <= pull.value(start) + 1e-12


def test_turned_around_curvature() -> None:
    matrix = np.diag([4.0, -2.0, 1e-12])
    np.testing.assert_allclose(np.diag(convexified(matrix)), [4.0, 2.0, 4e-8])
    np.testing.assert_allclose(convex_inverse(matrix), np.diag([0.25, 0.5, 2.5e7]))
    safe = np.array([[2.0, 1.0], [1.0, 3.0]])
    np.testing.assert_allclose(convex_inverse(safe), np.linalg.inv(safe))


@pytest.mark.parametrize("regulariser", [L1(0.05), Box(-0.2, 0.3), Ball(0.4)], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("second_derivatives", [True, False])
def test_smooth_plus_a_regulariser(regulariser: Regulariser, second_derivatives: bool) -> None:
    augmented, pull = local_problem()
    if not second_derivatives:
        inner = augmented.program
        plain = SmoothProgram(
            5,
            lambda w: inner.at(w).value,
            lambda w: inner.at(w).gradient,
            hessian_product=lambda w, v: inner.at(w).hessian_product(np.zeros(1), v),
            constraints=lambda w: inner.at(w).constraints,
            jacobian=lambda w: inner.at(w).jacobian,
            constraint_hessian_product=lambda w, y, v: (
                inner.at(w).hessian_product(y, v) - inner.at(w).hessian_product(np.zeros(1), v)
            ),
            lower=inner.own.lower,
            upper=inner.own.upper,
        )
        assert plain.curvature == "product"
        augmented = Augmented(plain, augmented.multipliers, 30.0, np.zeros(5), 0.01)
    found = minimise_composite(Minimiser(), augmented, augmented.at(np.zeros(5)), pull, regulariser, 1e-6)
    assert found.reached
    assert regulariser.distance(found.point.weights, pull.gradient(found.point)) <= 1e-6
    # h binds: without it the answer is elsewhere.
    free = Minimiser().minimise(augmented, augmented.at(np.zeros(5)), pull, 1e-8)
    assert np.abs(free.point.weights - found.point.weights).max() > 1e-3


def test_unknown_methods_are_refused() -> None:
    with pytest.raises(InputError, match="local solver"):
        Minimiser("adam")  # type: ignore[arg-type]
