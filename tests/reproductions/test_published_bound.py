"""Lemma 4.1 and Theorem 4.1 by hand; what the printed bound covers and what it does not."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from evenhand.errors import InputError
from evenhand_reproductions.published_bound import PublishedBound

BOUND = PublishedBound(
    gradient_bound=3.0,
    loss_bound=2.0,
    multiplier_bound=0.5,
    batch_size=12,
    penalty=4.0,
    learning_rate=0.1,
    dual_learning_rate=0.2,
)


def test_lemma_by_hand() -> None:
    weights, multiplier = BOUND.sensitivities
    # 2·0.1·3/12 + 8·0.1·0.5·3/12 + 8·0.1·4·3·2·58/100
    assert weights == pytest.approx(0.05 + 0.1 + 11.136)
    assert multiplier == pytest.approx(4 * 0.2 * 2 / 12)


def test_theorem_by_hand() -> None:
    noise = BOUND.noise(epsilon=2.0, delta=exp(-8), rounds=9)
    # √(2·9·8)/2 = 6
    assert noise == pytest.approx(tuple(6 * value for value in BOUND.sensitivities))
    # FedAvg, and a penalty, which "increases the required noise level compared to FedAvg" (Section 6).
    plain = replace(BOUND, penalty=0.0, multiplier_bound=0.0)
    assert plain.noise(epsilon=2.0, delta=exp(-8), rounds=9).weights == pytest.approx(6 * 0.05)


@given(st.sampled_from(list(vars(BOUND))), st.floats(1.01, 10))
def test_grows_with_every_assumption_but_the_batch(name: str, factor: float) -> None:
    value = getattr(BOUND, name)
    larger = replace(BOUND, **{name: value + 1 if name == "batch_size" else factor * value})
    pairs = zip(larger.sensitivities, BOUND.sensitivities, strict=True)
    if name == "batch_size":
        assert all(new < old for new, old in pairs)
    else:
        assert all(new >= old for new, old in pairs)
        assert larger.sensitivities != BOUND.sensitivities


def update(losses: Any, gradients: Any, groups: Any, bound: PublishedBound) -> tuple[Any, float]:
    """One step of Algorithm 1 on a batch, from (10): the change of the weights and of the multiplier, λ = λ_max."""
    first, second = groups == 0, groups == 1
    gap = losses[first].mean() - losses[second].mean()
    gap_gradient = gradients[first].mean(axis=0) - gradients[second].mean(axis=0)
    tilt = bound.multiplier_bound + bound.penalty * gap
    return -bound.learning_rate * (gradients.mean(axis=0) + tilt * gap_gradient), bound.dual_learning_rate * gap


@given(st.integers(0, 2**32 - 1), st.integers(2, 20), st.booleans(), st.booleans())
def test_one_record_moves_one_step_less_than_the_lemma_says(seed: int, half: int, extreme: bool, same: bool) -> None:
    """A record of group 0 is exchanged for one of either group, with losses and gradients up to the bounds."""
    random = np.random.default_rng(seed)
    groups = np.repeat([0, 1], half)
    losses = random.random(2 * half) * BOUND.loss_bound
    gradients = random.normal(size=(2 * half, 3))
    if extreme:
        losses = np.where(losses > 1, BOUND.loss_bound, 0.0)
        gradients[:, 1:] = 0
    gradients *= BOUND.gradient_bound / np.linalg.norm(gradients, axis=1, keepdims=True)
    other = losses.copy(), gradients.copy(), groups.copy()
    other[0][0], other[1][0], other[2][0] = BOUND.loss_bound - losses[0], -gradients[0], int(not same)
    bound = replace(BOUND, batch_size=2 * half)
    step, changed = update(losses, gradients, groups, bound), update(*other, bound)
    assert np.linalg.norm(step[0] - changed[0]) <= bound.sensitivities.weights * (1 + 1e-12)
    assert abs(step[1] - changed[1]) <= bound.sensitivities.multiplier * (1 + 1e-12)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_it_covers_a_single_local_step(steps: int) -> None:
    """Plain gradient steps on linear losses z·w, one of the batch's records z exchanged for -z: k times the lemma."""
    plain = replace(BOUND, penalty=0.0, multiplier_bound=0.0)
    records = np.full(plain.batch_size, plain.gradient_bound)
    exchanged = np.append(records[:-1], -records[-1])
    moved = sum(plain.learning_rate * (records.mean() - exchanged.mean()) for _ in range(steps))
    assert moved == pytest.approx(steps * plain.sensitivities.weights)


def epsilon_of(sensitivity_over_noise: float, delta: float) -> float:
    """Of a Gaussian mechanism, exactly (Balle and Wang, 2018, Theorem 8), by bisection."""
    low, high = 0.0, 1e4
    for _ in range(200):
        middle = (low + high) / 2
        shift = middle / sensitivity_over_noise
        upper = norm.logcdf(sensitivity_over_noise / 2 - shift)
        lower = middle + norm.logcdf(-sensitivity_over_noise / 2 - shift)
        low, high = (middle, high) if exp(upper) - exp(lower) > delta else (low, middle)
    return high


@pytest.mark.parametrize(("epsilon", "one", "both"), [(1.0, 0.759, 1.110), (5.0, 4.591, 6.903), (50.0, 97.9, 170.5)])
def test_the_two_updates_together_spend_more_than_printed(epsilon: float, one: float, both: float) -> None:
    rounds, delta = 30, 1e-5
    noise, sensitivity = BOUND.noise(epsilon=epsilon, delta=delta, rounds=rounds), BOUND.sensitivities
    # T releases of sensitivity Δ are one of sensitivity √T·Δ, and two quantities add in squares.
    ratios = [sqrt(rounds) * s / n for s, n in zip(sensitivity, noise, strict=True)]
    assert ratios == pytest.approx([epsilon / sqrt(2 * log(1 / delta))] * 2)
    assert epsilon_of(ratios[0], delta) == pytest.approx(one, rel=1e-3)
    assert epsilon_of(float(np.hypot(*ratios)), delta) == pytest.approx(both, rel=1e-3)
    assert both > epsilon


@pytest.mark.parametrize("name", list(vars(BOUND)))
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_refuses_impossible_assumptions(name: str, value: float) -> None:
    with pytest.raises(InputError, match=name):
        replace(BOUND, **{name: value})


def test_refuses_small_batches_and_impossible_budgets() -> None:
    for size in (0, 1, 2):
        with pytest.raises(InputError, match=r"batch_size is .*\|B\| - 2"):
            replace(BOUND, batch_size=size)
    usual: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "rounds": 10}
    for name, values in {"epsilon": [0, -1, np.inf, np.nan], "delta": [0, 1, -1, np.nan], "rounds": [0, -3]}.items():
        for value in values:
            with pytest.raises(InputError, match=name):
                BOUND.noise(**usual | {name: value})
