"""Measures: derivatives against finite differences, bounds, limits of temperature, and the exact rates beside them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.constraints.losses import MEASURES, Logistic, Measure
from evenhand.errors import ConstraintError

LOSS = Logistic()
measures = st.builds(Measure, st.sampled_from(MEASURES), st.floats(0.05, 3.0))


@given(measure=measures, scores=st.lists(st.floats(-6, 6), min_size=1, max_size=6).map(np.array))
def test_derivative_and_curvature_are_the_finite_differences(measure: Measure, scores: np.ndarray) -> None:
    labels = np.where(np.arange(len(scores)) % 2 == 0, 1.0, -1.0)
    width = 1e-6 * measure.temperature
    (up, slope_up), (down, slope_down) = (
        measure.value_and_derivative(LOSS, scores + sign * width, labels) for sign in (1, -1)
    )
    slope = measure.value_and_derivative(LOSS, scores, labels)[1]
    tolerance = 1e-7 / measure.temperature**2
    np.testing.assert_allclose(slope, (up - down) / (2 * width), rtol=1e-6, atol=tolerance)
    bend = (slope_up - slope_down) / (2 * width)
    np.testing.assert_allclose(measure.curvature(LOSS, scores, labels), bend, rtol=1e-5, atol=tolerance)


@given(measure=measures)
def test_bounds_hold_and_are_reached(measure: Measure) -> None:
    scores = np.linspace(-40, 40, 16001) * max(measure.temperature, 0.2)
    labels = np.where(np.arange(len(scores)) % 2 == 0, 1.0, -1.0)
    slope = np.abs(measure.value_and_derivative(LOSS, scores, labels)[1]).max()
    bend = np.abs(measure.curvature(LOSS, scores, labels)).max()
    assert 0.99 * measure.derivative_bound(LOSS) <= slope <= measure.derivative_bound(LOSS) * (1 + 1e-12)
    assert 0.99 * measure.curvature_bound(LOSS) <= bend <= measure.curvature_bound(LOSS) * (1 + 1e-12)


@pytest.mark.parametrize("name", MEASURES)
def test_scores_far_out_are_finite(name: str) -> None:
    measure = Measure(name, 0.01)
    scores, labels = np.array([800.0, -800.0, 800.0, -800.0]), np.array([1.0, 1.0, -1.0, -1.0])
    value, derivative = measure.value_and_derivative(LOSS, scores, labels)
    assert np.isfinite([value, derivative, measure.curvature(LOSS, scores, labels)]).all()
    if measure.is_rate:
        np.testing.assert_array_equal(value, measure.exact(scores, labels).astype(float))


def test_error_and_positive_are_smooth_steps_on_the_right_side() -> None:
    scores, labels = np.array([1.0, -1.0, 1.0, -1.0]), np.array([1.0, 1.0, -1.0, -1.0])
    sharp = {name: Measure(name, 0.01).value_and_derivative(LOSS, scores, labels)[0] for name in MEASURES}
    np.testing.assert_allclose(sharp["error"], [0, 1, 1, 0], atol=1e-12)
    np.testing.assert_allclose(sharp["positive"], [1, 0, 1, 0], atol=1e-12)


def test_exact_rates_count_errors_and_positive_decisions() -> None:
    scores, labels = np.array([2.0, -2.0, 2.0, -2.0, 0.0]), np.array([1.0, 1.0, -1.0, -1.0, 1.0])
    np.testing.assert_array_equal(Measure("error").exact(scores, labels), [False, True, True, False, True])
    np.testing.assert_array_equal(Measure("loss").exact(scores, labels), [False, True, True, False, True])
    np.testing.assert_array_equal(Measure("positive").exact(scores, labels), [True, False, True, False, False])


def test_unknown_measure_names_the_known_ones() -> None:
    with pytest.raises(ConstraintError, match=r"'accuracy'.*'loss', 'error', 'positive'"):
        Measure("accuracy")  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.inf, np.nan])
def test_temperature_must_be_positive_and_finite(temperature: float) -> None:
    with pytest.raises(ConstraintError, match="temperature"):
        Measure("error", temperature)
