"""Bounds on rates hold for new people: they are tightened by what rows lose if they are left out of training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.problems import small, train

from evenhand import EqualizedOdds, EqualOpportunity, NeymanPearson, VerticalClassifier
from evenhand.constraints import LossParity
from evenhand.protocol.messages import Message
from evenhand.solvers import Subspace
from evenhand.vertical.subspace.server import SubspaceServer

LIMIT = 0.35
ROWS, NEW = 2400, 10000
SEEDS = range(7300, 7304)
"""Taken before any of them was looked at."""


def people(seed: int) -> tuple[list[pd.DataFrame], np.ndarray]:
    """Rows of which a tenth is positive, and of whose 16 columns two say something; four parties."""
    random = np.random.default_rng(seed)
    columns = random.normal(size=(ROWS + NEW, 16))
    columns[:, ::3] = np.exp(columns[:, ::3])
    score = np.log(columns[:, 0]) + np.abs(columns[:, 5]) + random.logistic(size=ROWS + NEW)
    labels = (score > np.quantile(score, 0.9)).astype(int)
    frame = pd.DataFrame(columns, columns=[f"x{place}" for place in range(16)])
    return [frame.iloc[:, place::4] for place in range(4)], labels


def missed(seed: int, **settings: Any) -> tuple[float, dict[str, Any]]:
    """The share of new positives that are missed, and what the solver says of the limit."""
    parts, labels = people(seed)
    train, new = ([part[:ROWS] for part in parts], [part[ROWS:] for part in parts])
    model = VerticalClassifier(
        constraint=NeymanPearson(LIMIT, measure="error"), pos_label=1, random_state=0, **settings
    ).fit(train, labels[:ROWS])
    scores = model.decision_function(new)
    (said,) = model.run_.statistics["constraints"]
    said["converged"] = model.certificate_.converged
    return float((scores[labels[ROWS:] == 1] <= 0).mean()), said


def test_new_people_are_within_the_limit_and_the_certificate_tells_three_numbers() -> None:
    found = [missed(seed) for seed in SEEDS]
    new, said = np.array([one for one, _ in found]), [one for _, one in found]
    training, left_out = (np.array([one[f"{rows} rows"] for one in said]) for rows in ("training", "held-out"))
    assert all(one["asked"] == [None, LIMIT] for one in said)
    # A run may end between two models, of which one is a row beyond the limit.
    assert sum(one["converged"] for one in said) >= len(said) - 1
    # 240 positives: a rate of .35 has a standard error of .03, and the mean of four .015. Three of these:
    assert new.mean() <= LIMIT + 0.045
    assert left_out.mean() == pytest.approx(new.mean(), abs=0.05)
    assert training.mean() < new.mean() - 0.05


def test_a_model_that_was_not_measured_on_left_out_rows_is_not_returned() -> None:
    """Before the first measurement models seem to lose nothing on left-out rows, and have the least loss."""
    new, said = missed(7303, protection="none")
    assert said["training rows"] < said["held-out rows"] - 0.05
    assert new == pytest.approx(said["held-out rows"], abs=0.1)


def test_bounds_on_training_rows_alone_do_not_hold_for_new_people() -> None:
    found = [missed(seed, solver=Subspace(leave_one_out=False)) for seed in SEEDS]
    assert np.mean([new for new, _ in found]) > LIMIT + 0.1
    assert all(said["held-out rows"] is None for _, said in found)
    assert all(said["training rows"] <= LIMIT for _, said in found)


@pytest.mark.parametrize("protection", ["masked", "dealer"])
def test_sums_of_leverages_arrive_behind_masks(protection: str) -> None:
    problem = small(3, 300, 6)
    constraint, blocks = EqualOpportunity(0.05, measure="error"), [[0, 1], [2, 3], [4, 5]]
    plain = train(problem, constraint, blocks, solver="subspace", protection="none", max_rounds=60)
    hidden = train(problem, constraint, blocks, solver="subspace", protection=protection, max_rounds=60)
    kinds = set(hidden.transcript.frame()["kind"])
    # That of the label holder, which works at the server's side, is the only one in the clear.
    clear = hidden.transcript.frame().query("kind == 'leverages'")
    assert list(clear["sender"]) == ["p0"]
    assert "masked" in kinds
    assert set(plain.transcript.frame().query("kind == 'leverages'")["sender"]) == {"p0", "p1", "p2"}
    (one,), (other,) = plain.statistics["constraints"], hidden.statistics["constraints"]
    assert other["held-out rows"] == pytest.approx(one["held-out rows"], abs=0.03)


@pytest.mark.parametrize("protection", ["masked", "dealer"])
def test_sums_of_leverages_tell_nothing_of_single_rows(protection: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of two values of the same size would leave the leverages of the other party uncovered."""
    problem = small(3, 300, 4)
    problem.matrix[:, 3] = np.tile([-1.0, 1.0], 150)
    opened: list[np.ndarray] = []
    handle = SubspaceServer.handle

    def recorded(server: SubspaceServer, message: Message) -> Any:
        if message.kind == "leverages" and message.sender != "p0":
            opened.append(message["leverages"])
        return handle(server, message)

    monkeypatch.setattr(SubspaceServer, "handle", recorded)
    constraint = EqualOpportunity(0.05, measure="error")
    train(problem, constraint, [[0, 1], [2], [3]], solver="subspace", protection=protection, max_rounds=3)
    (found,) = opened
    assert found.mean() > 0.0
    assert np.ptp(found) < 1e-9


@pytest.mark.parametrize(
    ("constraint", "options"),
    [
        (LossParity(0.05), {}),
        (EqualizedOdds(0.05, measure="error"), {"exact_rates": False}),
        (EqualizedOdds(0.0, measure="error"), {}),
        (EqualizedOdds(0.1, measure="error"), {"leave_one_out": False}),
        (None, {}),
    ],
    ids=str,
)
def test_no_leverage_is_sent_where_nothing_is_tightened(constraint: Any, options: dict[str, Any]) -> None:
    run = train(small(1, 200), constraint, [[0, 1], [2, 3]], solver="subspace", max_rounds=5, options=options)
    assert "leverages" not in set(run.transcript.frame()["kind"])


def test_values_on_left_out_rows_are_those_of_refits_without_them() -> None:
    """With few positives the limit curves scores much, and a linear step at that curvature says too little."""
    told, refitted = [], []
    for seed in (7310, 7311):
        parts, labels = people(seed)
        # 120 positives of 1,500.
        some = np.r_[np.flatnonzero(labels == 1)[:120], np.flatnonzero(labels == 0)[:1380]]
        parts, labels = [part.iloc[some] for part in parts], labels[some]
        settings: dict[str, Any] = {"pos_label": 1, "random_state": 0, "protection": "none"}
        model = VerticalClassifier(constraint=NeymanPearson(LIMIT, measure="error"), **settings).fit(parts, labels)
        (said,) = model.run_.statistics["constraints"]
        told.append(said["held-out rows"])
        # The smooth rate of the model: refits have it as their limit.
        at = float(model.history_.filter(like="value[").iloc[-1].iloc[0])
        solver = Subspace(leave_one_out=False, exact_rates=False)
        fold, missed_ones = np.random.default_rng(seed).integers(10, size=len(labels)), []
        for one in range(10):
            refit = VerticalClassifier(constraint=NeymanPearson(at, measure="error"), solver=solver, **settings)
            refit.fit([part[fold != one] for part in parts], labels[fold != one])
            scores = refit.decision_function([part[fold == one] for part in parts])
            missed_ones += list(scores[labels[fold == one] == 1] <= 0.0)
        refitted.append(np.mean(missed_ones))
    assert np.mean(told) == pytest.approx(np.mean(refitted), abs=0.08)


def test_smoother_rates_are_taken_where_sharp_ones_lose_too_much_on_left_out_rows() -> None:
    """Few positives: under a tight aim, sharp rates rest on a handful of rows."""
    found = []
    for seed in (7320, 7321):
        parts, labels = people(seed)
        some = np.r_[np.flatnonzero(labels == 1)[:120], np.flatnonzero(labels == 0)[:1380]]
        model = VerticalClassifier(constraint=NeymanPearson(0.1, measure="error"), pos_label=1, random_state=0)
        model.fit([part.iloc[some] for part in parts], labels[some])
        found.append(model)
    assert max(model.run_.statistics.get("factor on the temperature", 1.0) for model in found) > 1.0
    for model in found:
        (said,) = model.run_.statistics["constraints"]
        assert said["held-out rows"] is not None
        # Complementary slackness is that of the bounds that the model was trained under.
        assert model.certificate_.complementarity <= 0.2
