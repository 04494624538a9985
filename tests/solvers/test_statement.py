"""The line that says what a job's messages disclose, before anything is trained."""

from __future__ import annotations

from typing import Any

import pytest

from evenhand.constraints import DemographicParity
from evenhand.protocol.job import Job
from evenhand.solvers.statement import disclosure

PARITY = [DemographicParity(0.1)]
RULE = {"rule": "rate", "capacity": 0.2}
GROUPS = "true group of each row"


@pytest.mark.parametrize(
    ("job", "said", "unsaid"),
    [
        ({"label_privacy": {"epsilon": 1.0}, "constraints": PARITY}, GROUPS, "target"),
        ({"label_privacy": {"epsilon": 1.0, "groups": 1.0}, "constraints": PARITY}, "randomised labels", GROUPS),
        ({"label_privacy": {"epsilon": 1.0}}, "randomised labels", GROUPS),
        ({"loss": "squared"}, "shop can work out the target of each row", "label"),
        ({"rule": RULE}, "so the model is trained 4 times", "target"),
        ({"rule": RULE, "constraints": PARITY}, "so the model is trained 7 times", "target"),
        ({}, "shop can work out the label of each row", "trained"),
    ],
)
def test_of_two_parties(job: dict[str, Any], said: str, unsaid: str) -> None:
    found = disclosure(Job(solver="subspace", protection="none", **job), {"bank": "active", "shop": "passive"})
    assert said in found
    assert unsaid not in found


def test_columns_of_two_values_are_named_behind_masks() -> None:
    parts: dict[str, Any] = {"bank": "active", "shop": "passive", "phone": "passive"}
    masked = Job(solver="subspace", protection="masked")
    found = disclosure(masked, parts)
    assert "sums over shop and phone only" in found
    assert "columns of two values can be read without knowing any row" in found
    assert "hidden-left" not in found
    assert 'which rows a party lacks (ids = "hidden-left") among them' in disclosure(masked, parts, marks=True)
    embedding = Job(solver="learners", model="own", protection="masked", options={"exchange": "embedding"})
    assert 'exchange = "embedding" tells more than any other option' in disclosure(embedding, parts)


def test_a_second_active_party_reads_all_labels() -> None:
    job = Job(solver="fairvfl", protection="none")
    found = disclosure(job, {"bank": "active", "phone": "active", "shop": "passive"})
    assert "phone (active) can read all labels and groups" in found
    assert "bank (active)" not in found


def test_masked_clients_send_summaries_of_their_own() -> None:
    job = Job(solver="sqp", protection="masked", rule=RULE, constraints=PARITY)  # type: ignore[arg-type]
    found = disclosure(job, {"a": "client", "b": "client"})
    assert "in training the server reads sums over clients only" in found
    assert "each client's summaries of columns and counts by group" in found
    assert "trained 3 times" in found
