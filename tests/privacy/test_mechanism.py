"""Noise and clipping: norms exactly, variances by a statistical test, bits by the generator's seed, refusals."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chi2, kstest

from evenhand.errors import DivergenceError, InputError
from evenhand.privacy.mechanism import ClippedGaussian, GaussianNoise, clipped

WEIGHTS = np.linspace(-3, 3, 50, dtype=np.float32)
MULTIPLIERS = np.array([0.5, -2.0])
MECHANISMS = [
    GaussianNoise(0.01),
    GaussianNoise(0.01, 0.5),
    ClippedGaussian(clip=1.0, dual_clip=0.1, noise_multiplier=2.0),
    ClippedGaussian(clip=1.0, dual_clip=0.1, noise_multiplier=2.0, dual_noise_multiplier=5.0),
]


@given(
    arrays(np.float64, st.integers(0, 30), elements=st.floats(-1e300, 1e300, allow_subnormal=True)),
    st.floats(1e-6, 1e6),
)
def test_a_clipped_norm_is_never_above_the_bound(values: Any, bound: float) -> None:
    result = clipped(values, bound)
    # In rational numbers: no rounding may hide a norm that is too large.
    assert sum((Fraction(float(value)) ** 2 for value in result), Fraction(0)) <= Fraction(bound) ** 2
    norm = np.linalg.norm(values / max(np.abs(values).max(initial=0), 1e-300)) * np.abs(values).max(initial=0)
    if norm <= bound * (1 - 1e-11):
        np.testing.assert_array_equal(result, values)
    elif norm < 1e300:
        np.testing.assert_allclose(np.linalg.norm(result), bound, rtol=1e-11)
        np.testing.assert_allclose(result / bound, values / norm, rtol=0, atol=1e-11)


def test_many_weights_are_clipped_all_the_same() -> None:
    values = np.random.default_rng(0).normal(size=1_000_000)
    result = clipped(values, 1.0)
    assert float(np.sum(np.square(result.astype(np.longdouble)))) <= 1.0
    assert np.linalg.norm(result) == pytest.approx(1.0, rel=1e-11)


def test_clipping_without_noise() -> None:
    mechanism = ClippedGaussian(clip=1.0, dual_clip=10.0, noise_multiplier=0.0)
    weights, multipliers = mechanism.protect(WEIGHTS, MULTIPLIERS, np.random.default_rng(0))
    np.testing.assert_allclose(weights, WEIGHTS / np.linalg.norm(WEIGHTS), rtol=1e-6)
    np.testing.assert_array_equal(multipliers, MULTIPLIERS)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_keeps_shape_and_precision_and_what_was_handed_over(mechanism: GaussianNoise | ClippedGaussian) -> None:
    weights, multipliers = WEIGHTS.reshape(5, 10).copy(), MULTIPLIERS.copy()
    result = mechanism.protect(weights, multipliers, np.random.default_rng(0))
    np.testing.assert_array_equal(weights, WEIGHTS.reshape(5, 10))
    np.testing.assert_array_equal(multipliers, MULTIPLIERS)
    assert [(part.shape, part.dtype) for part in result] == [((5, 10), np.float32), ((2,), np.float64)]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_generator_decides_the_noise(mechanism: GaussianNoise | ClippedGaussian) -> None:
    first, again, other = (mechanism.protect(WEIGHTS, MULTIPLIERS, np.random.default_rng(seed)) for seed in (1, 1, 2))
    for part, repeated, different in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(part, repeated)
        assert not np.isin(part, different).any()
    # A second update gets noise of its own.
    random = np.random.default_rng(1)
    rounds = [mechanism.protect(WEIGHTS, MULTIPLIERS, random) for _ in range(2)]
    assert not np.isin(rounds[0][0], rounds[1][0]).any()


@pytest.mark.parametrize(
    ("mechanism", "expected"),
    [
        (GaussianNoise(0.01), (0.01, 0.01)),
        (GaussianNoise(0.01, 0.5), (0.01, 0.5)),
        # Noise is the multiplier times the sensitivity of replacing, twice the bound.
        (ClippedGaussian(clip=3.0, dual_clip=0.1, noise_multiplier=2.0), (12.0, 0.4)),
        (ClippedGaussian(clip=3.0, dual_clip=0.1, noise_multiplier=2.0, dual_noise_multiplier=5.0), (12.0, 1.0)),
    ],
)
def test_noise_is_normal_with_the_stated_deviation(
    mechanism: GaussianNoise | ClippedGaussian, expected: tuple[float, float]
) -> None:
    """20,000 draws each: the variance within its two-sided 99.9 % band (±3.3 %), the shape by Kolmogorov-Smirnov.

    The seed is fixed; right noise fails each check for one seed in a thousand.
    """
    n = 20_000
    noise = mechanism.protect(np.zeros(n), np.zeros(n), np.random.default_rng(3))
    low, high = chi2.ppf([0.0005, 0.9995], n) / n
    assert high - 1 < 0.034
    assert 1 - low < 0.034
    for part, deviation in zip(noise, expected, strict=True):
        assert low <= np.mean(np.square(part / deviation)) <= high
        assert kstest(part / deviation, "norm").pvalue > 0.001
    # The two are independent.
    assert abs(np.corrcoef(*noise)[0, 1]) < 3.3 / np.sqrt(n)


def test_noise_is_added_to_the_clipped_update() -> None:
    """Mean over many updates: the clipped one, within five standard errors."""
    mechanism = ClippedGaussian(clip=1.0, dual_clip=0.1, noise_multiplier=0.2)
    random, repeats = np.random.default_rng(4), 4000
    weights, multipliers = (
        np.mean(parts, axis=0)
        for parts in zip(*(mechanism.protect(WEIGHTS, MULTIPLIERS, random) for _ in range(repeats)), strict=True)
    )
    np.testing.assert_allclose(weights, WEIGHTS / np.linalg.norm(WEIGHTS), atol=5 * 0.4 / np.sqrt(repeats))
    expected = 0.1 * MULTIPLIERS / np.linalg.norm(MULTIPLIERS)
    np.testing.assert_allclose(multipliers, expected, atol=5 * 0.04 / np.sqrt(repeats))


def test_a_solver_without_multipliers() -> None:
    mechanism = ClippedGaussian(clip=1.0, dual_clip=None, noise_multiplier=2.0)
    assert mechanism.noise_multipliers == (2.0,)
    weights, multipliers = mechanism.protect(WEIGHTS, np.empty(0), np.random.default_rng(0))
    assert multipliers.size == 0
    assert not np.array_equal(weights, WEIGHTS)
    with pytest.raises(InputError, match=r"2 multipliers, but dual_clip is None"):
        mechanism.protect(WEIGHTS, MULTIPLIERS, np.random.default_rng(0))


@pytest.mark.parametrize("mechanism", [one for one in MECHANISMS if isinstance(one, ClippedGaussian)])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_clipped_update_that_is_not_finite_counts_as_zero(mechanism: ClippedGaussian, bad: float) -> None:
    """An error would tell that training diverged, which no noise covers."""
    found = mechanism.protect(np.array([1, bad], dtype=np.float32), np.array([bad, 1.0]), np.random.default_rng(0))
    zeros = mechanism.protect(np.zeros(2, dtype=np.float32), np.zeros(2), np.random.default_rng(0))
    for one, other in zip(found, zeros, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("mechanism", [one for one in MECHANISMS if isinstance(one, GaussianNoise)])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_refuses_updates_that_are_not_finite(mechanism: GaussianNoise, bad: float) -> None:
    random = np.random.default_rng(0)
    with pytest.raises(DivergenceError, match="1 numbers in the update of the weights"):
        mechanism.protect(np.array([1, bad], dtype=np.float32), MULTIPLIERS, random)
    with pytest.raises(DivergenceError, match="update of the multipliers"):
        mechanism.protect(WEIGHTS, np.array([bad]), random)
    # Refused before anything was drawn.
    assert random.random() == np.random.default_rng(0).random()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_refuses_what_is_no_update(mechanism: Any) -> None:
    for wrong in ([1.0, 2.0], np.array([1, 2]), None):
        with pytest.raises(InputError, match="not an array of floating-point numbers"):
            mechanism.protect(wrong, MULTIPLIERS, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GaussianNoise(-0.1), "weight_noise is -0.1"),
        (lambda: GaussianNoise(0.1, float("nan")), "multiplier_noise is nan"),
        (lambda: ClippedGaussian(0.0, 1.0, 1.0), "clip is 0.0: give a finite number above 0"),
        (lambda: ClippedGaussian(float("inf"), 1.0, 1.0), "clip is inf"),
        (lambda: ClippedGaussian(1.0, -1.0, 1.0), "dual_clip is -1.0"),
        (lambda: ClippedGaussian(1.0, 1.0, -1.0), "noise_multiplier is -1.0: give a finite number of at least 0"),
        (lambda: ClippedGaussian(1.0, 1.0, 1.0, float("inf")), "dual_noise_multiplier is inf"),
        (lambda: ClippedGaussian(1.0, None, 1.0, 1.0), "without dual_clip"),
    ],
)
def test_refuses_impossible_settings(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
