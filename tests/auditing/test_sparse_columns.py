"""Sparse columns on shared weights: weights that stay in shares tell no label; weights that a party knows do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from evenhand.auditing.audits import audit_vertical
from evenhand.auditing.findings import Finding
from evenhand.auditing.views import listening
from evenhand.constraints.kinds import EqualOpportunity
from evenhand.protocol.job import Job
from evenhand.training.auditing import audit_input
from evenhand.vertical.problem import PartyColumns
from evenhand_reproductions.in_memory import Holdings, train_vertical

pytest.importorskip("nacl")
ROWS, DEPARTMENTS, CUSTOMERS = 800, 60, 12


def findings(level: str, weights: Any = "shared") -> list[Finding]:
    """Attack as two shops with amounts spent in departments that few people visit."""
    rng = np.random.default_rng(3)
    spent = np.zeros((ROWS, 2 * DEPARTMENTS))
    for column in spent.T:
        column[rng.choice(ROWS, CUSTOMERS, replace=False)] = np.round(rng.uniform(50.0, 150.0, CUSTOMERS), 2)
    spent = (spent - spent.mean(axis=0)) / spent.std(axis=0)
    bank = rng.normal(size=(ROWS, 3))
    labels = np.where(bank.sum(axis=1) + rng.logistic(size=ROWS) > 0.0, 1.0, -1.0)
    groups = pd.DataFrame({"sex": np.where(rng.random(ROWS) < 0.5, "f", "m")})
    halves = {"market": spent[:, :DEPARTMENTS], "shop": spent[:, DEPARTMENTS:]}
    parties = [PartyColumns("bank", bank, True), *(PartyColumns(name, half) for name, half in halves.items())]
    settings: dict[str, Any] = {"solver": "subspace", "protection": level, "weights": weights}
    job = Job(constraints=(EqualOpportunity(0.02),), allow_experimental=True, tol=0.0, max_rounds=8, **settings)
    terms = Holdings.of(job, parties, labels, groups).terms
    run = train_vertical(job, parties, labels, groups, transcript=listening())
    scene = audit_input(run.transcript, parties, labels, groups, run.models, terms)
    return list(audit_vertical(replace(scene, again=None), attackers=list(halves)).findings)


@pytest.mark.parametrize("level", ["dealer", "encrypted"])
def test_shared_weights_tell_neither_labels_nor_groups(level: str) -> None:
    found = findings(level)
    assert {one.target for one in found} == {"each person's label", "each person's sex"}
    # Masks are drawn anew in each run: by chance, one of these gains exceeds 6.5 standard errors in 10¹⁰ runs.
    assert all(one.lift.value < 6.5 * (one.lift.high - one.lift.low) / (2 * 1.96) for one in found)
    assert not {one.attack for one in found} & {"final weights", "known labels"}


def test_weights_that_a_party_knows_tell_labels() -> None:
    found = [one for one in findings("dealer", "party") if one.attack == "known labels"]
    assert {one.who for one in found if one.real} == {"market", "shop"}
