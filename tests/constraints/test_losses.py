"""Losses: derivatives against finite differences, bounds, and scores far out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.constraints.losses import Logistic, Squared

SCORES = st.lists(st.floats(-30, 30), min_size=1, max_size=8).map(np.array)
WIDTH = 1e-5


def _labels(scores: np.ndarray) -> np.ndarray:
    return np.where(np.arange(len(scores)) % 2 == 0, 1.0, -1.0)


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=lambda loss: loss.name)
@given(scores=SCORES)
def test_derivative_and_curvature_are_the_finite_differences(loss: Logistic | Squared, scores: np.ndarray) -> None:
    labels = _labels(scores)
    slope = (loss.value(scores + WIDTH, labels) - loss.value(scores - WIDTH, labels)) / (2 * WIDTH)
    bend = (loss.derivative(scores + WIDTH, labels) - loss.derivative(scores - WIDTH, labels)) / (2 * WIDTH)
    np.testing.assert_allclose(loss.derivative(scores, labels), slope, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(loss.curvature(scores, labels), bend, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=lambda loss: loss.name)
@given(scores=SCORES)
def test_value_and_derivative_together_are_the_two_alone(loss: Logistic | Squared, scores: np.ndarray) -> None:
    labels = _labels(scores)
    value, derivative = loss.value_and_derivative(scores, labels)
    np.testing.assert_array_equal(value, loss.value(scores, labels))
    np.testing.assert_allclose(derivative, loss.derivative(scores, labels), rtol=1e-13, atol=0)


@given(scores=SCORES)
def test_logistic_value_is_its_definition(scores: np.ndarray) -> None:
    labels = _labels(scores)
    np.testing.assert_allclose(Logistic().value(scores, labels), np.logaddexp(0, -labels * scores), rtol=1e-12)


def test_logistic_far_out_is_finite_and_exact() -> None:
    scores = np.array([800.0, -800.0, 800.0, -800.0, 0.0])
    labels = np.array([1.0, 1.0, -1.0, -1.0, 1.0])
    loss = Logistic()
    value, derivative = loss.value_and_derivative(scores, labels)
    np.testing.assert_allclose(value, [0.0, 800.0, 800.0, 0.0, np.log(2)], atol=1e-300)
    np.testing.assert_allclose(derivative, [0.0, -1.0, 1.0, 0.0, -0.5], atol=1e-300)
    np.testing.assert_allclose(loss.derivative(scores, labels), derivative, atol=1e-300)
    np.testing.assert_allclose(loss.curvature(scores, labels), [0, 0, 0, 0, 0.25], atol=1e-300)


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=lambda loss: loss.name)
def test_bounds_hold_and_are_reached(loss: Logistic | Squared) -> None:
    scores = np.linspace(-40, 40, 8001)
    labels = np.ones_like(scores)
    assert np.abs(loss.derivative(scores, labels)).max() <= loss.derivative_bound
    assert loss.curvature(scores, labels).max() == pytest.approx(loss.curvature_bound, rel=1e-12)
    if np.isfinite(loss.derivative_bound):
        assert np.abs(loss.derivative(scores, labels)).max() == pytest.approx(loss.derivative_bound, rel=1e-9)
