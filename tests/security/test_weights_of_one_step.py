"""Weights after a single step on shared weights are a known matrix times the first gradient: the audit says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from evenhand.auditing.vertical import audit_vertical
from evenhand.auditing.views import View, listening
from evenhand.protocol.job import Job
from evenhand.training.auditing import audit_input
from evenhand.vertical.problem import PartyColumns
from evenhand_reproductions.in_memory import Holdings, train_vertical

pytest.importorskip("nacl")
ROWS = 600


def scene(rounds: int) -> Any:
    rng = np.random.default_rng(0)
    spent = np.zeros((ROWS, 20))
    for column in spent.T:
        column[rng.choice(ROWS, 8, replace=False)] = np.round(rng.uniform(20.0, 200.0, 8), 2)
    shop = np.column_stack([(spent - spent.mean(axis=0)) / spent.std(axis=0), rng.random(ROWS) < 0.5])
    bank, phone = rng.normal(size=(ROWS, 3)), rng.normal(size=(ROWS, 3))
    labels = np.where(bank.sum(axis=1) + phone[:, 0] + rng.logistic(size=ROWS) > 0.5, 1.0, -1.0)
    parties = [PartyColumns("bank", bank, True), PartyColumns("phone", phone), PartyColumns("shop", shop)]
    settings: dict[str, Any] = {"solver": "subspace", "protection": "dealer", "allow_experimental": True}
    job = Job(max_rounds=rounds, tol=0.0, **settings)
    terms = Holdings.of(job, parties, labels).terms
    run = train_vertical(job, parties, labels, transcript=listening())
    return audit_input(run.transcript, parties, labels, pd.DataFrame(index=range(ROWS)), run.models, terms)


def test_the_audit_finds_labels_in_weights_of_one_step() -> None:
    """If weights after one step are no longer given out, delete this test, and keep the next one for one round too."""
    found = [one for one in audit_vertical(scene(1)).findings if one.attack == "subset sums" and one.who == "shop"]
    assert [one.real for one in found] == [True]
    assert found[0].value.value > 0.15


def test_weights_of_several_steps_are_no_gradient() -> None:
    assert View.of(scene(3), ["shop"]).gradients == []
