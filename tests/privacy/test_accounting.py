"""ε against dp-accounting composed step by step and against the closed form; refusals; calibration."""

from __future__ import annotations

import json
import sys
from math import exp, hypot, sqrt
from typing import Any

import dp_accounting
import pytest
from dp_accounting import pld, rdp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from evenhand.errors import InputError, MissingExtraError
from evenhand.privacy.accounting import (
    NoGuaranteeError,
    PrivacyStatement,
    noise_for,
    privacy_statement,
)
from evenhand.privacy.mechanism import ClippedGaussian, GaussianNoise

DELTA = 1e-5


def mechanism(multiplier: float, dual: float | None = None, *, multipliers: bool = True) -> ClippedGaussian:
    return ClippedGaussian(1.0, 0.1 if multipliers else None, multiplier, dual)


def closed_form(ratio: float, delta: float) -> float:
    """ε of a Gaussian mechanism whose sensitivity is ``ratio`` times its noise (Balle and Wang, 2018, Theorem 8)."""

    def excess(epsilon: float) -> float:
        shift = epsilon / ratio
        return norm.cdf(ratio / 2 - shift) - exp(epsilon + norm.logcdf(-ratio / 2 - shift)) - delta

    return float(brentq(excess, 0, 20 * ratio + ratio**2, xtol=1e-12))


@pytest.mark.parametrize("multiplier", [0.3, 1.0, 4.0, 30.0])
def test_a_single_gaussian_release_agrees_with_the_closed_form(multiplier: float) -> None:
    found = privacy_statement(mechanism(multiplier, multipliers=False), 1, DELTA)
    exact = closed_form(1 / multiplier, DELTA)
    # An upper bound, and hardly above: 1e-6 allows for the grid of the privacy loss distribution.
    assert exact * (1 - 1e-9) <= found.epsilon <= exact * (1 + 1e-6)
    assert found.epsilon == min(found.by_accountant.values()) == found.by_accountant["PLD"]
    assert exact <= found.by_accountant["RDP"] <= 1.25 * exact + 0.05


@pytest.mark.parametrize(("multiplier", "dual", "rounds"), [(2.0, 3.0, 1), (10.0, 10.0, 60), (8.0, 40.0, 100)])
def test_two_releases_a_round_agree_with_dp_accounting_one_by_one(multiplier: float, dual: float, rounds: int) -> None:
    found = privacy_statement(mechanism(multiplier, dual), rounds, DELTA)
    accountants = {"RDP": rdp.RdpAccountant(), "PLD": pld.PLDAccountant(value_discretization_interval=1e-3)}
    for name, accountant in accountants.items():
        for release in (multiplier, dual):
            accountant.compose(dp_accounting.GaussianDpEvent(release), rounds)
        assert found.by_accountant[name] == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-4)
    exact = closed_form(sqrt(rounds) * hypot(1 / multiplier, 1 / dual), DELTA)
    assert found.epsilon == pytest.approx(exact, rel=1e-6)


def test_the_sensitivity_is_that_of_replacing() -> None:
    """Noise σ on an update of norm at most S: as a mechanism of sensitivity 2S, not S."""
    clip, noise = 0.7, 2.8
    found = privacy_statement(ClippedGaussian(clip, None, noise / (2 * clip)), 1, DELTA)
    assert found.epsilon == pytest.approx(closed_form(2 * clip / noise, DELTA), rel=1e-6)


@pytest.mark.slow
@given(st.floats(0.5, 50), st.integers(1, 200), st.sampled_from([1e-7, 1e-5, 1e-3]), st.floats(1.1, 3))
@settings(max_examples=15)
def test_more_noise_fewer_rounds_or_a_larger_delta_cost_less(
    z: float, rounds: int, delta: float, factor: float
) -> None:
    epsilon = privacy_statement(mechanism(z), rounds, delta).epsilon
    assert privacy_statement(mechanism(factor * z), rounds, delta).epsilon < epsilon
    assert privacy_statement(mechanism(z, factor * z), rounds, delta).epsilon < epsilon
    assert privacy_statement(mechanism(z, multipliers=False), rounds, delta).epsilon < epsilon
    assert privacy_statement(mechanism(z), rounds, 2 * delta).epsilon < epsilon
    assert privacy_statement(mechanism(z), rounds + 1, delta).epsilon > epsilon


def test_extreme_noise_is_accounted_for() -> None:
    """RDP takes over where the grid cannot resolve δ."""
    tiny = privacy_statement(mechanism(5.0), 10, 1e-30)
    assert tiny.epsilon == tiny.by_accountant["RDP"] < 20
    assert privacy_statement(mechanism(0.05), 10, DELTA).epsilon > 1000
    assert privacy_statement(mechanism(1e6), 10, DELTA).epsilon == 0


def test_the_statement_in_words_and_as_a_record() -> None:
    statement = privacy_statement(mechanism(20.0), 30, DELTA)
    assert isinstance(statement, PrivacyStatement)
    for part in (
        f"ε = {statement.epsilon:.4g}",
        "δ = 1e-05",
        "30 updates",
        "Δw and Δλ",
        "RDP",
        "PLD",
        "server",
        "seed",
    ):
        assert part in statement.words
    assert "Δλ" not in privacy_statement(mechanism(20.0, multipliers=False), 30, DELTA).words
    record = json.loads(json.dumps(statement.as_dict()))
    assert record["epsilon"] == statement.epsilon
    assert record["by_accountant"] == statement.by_accountant
    assert record["words"] == statement.words
    # Noise that others can repeat protects nobody, and the statement says so unless told otherwise.
    assert statement.words.startswith("Simulated: the noise came from a seed")
    secret = privacy_statement(mechanism(20.0), 30, DELTA, secret_noise=True)
    assert secret.epsilon == statement.epsilon
    assert secret.words.startswith("ε = ")
    assert "Simulated" not in secret.words
    silent = privacy_statement(mechanism(20.0), 0, DELTA)
    assert silent.epsilon == 0
    assert "no updates" in silent.words


class Careless(ClippedGaussian):
    """Says it clips."""

    def protect(self, delta_w: Any, delta_multipliers: Any, rng: Any) -> Any:
        return delta_w, delta_multipliers


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mechanism": GaussianNoise(100.0)}, "not clipped.*use ClippedGaussian"),
        ({"mechanism": None}, "sent without noise"),
        ({"mechanism": "clipped"}, "no ε is known for 'clipped'"),
        ({"mechanism": Careless(1.0, 1.0, 100.0)}, "no ε is known for"),
        ({"mechanism": mechanism(0.0)}, "no noise"),
        ({"mechanism": mechanism(100.0, 0.0)}, "no noise"),
        ({"unprotected": ["BatchNorm running means", "local metrics"]}, "BatchNorm running means, local metrics"),
        ({"rounds": None}, "is unknown"),
    ],
)
def test_refuses_to_state_what_it_cannot_prove(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(NoGuaranteeError, match=message):
        privacy_statement(**{"mechanism": mechanism(100.0), "rounds": 1, "delta": DELTA} | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"delta": 0.0}, "delta is 0.0"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"rounds": -1}, "rounds is -1"),
        ({"rounds": 2.5}, "rounds is 2.5: give a whole number"),
    ],
)
def test_refuses_wrong_numbers(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        privacy_statement(**{"mechanism": mechanism(100.0), "rounds": 1, "delta": DELTA} | changes)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "rounds", "releases"), [(1.0, 60, 2), (8.0, 30, 1), (0.1, 1, 2)])
def test_calibrated_noise_just_keeps_within_epsilon(epsilon: float, rounds: int, releases: int) -> None:
    found = noise_for(epsilon, DELTA, rounds, releases=releases)
    both = releases == 2
    assert privacy_statement(mechanism(found, multipliers=both), rounds, DELTA).epsilon <= epsilon
    assert privacy_statement(mechanism(found * (1 - 1e-5), multipliers=both), rounds, DELTA).epsilon > epsilon
    exact = sqrt(rounds * releases) * dp_accounting.get_sigma_gaussian(epsilon, DELTA)
    assert found == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 0.0}, "epsilon is 0.0"),
        ({"epsilon": float("inf")}, "epsilon is inf"),
        ({"epsilon": float("nan")}, "epsilon is nan"),
        ({"delta": 1.5}, "delta is 1.5"),
        ({"rounds": 0}, "rounds is 0"),
        ({"rounds": "ten"}, "rounds is 'ten'"),
        ({"releases": 0}, "releases is 0"),
    ],
)
def test_calibration_refuses_wrong_numbers(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        noise_for(**{"epsilon": 1.0, "delta": DELTA, "rounds": 10} | changes)


def test_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(MissingExtraError, match=r"evenhand\[privacy\]"):
        privacy_statement(mechanism(1.0), 1, DELTA)
    # What is refused is refused without it.
    with pytest.raises(NoGuaranteeError):
        privacy_statement(GaussianNoise(1.0), 1, DELTA)
