"""The Lagrangian: ν and curvature against finite differences for every constraint and measure, and its bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from support.problems import numerical_gradient, small, two_attributes

from evenhand.constraints import KINDS, Constraint, EqualOpportunity, NeymanPearson, bind
from evenhand.constraints.evaluation import Lagrangian
from evenhand.constraints.losses import MEASURES, Squared

EVERY = [
    pytest.param(kind(0.1, measure=measure, temperature=0.5), id=f"{name}-{measure}")
    for name, kind in KINDS.items()
    for measure in MEASURES
]


def _lagrangian(constraint: Constraint | list[Constraint] | None, seed: int = 0) -> Lagrangian:
    problem = two_attributes(seed, rows=40)
    return Lagrangian(problem.labels, bind(constraint, problem.labels, problem.sensitive))


def _value(lagrangian: Lagrangian, scores: np.ndarray, multipliers: np.ndarray) -> float:
    """f(z, λ); a side without a bound has λ = 0 and adds nothing."""
    point = lagrangian.at(scores)
    excess = point.dual_gradient()
    return point.loss + float((multipliers * np.where(np.isfinite(excess), excess, 0.0)).sum())


def _multipliers(lagrangian: Lagrangian, rng: np.random.Generator) -> np.ndarray:
    multipliers = rng.exponential(size=(2, len(lagrangian.constraints)))
    multipliers[1, np.isinf(lagrangian.constraints.bounds.lower)] = 0.0
    return multipliers


@pytest.mark.parametrize("constraint", EVERY)
def test_nu_is_the_finite_difference_of_f(constraint: Constraint) -> None:
    lagrangian, rng = _lagrangian(constraint), np.random.default_rng(1)
    scores, multipliers = rng.normal(size=40), _multipliers(lagrangian, rng)
    slope = numerical_gradient(lambda z: _value(lagrangian, z, multipliers), scores)
    np.testing.assert_allclose(lagrangian.at(scores).derivative(multipliers), slope, atol=1e-8)


@pytest.mark.parametrize("constraint", EVERY)
def test_curvature_is_the_finite_difference_of_nu(constraint: Constraint) -> None:
    lagrangian, rng = _lagrangian(constraint), np.random.default_rng(2)
    scores, multipliers = rng.normal(size=40), _multipliers(lagrangian, rng)
    up, down = (lagrangian.at(scores + sign * 1e-6).derivative(multipliers) for sign in (1, -1))
    np.testing.assert_allclose(lagrangian.at(scores).curvature(multipliers), (up - down) / 2e-6, atol=1e-8)


def test_nu_of_equal_opportunity_is_equation_12() -> None:
    problem = small()
    lagrangian = Lagrangian(problem.labels, bind(EqualOpportunity(0.01), problem.labels, problem.sensitive))
    scores, n = np.random.default_rng(3).normal(size=len(problem.labels)), len(problem.labels)
    lambda1, lambda2 = 0.7, 0.2
    in_a, in_b = problem.slice(1, "a"), problem.slice(1, "b")
    slope = -problem.labels * expit(-problem.labels * scores)
    expected = slope / n
    expected[in_a] = (1 / n + (lambda1 - lambda2) / in_a.sum()) * slope[in_a]
    expected[in_b] = (1 / n - (lambda1 - lambda2) / in_b.sum()) * slope[in_b]
    nu = lagrangian.at(scores).derivative(np.array([[lambda1], [lambda2]]))
    np.testing.assert_allclose(nu, expected, rtol=1e-13)


@pytest.mark.parametrize("constraint", EVERY)
def test_the_order_of_questions_does_not_matter(constraint: Constraint) -> None:
    """A point computes things once and shares them: whoever asks first must not change the answer."""
    lagrangian, rng = _lagrangian(constraint), np.random.default_rng(4)
    scores, multipliers = rng.normal(size=40), _multipliers(lagrangian, rng)
    fresh = lagrangian.at(scores).derivative(multipliers)
    used = lagrangian.at(scores)
    used.derivative(multipliers)
    first = (used.loss, used.values.copy(), used.exact.copy())
    np.testing.assert_allclose(used.derivative(multipliers), fresh, rtol=1e-13)
    np.testing.assert_array_equal(used.values, first[1])
    after = lagrangian.at(scores)
    assert (after.loss, after.violation) == (first[0], used.violation)
    np.testing.assert_allclose(after.derivative(multipliers), fresh, rtol=1e-13)
    # Once the loss is known, to the bit: a run that is resumed asks for it first, one that is not may have asked later.
    np.testing.assert_array_equal(after.derivative(multipliers), used.derivative(multipliers))


def test_a_point_keeps_its_slopes_and_not_what_each_row_loses() -> None:
    """Of a million rows, several points are there at once."""
    lagrangian = _lagrangian(EqualOpportunity(0.05))
    point = lagrangian.at(np.random.default_rng(4).normal(size=40))
    assert point.loss > 0.0
    assert len(point.values)
    slopes = lagrangian.loss.value_and_derivative(point.scores, lagrangian.labels)[1]
    held = [value for value in vars(point).values() if isinstance(value, np.ndarray) and len(value) == 40]
    assert len(held) == 2
    np.testing.assert_array_equal(held[1], slopes)


def test_without_constraints_nu_is_the_mean_loss_derivative() -> None:
    lagrangian = _lagrangian(None)
    scores = np.random.default_rng(5).normal(size=40)
    slope = numerical_gradient(lambda z: lagrangian.at(z).loss, scores)
    np.testing.assert_allclose(lagrangian.at(scores).derivative(np.zeros((2, 0))), slope, atol=1e-9)
    assert lagrangian.curvature_limit(np.zeros((2, 0))) == 0.25
    assert lagrangian.coupling_limit() == 0.0


@given(seed=st.integers(0, 1000), kind=st.sampled_from(sorted(KINDS)), measure=st.sampled_from(MEASURES))
def test_curvature_limit_bounds_the_curvature_of_every_row(seed: int, kind: str, measure: str) -> None:
    lagrangian = _lagrangian([KINDS[kind](0.1, measure=measure, temperature=0.5), NeymanPearson(0.2)], seed)
    rng = np.random.default_rng(seed)
    multipliers = _multipliers(lagrangian, rng)
    limit = lagrangian.curvature_limit(multipliers)
    largest = max(
        np.abs(lagrangian.at(rng.normal(scale=scale, size=40)).curvature(multipliers)).max()
        for scale in (0.0, 0.1, 0.5, 1.0, 2.0)
    )
    assert 40 * largest <= limit * (1 + 1e-12)


@given(seed=st.integers(0, 1000), kind=st.sampled_from(sorted(KINDS)), measure=st.sampled_from(MEASURES))
def test_coupling_limit_bounds_the_jacobian_of_the_values(seed: int, kind: str, measure: str) -> None:
    lagrangian = _lagrangian([KINDS[kind](0.1, measure=measure, temperature=0.5), NeymanPearson(0.2)], seed)
    rng = np.random.default_rng(seed)
    rows = len(lagrangian.constraints)
    for scale in (0.0, 0.3, 1.0, 5.0):
        scores = rng.normal(scale=scale, size=40)
        base = lagrangian.at(scores).derivative(np.zeros((2, rows)))
        one = [lagrangian.at(scores).derivative(np.stack([unit, 0 * unit])) - base for unit in np.eye(rows)]
        jacobian = np.concatenate([one, -np.array(one)])
        assert np.linalg.norm(jacobian, 2) <= lagrangian.coupling_limit() * (1 + 1e-12)


def test_another_loss_takes_the_place_of_the_logistic() -> None:
    problem = small()
    lagrangian = Lagrangian(problem.labels, bind(NeymanPearson(0.1), problem.labels), Squared())
    scores, multipliers = np.random.default_rng(6).normal(size=60), np.array([[0.4], [0.0]])
    slope = numerical_gradient(lambda z: _value(lagrangian, z, multipliers), scores)
    np.testing.assert_allclose(lagrangian.at(scores).derivative(multipliers), slope, atol=1e-8)
