"""Weights after a single step are a known matrix times the first gradient: they stay in shares."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from evenhand.arrays import Array
from evenhand.auditing.audits import audit_vertical
from evenhand.auditing.views import View, listening
from evenhand.protocol.job import Job
from evenhand.training.auditing import audit_input
from evenhand.vertical.messages import COEFFICIENTS
from evenhand.vertical.problem import PartyColumns
from evenhand.vertical.protected.messages import WEIGHT_SHARE
from evenhand.vertical.protected.trail import Trail
from evenhand_reproductions.in_memory import Holdings, train_vertical

pytest.importorskip("nacl")
ROWS = 600


def scene(rounds: int) -> Any:
    """Return what an audit sees of a run, and the weights that nobody sees."""
    rng = np.random.default_rng(0)
    spent = np.zeros((ROWS, 20))
    for column in spent.T:
        column[rng.choice(ROWS, 8, replace=False)] = np.round(rng.uniform(20.0, 200.0, 8), 2)
    shop = np.column_stack([(spent - spent.mean(axis=0)) / spent.std(axis=0), rng.random(ROWS) < 0.5])
    bank, phone = rng.normal(size=(ROWS, 3)), rng.normal(size=(ROWS, 3))
    labels = np.where(bank.sum(axis=1) + phone[:, 0] + rng.logistic(size=ROWS) > 0.5, 1.0, -1.0)
    parties = [PartyColumns("bank", bank, True), PartyColumns("phone", phone), PartyColumns("shop", shop)]
    job = Job(solver="subspace", protection="dealer", max_rounds=rounds, tol=0.0)
    terms = Holdings.of(job, parties, labels).terms
    run = train_vertical(job, parties, labels, transcript=listening())
    every = {name: model.weights for name, model in run.models.items()}
    return audit_input(run.transcript, parties, labels, pd.DataFrame(index=range(ROWS)), run.models, terms), every


@pytest.mark.parametrize("rounds", [1, 3])
def test_shared_weights_are_no_gradient_and_no_weights_of_a_party(rounds: int) -> None:
    found, _ = scene(rounds)
    assert View.of(found, ["shop"]).gradients == []
    assert set(found.weights) == {"bank"}


def test_the_audit_would_find_labels_in_weights_of_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: if the server gave out its share and the coefficients of one step, subset sums would find labels."""
    steps: list[dict[str, Any]] = []

    def go(self: Trail, coefficients: Array, *, keep: bool) -> None:
        heads = {"round": 1, "last": 0, "keep": int(keep), "intercept": 0.0}
        steps.append(heads | {"coefficients": coefficients})
        taken(self, coefficients, keep=keep)

    taken = Trail.go
    monkeypatch.setattr(Trail, "go", go)
    found, every = scene(1)
    given = WEIGHT_SHARE.message("server", "shop", words=np.zeros(21, dtype=np.int64))
    told = [COEFFICIENTS.message("server", "shop", **one) for one in steps]
    leaky = replace(found, messages=[*found.messages, *told, given], weights={"shop": every["shop"]})
    (labels,) = [one for one in audit_vertical(leaky).findings if one.attack == "subset sums" and one.who == "shop"]
    assert labels.real
    assert labels.value.value > 0.15
