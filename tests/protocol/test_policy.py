"""A party's own policy: on which terms it takes part, and what never leaves it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from evenhand.protocol.job import Job
from evenhand.protocol.messages import Message
from evenhand.protocol.policy import OwnPolicy
from evenhand.protocol.terms import HorizontalTerms, VerticalTerms

TERMS = VerticalTerms(Job(solver="subspace", max_rounds=100), {"bank": "active", "shop": "passive"}, 500)
NOISE = {"mechanism": "ClippedGaussian", "clip": 1.0, "noise_multiplier": 8.0, "delta": 1e-5, "epsilon": 2.0}
CLIENTS = HorizontalTerms(Job(solver="fedavg", max_rounds=100), {"a": "client", "b": "client"}, 500, noise=NOISE)


@pytest.mark.parametrize(
    "policy",
    [
        OwnPolicy(),
        OwnPolicy(["subspace", "sqp"], 100, 500, ["bank", "shop", "phone"]),
        OwnPolicy(never_send=["direction"]),
    ],
)
def test_terms_within_the_policy_are_accepted(policy: OwnPolicy) -> None:
    assert policy(TERMS) is None


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (OwnPolicy(solvers=["sqp"]), "no part in solver 'subspace', only in sqp"),
        (OwnPolicy(solvers=[]), "only in none"),
        (OwnPolicy(most_rounds=99), "100 rounds are more than its 99"),
        (OwnPolicy(least_rows=501), "500 common rows are fewer than its 501"),
        (OwnPolicy(participants=["shop"]), "no part together with bank"),
        (OwnPolicy(protected=True), "only where noise covers all that clients send"),
    ],
)
def test_terms_beyond_the_policy_are_refused_with_a_reason(policy: OwnPolicy, why: str) -> None:
    assert why in str(policy(TERMS))


def test_a_draft_that_does_not_know_the_rows_yet_is_not_refused_for_them() -> None:
    assert OwnPolicy(least_rows=501)(replace(TERMS, n_rows=0)) is None


def test_protected_clients_satisfy_who_asks_for_protection() -> None:
    assert OwnPolicy(protected=True)(CLIENTS) is None
    for noise in ({}, NOISE | {"epsilon": None}, {"mechanism": "GaussianNoise", "weight_noise": 1.0}):
        assert OwnPolicy(protected=True)(replace(CLIENTS, noise=noise)) is not None


@pytest.mark.parametrize(("most", "noise", "why"), [(2.0, NOISE, ""), (1.9, NOISE, "ε = 2 is more"), (9.0, {}, "no ε")])
def test_a_policy_has_a_largest_epsilon(most: float, noise: dict[str, Any], why: str) -> None:
    refusal = OwnPolicy(most_epsilon=most)(replace(CLIENTS, noise=noise))
    assert why in str(refusal) if why else refusal is None


def test_kinds_that_never_leave() -> None:
    policy = OwnPolicy(never_send=["labels"])
    assert "'labels' never leave" in str(policy.veto(Message("bank", "shop", "labels", {})))
    assert policy.veto(Message("bank", "shop", "scores", {"x": np.ones(1)})) is None
