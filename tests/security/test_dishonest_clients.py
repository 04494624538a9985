"""One client of eight that lies does not move the exact gap under a robust rule; under the mean it does."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("torch")
from evenhand.constraints.kinds import EqualOpportunity
from evenhand.errors import InputError, ProtocolError
from evenhand.horizontal.averaging.rounds import aggregate, check_length
from evenhand.horizontal.problem import ClientRows
from evenhand.protocol.job import Job
from evenhand_reproductions.in_memory import horizontal_terms, train_clients

ROWS, MADE_UP = 1000, 10
"""Rows of each client, and how many times as many a dishonest one makes up."""


@cache
def honest(seed: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Features, labels and groups of eight clients."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(8):
        inside = rng.random(ROWS) < 0.4
        features = rng.normal(size=(ROWS, 4)) + np.outer(0.8 * inside, [1.0, 0.0, 0.0, 0.0])
        score = features @ [1.0, -0.8, 0.5, 0.0] + 0.6 * inside + rng.logistic(size=ROWS)
        found.append((features, np.where(score > 0.3, 1.0, -1.0), np.where(inside, "a", "b")))
    return found


def clients(seed: int, lie: str) -> list[ClientRows]:
    found = []
    for place, (features, labels, groups) in enumerate(honest(seed)):
        times = MADE_UP if place == 0 and lie else 1
        if place == 0 and lie == "labels":
            labels = -labels
        if place == 0 and lie == "groups":
            groups = np.where(groups == "a", "b", "a")
        frame = pd.DataFrame({"group": np.tile(groups, times)})
        found.append(ClientRows(f"c{place}", np.tile(features, (times, 1)), np.tile(labels, times), frame))
    return found


@cache
def outcome(rule: str, lie: str, seed: int) -> tuple[float, float]:
    """Exact gap of true-positive rates, and accuracy, of the model on all clients' true rows."""
    options = {"aggregation": rule, "report_every": 0, "batch_size": 256, "local_epochs": 1}
    job = Job(solver="fairfedavgalm", constraints=(EqualOpportunity(0.02),), max_rounds=80, options=options)
    model = train_clients(job, clients(seed, lie), groups={"group": ("a", "b")}).model
    features, labels, groups = (np.concatenate(parts) for parts in zip(*honest(seed), strict=True))
    decided = model.predict(features) > 0
    rates = [decided[(labels > 0) & (groups == one)].mean() for one in ("a", "b")]
    return abs(float(rates[0] - rates[1])), float((decided == (labels > 0)).mean())


@pytest.mark.parametrize("seed", [0, pytest.param(2, marks=pytest.mark.soak)])
@pytest.mark.parametrize("lie", ["labels", "groups"])
@pytest.mark.parametrize("rule", ["median", "trimmed", "clipped"])
def test_a_lie_moves_the_exact_gap_by_little_under_a_robust_rule(rule: str, lie: str, seed: int) -> None:
    (before, _), (after, accuracy) = outcome(rule, "", seed), outcome(rule, lie, seed)
    assert abs(after - before) <= 0.02
    assert accuracy > outcome("mean", "", seed)[1] - 0.01


def test_under_the_mean_it_does() -> None:
    assert outcome("mean", "groups", 0)[0] - outcome("mean", "", 0)[0] > 0.03
    assert outcome("mean", "labels", 0)[1] < 0.5


@pytest.mark.parametrize("rule", ["median", "trimmed", "clipped"])
def test_one_update_of_any_size_moves_the_result_within_those_of_the_others(rule: Any) -> None:
    rng = np.random.default_rng(0)
    updates = [{name: rng.normal(size=5) for name in ("weights", "statistics", "multipliers")} for _ in range(8)]
    for size in (1e3, 1e9):
        wild = {name: np.full(5, size) for name in updates[0]}
        found = aggregate(rule, [wild, *updates[1:]], 0.2)
        for name, value in found.items():
            rest = np.stack([one[name] for one in updates[1:]])
            if rule == "clipped" and name == "weights":
                assert np.linalg.norm(value) <= np.linalg.norm(rest, axis=1).max()
            else:
                assert ((value >= rest.min(axis=0)) & (value <= rest.max(axis=0))).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"aggregation": "median"}, "needs single updates"),
        ({"aggregation": "trimmed"}, "needs single updates"),
        ({"aggregation": "clipped"}, "give norm_bound"),
    ],
)
def test_under_masks_only_norm_bounds_are_possible(options: dict[str, Any], words: str) -> None:
    pytest.importorskip("nacl")
    job = Job(solver="fedavg", max_rounds=1, protection="masked", options=options)
    with pytest.raises(InputError, match=words):
        train_clients(job, clients(0, ""), groups={"group": ("a", "b")})


def test_under_masks_clients_keep_to_the_norm_bound_and_the_server_checks_the_mean() -> None:
    pytest.importorskip("nacl")
    options = {"aggregation": "clipped", "norm_bound": 0.05, "report_every": 0}
    job = Job(solver="fedavg", max_rounds=2, protection="masked", options=options)
    run = train_clients(job, clients(0, "labels"), groups={"group": ("a", "b")})
    start = train_clients(Job(solver="fedavg", max_rounds=1, options={"step": 1e-30}), clients(0, "")).weights
    assert np.linalg.norm(run.weights - start) <= 2 * 0.05 * (1 + 1e-3)
    for change, rows in ((np.full(4, 1.0), 8), (np.zeros(4), 9)):
        with pytest.raises(ProtocolError, match="does not follow the protocol"):
            check_length(change, 0.05, rows, 8)
    assert horizontal_terms(job, clients(0, "")).only_sums
