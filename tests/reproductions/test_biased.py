"""The biased digits: shares are exact, draws are independent, and plain training is as unfair as the formula says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from evenhand.data.images import as_floats
from evenhand.errors import InputError
from evenhand_reproductions.data.biased import biased_digits, expected_unfairness
from evenhand_reproductions.data.digits import DigitImages, load_digit_images
from evenhand_reproductions.data.images import ImageDataset


@pytest.fixture(scope="module")
def digits() -> DigitImages:
    return load_digit_images("scikit-learn")


def _gaps(predicted: np.ndarray, labels: np.ndarray, groups: np.ndarray) -> tuple[float, float, float]:
    rates = [predicted[groups == s].mean() for s in (0, 1)]
    hits = [predicted[(groups == s) & (labels == 1)].mean() for s in (0, 1)]
    return (predicted == labels).mean(), abs(hits[1] - hits[0]), abs(rates[1] - rates[0])


@settings(max_examples=30, deadline=None)
@given(
    agreement=st.floats(0, 1),
    other=st.floats(0, 1),
    noise=st.floats(0, 1),
    classes=st.sampled_from([2, 10]),
    mark=st.sampled_from(["colour", "frame"]),
    seed=st.integers(0, 1000),
)
def test_shares_are_exact(
    digits: DigitImages, agreement: float, other: float, noise: float, classes: Any, mark: Any, seed: int
) -> None:
    options: dict[str, Any] = {"label_noise": noise, "classes": classes, "mark": mark, "seed": seed}
    drawn = biased_digits(digits, agreement=agreement, test_agreement=other, **options)
    for part, share in ((drawn.train, agreement), (drawn.test, other)):
        sides = part.labels >= classes // 2
        for side in (0, 1):
            rows = sides == side
            assert abs((part.groups[rows] == side).sum() - share * rows.sum()) <= 0.5
    clean = biased_digits(digits, agreement=0.5, **{**options, "label_noise": 0.0})
    for part, pure in ((drawn.train, clean.train), (drawn.test, clean.test)):
        assert (part.labels != pure.labels).sum() == round(noise * len(part)), "the same rows, so many wrong labels"


def test_the_same_seed_gives_the_same_pictures(digits: DigitImages) -> None:
    first, again, other = (biased_digits(digits, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.train.images, again.train.images)
    np.testing.assert_array_equal(first.test.labels, again.test.labels)
    np.testing.assert_array_equal(first.test.groups, again.test.groups)
    assert (first.test.labels != other.test.labels).any()


def test_agreement_changes_the_groups_alone(digits: DigitImages) -> None:
    some, more = (biased_digits(digits, agreement=share) for share in (0.6, 0.9))
    np.testing.assert_array_equal(some.train.labels, more.train.labels)
    np.testing.assert_array_equal(some.test.images.max(axis=1) > 0, more.test.images.max(axis=1) > 0)
    assert some.test_agreement == 0.6


def test_colour_is_the_hue_of_the_ink(digits: DigitImages) -> None:
    train = biased_digits(digits, test_fraction=0.3).train
    assert train.images.shape == (len(train), 3, 8, 8)
    ink = train.images.sum(axis=(2, 3)).astype(float)
    np.testing.assert_array_equal(ink[:, 1] > ink[:, 0], train.groups == 1)
    # Neither group is darker than the other.
    brightness = ink @ [0.299, 0.587, 0.114]
    assert brightness[train.groups == 0].mean() == pytest.approx(brightness[train.groups == 1].mean(), rel=0.1)
    assert train.group_names == ("red", "green")


def test_a_frame_loses_no_pixel(digits: DigitImages) -> None:
    drawn = biased_digits(digits, mark="frame", label_noise=0.0, classes=10)
    for part in (drawn.train, drawn.test):
        assert part.images.shape == (len(part), 1, 10, 10)
        edge = part.images[:, 0, [0, -1], :].reshape(len(part), -1)
        np.testing.assert_array_equal(edge, np.where(part.groups == 1, 255, 0)[:, None].repeat(20, axis=1))
    inner = np.concatenate([drawn.test.images, drawn.train.images])[:, 0, 1:-1, 1:-1]
    np.testing.assert_array_equal(np.sort(inner.sum(axis=(1, 2))), np.sort(digits.images.sum(axis=(1, 2))))
    # Labels stayed with their pictures.
    zeros = inner[np.concatenate([drawn.test.labels, drawn.train.labels]) == 0]
    assert zeros[:, 3:5, 3:5].mean() < 40


@pytest.mark.parametrize("agreement", [0.3, 0.9])
@pytest.mark.parametrize("reliance", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("rate", [0.5, 0.2])
def test_formula_against_a_simulated_classifier(agreement: float, reliance: float, rate: float) -> None:
    generator = np.random.default_rng(0)
    rows = 400_000
    labels = (generator.random(rows) < rate).astype(int)
    groups = np.where(generator.random(rows) < agreement, labels, 1 - labels)
    predicted = np.where(generator.random(rows) < reliance, groups, labels)
    expected = expected_unfairness(agreement, reliance, rate)
    found = _gaps(predicted, labels, groups)
    # The rarest slice has 400,000 · 0.2 · 0.3 rows or more: four standard deviations of a rate are below 0.015.
    assert found == pytest.approx(
        (expected.accuracy, expected.equal_opportunity, expected.demographic_parity), abs=0.015
    )


def test_a_classifier_that_sees_only_the_mark() -> None:
    assert expected_unfairness(0.9).accuracy == pytest.approx(0.9)
    assert expected_unfairness(0.9).equal_opportunity == expected_unfairness(0.9).demographic_parity == 1.0
    assert expected_unfairness(0.9, reliance=0.0).demographic_parity == pytest.approx(0.8)


def _train(part: ImageDataset) -> LogisticRegression:
    return LogisticRegression(C=0.02, max_iter=500).fit(as_floats(part.images).reshape(len(part), -1), part.labels)


@pytest.mark.parametrize("mark", ["colour", "frame"])
def test_plain_training_believes_the_mark_when_it_is_right_more_often(digits: DigitImages, mark: Any) -> None:
    """p = 0.95 beats 1 − η = 0.7, so the best classifier sees only the mark: gaps near 1, accuracy on test rows 1/2."""
    biased = biased_digits(digits, agreement=0.95, test_agreement=0.5, label_noise=0.3, mark=mark)
    fair = biased_digits(digits, agreement=0.5, label_noise=0.3, mark=mark)
    found = {}
    for name, drawn in (("biased", biased), ("fair", fair)):
        test = drawn.test
        predicted = _train(drawn.train).predict(as_floats(test.images).reshape(len(test), -1))
        found[name] = _gaps(predicted, test.labels, test.groups)
    expected = expected_unfairness(0.5)
    assert found["biased"] == pytest.approx(
        (expected.accuracy, expected.equal_opportunity, expected.demographic_parity), abs=0.15
    )
    assert max(found["fair"][1:]) < 0.2


@pytest.mark.parametrize(
    "options",
    [
        {"agreement": 1.1},
        {"test_agreement": -0.1},
        {"label_noise": float("nan")},
        {"classes": 3},
        {"mark": "hat"},
        {"test_fraction": 0.0},
        {"test_fraction": 1.0},
    ],
)
def test_arguments_out_of_range(digits: DigitImages, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        biased_digits(digits, **options)


@pytest.mark.parametrize("arguments", [(1.1,), (0.9, -1.0), (0.9, 1.0, 0.0)])
def test_formula_arguments_out_of_range(arguments: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        expected_unfairness(*arguments)
