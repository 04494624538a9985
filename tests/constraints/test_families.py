"""Losses of numbers: derivatives against finite differences, deviances against scikit-learn's, refused targets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import mean_gamma_deviance, mean_poisson_deviance, mean_tweedie_deviance

from evenhand import (
    BoundedGroupLoss,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    GroupAgainstOverall,
    LossParity,
    MeanPredictionParity,
    NeymanPearson,
)
from evenhand.constraints.families import OF_NUMBERS, check_targets, find_loss
from evenhand.constraints.kinds import Constraint
from evenhand.constraints.log_link import FAR, growth
from evenhand.constraints.suitability import check_suits
from evenhand.errors import ConstraintError, DataError, InputError

WIDTH = 1e-6
SCORES = st.lists(st.floats(-8, 8), min_size=1, max_size=6).map(np.array)
POWERS = st.floats(1.05, 1.95)


@pytest.mark.parametrize("name", OF_NUMBERS)
@given(scores=SCORES, power=POWERS)
def test_derivatives_are_the_finite_differences(name: str, scores: np.ndarray, power: float) -> None:
    loss = find_loss(name, power)
    labels = np.arange(1.0, len(scores) + 1.0)
    slope = (loss.value(scores + WIDTH, labels) - loss.value(scores - WIDTH, labels)) / (2 * WIDTH)
    bend = (loss.derivative(scores + WIDTH, labels) - loss.derivative(scores - WIDTH, labels)) / (2 * WIDTH)
    size = 1.0 + np.abs(loss.value(scores, labels))
    np.testing.assert_allclose(loss.derivative(scores, labels) / size, slope / size, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(loss.curvature(scores, labels) / size, bend / size, rtol=1e-4, atol=1e-6)
    mean, first, second = loss.mean(scores)
    np.testing.assert_allclose(first, (loss.mean(scores + WIDTH)[0] - mean) / WIDTH, rtol=1e-3)
    np.testing.assert_allclose(second, (loss.mean(scores + WIDTH)[1] - first) / WIDTH, rtol=1e-3, atol=1e-6)


@given(scores=SCORES, power=POWERS)
def test_losses_are_half_the_deviances_of_scikit_learn(scores: np.ndarray, power: float) -> None:
    counts, amounts = np.arange(float(len(scores))), np.arange(1.0, len(scores) + 1.0)
    means = np.exp(scores)
    for loss, labels, deviance in (
        (find_loss("poisson"), counts, mean_poisson_deviance(counts, means)),
        (find_loss("gamma"), amounts, mean_gamma_deviance(amounts, means)),
        (find_loss("tweedie", power), counts, mean_tweedie_deviance(counts, means, power=power)),
    ):
        assert 2.0 * loss.value(scores, labels).mean() == pytest.approx(deviance, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("name", ["poisson", "tweedie", "gamma"])
@given(scores=SCORES)
def test_expected_curvature_is_the_curvature_where_the_mean_is_the_target(name: str, scores: np.ndarray) -> None:
    loss = find_loss(name)
    at_mean = loss.curvature(scores, loss.mean(scores)[0])
    np.testing.assert_allclose(loss.expected_curvature(scores), at_mean, rtol=1e-9)
    if loss.tells_curvature:
        np.testing.assert_allclose(loss.curvature_by_derivative(scores), at_mean, rtol=1e-9)


def test_scores_far_out_are_finite_and_continue_smoothly() -> None:
    far = np.array([FAR - 1e-9, FAR + 1e-9])
    for part in growth(far):
        assert part[1] == pytest.approx(part[0], rel=1e-6)
    for name in OF_NUMBERS:
        value, slope = find_loss(name).value_and_derivative(np.array([1e6, -1e6]), np.array([1.0, 5.0]))
        assert np.isfinite([value, slope]).all()


def test_curvature_far_out_stays_above_zero_so_that_losses_are_convex() -> None:
    scores = np.linspace(-60.0, 60.0, 500)
    for name in OF_NUMBERS:
        assert (find_loss(name).curvature(scores, np.full(500, 2.0)) > 0.0).all()


@pytest.mark.parametrize(
    ("name", "targets", "told"),
    [
        ("poisson", [1.0, -2.0], r"1 of 2 targets are negative \(the smallest is -2\).*'squared'"),
        ("tweedie", [-1.0, 0.0], "needs targets zero or more"),
        ("gamma", [1.0, 0.0], "1 of 2 targets are zero or negative.*choose 'poisson' or 'tweedie'"),
        ("gamma", [1.0, -1.0], "correct these rows"),
        ("poisson", [0.0, 0.0], "all targets are zero"),
        ("squared", [1.0, np.nan], "1 of 2 targets are missing"),
    ],
)
def test_targets_that_a_family_cannot_have_are_refused(name: str, targets: list[float], told: str) -> None:
    with pytest.raises(DataError, match=told):
        check_targets(name, np.array(targets))


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_targets_that_it_can_have_are_not(name: str) -> None:
    check_targets(name, np.array([0.5, 3.0]))


@pytest.mark.parametrize("power", [1.0, 2.0, 0.0, 3.0, "a"])
def test_powers_between_one_and_two_only(power: float) -> None:
    with pytest.raises(InputError, match="between 1 and 2"):
        find_loss("tweedie", power)


def test_names_that_do_not_exist_are_refused() -> None:
    with pytest.raises(InputError, match="choose one of 'logistic'"):
        find_loss("hinge")


@pytest.mark.parametrize(
    ("constraint", "told"),
    [
        (EqualizedOdds(0.1), "equalized-odds compares rows with a positive or negative label.*LossParity"),
        (EqualOpportunity(0.1, measure="prediction"), "MeanPredictionParity"),
        (NeymanPearson(0.1), "BoundedGroupLoss"),
        (DemographicParity(0.1), "bounds selection rates.*MeanPredictionParity"),
        (LossParity(0.1, measure="error"), "bounds error rates"),
    ],
)
def test_constraints_without_meaning_for_numbers_are_refused(constraint: Constraint, told: str) -> None:
    with pytest.raises(ConstraintError, match=told):
        check_suits([constraint], "squared")
    check_suits([] if constraint.measure == "prediction" else [constraint], "logistic")


def test_constraints_of_means_suit_numbers_and_mean_predictions_no_classes() -> None:
    check_suits(
        [MeanPredictionParity(3.0), LossParity(2.0), BoundedGroupLoss(5.0), GroupAgainstOverall(1.0, "prediction")],
        "poisson",
    )
    with pytest.raises(ConstraintError, match="choose DemographicParity"):
        check_suits([MeanPredictionParity(0.1)], "logistic")
