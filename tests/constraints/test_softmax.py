"""The softmax loss and rates of classes: derivatives by differences, and equality with the logistic loss for two."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand.constraints.families import find_loss
from evenhand.constraints.losses import SOFTMAX, Measure

MEASURES = [
    Measure("loss"),
    Measure("error", 0.7),
    Measure("positive", 0.4, of_class=0),
    Measure("positive", 1.3, of_class=2),
]


@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_derivatives_are_those_of_differences(measure: Measure) -> None:
    rng = np.random.default_rng(0)
    scores, labels = 2.0 * rng.normal(size=(4, 30)), rng.integers(0, 4, 30).astype(float)
    _, slope = measure.value_and_derivative(SOFTMAX, scores, labels)
    bend, step = measure.curvature(SOFTMAX, scores, labels), 1e-5
    for place in range(4):
        move = np.zeros((4, 1))
        move[place] = step
        above, below = (measure.value_and_derivative(SOFTMAX, scores + sign * move, labels) for sign in (1, -1))
        np.testing.assert_allclose(slope[place], (above[0] - below[0]) / (2 * step), atol=1e-8)
        np.testing.assert_allclose(bend[place], (above[1] - below[1]) / (2 * step), atol=1e-8)


@pytest.mark.parametrize("name", ["loss", "error", "positive"])
def test_two_classes_are_the_logistic_loss_of_the_difference(name: str) -> None:
    rng = np.random.default_rng(1)
    scores, codes = rng.normal(size=(2, 50)), rng.integers(0, 2, 50).astype(float)
    several = Measure(name, 0.5, of_class=1)  # type: ignore[arg-type]
    single, signs, difference = Measure(name, 0.5), 2.0 * codes - 1.0, scores[1] - scores[0]  # type: ignore[arg-type]
    found = several.value_and_derivative(SOFTMAX, scores, codes)
    same = single.value_and_derivative(find_loss("logistic"), difference, signs)
    np.testing.assert_allclose(found[0], same[0], atol=1e-12)
    np.testing.assert_allclose(found[1], [-same[1], same[1]], atol=1e-12)
    bend = single.curvature(find_loss("logistic"), difference, signs)
    np.testing.assert_allclose(several.curvature(SOFTMAX, scores, codes), [[bend, -bend], [-bend, bend]], atol=1e-12)
    if name != "loss":
        np.testing.assert_array_equal(several.exact(scores, codes), single.exact(difference, signs))


def test_large_scores_do_not_overflow() -> None:
    scores, labels = np.array([[1e4, -1e4], [0.0, 0.0], [-1e4, 1e4]]), np.array([2.0, 2.0])
    np.testing.assert_allclose(SOFTMAX.value(scores, labels), [2e4, 0.0])
    assert np.isfinite(SOFTMAX.curvature(scores, labels)).all()
