"""An audit of clients' updates: a batch of one is read off, a large one is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import evenhand
from evenhand import HorizontalClassifier
from evenhand.auditing.findings import Audit
from evenhand.data import PartyEncoder


def audited(solver: str, protection: Any = "none") -> Audit:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(241, 5))
    labels = np.where(rows @ rng.normal(size=5) + rng.logistic(size=241) > 0, 1, 0)
    clients = np.array(["one"] + ["many"] * 120 + ["more"] * 120)
    classifier = HorizontalClassifier(
        solver=solver, max_rounds=3, random_state=0, encoder=PartyEncoder(scale=False), protection=protection
    )
    return evenhand.audit(classifier, rows, labels, clients=clients)


@pytest.mark.parametrize("solver", ["sqp", "prox-al"])
def test_a_client_of_one_row_has_it_read_off(solver: str) -> None:
    found = {one.target: one for one in audited(solver).findings if one.attack == "inversion"}
    assert found["the values of a row of one"].value.value > 0.95
    assert found["the values of a row of one"].real
    assert not found["the values of a row of many"].real


def test_membership_is_measured_beside_what_rows_say_by_themselves() -> None:
    found = [one for one in audited("sqp").findings if one.attack == "membership" and "many" in one.target]
    assert [one.sequence for one in found] == sorted({one.sequence for one in found})
    assert all(set(one.floors) == {"400 known", "half known"} for one in found)
    assert all(abs(one.permuted - 0.5) < 0.2 for one in found)
    assert not any(one.real for one in found)


def test_under_masks_a_client_of_one_row_keeps_it() -> None:
    pytest.importorskip("nacl")
    found = audited("sqp", "masked")
    (one,) = (each for each in found.findings if each.attack == "inversion" and each.target.endswith("row of one"))
    assert one.message == "masked-answer"
    assert one.value.value < 0.9
    assert any("sums over clients only" in remark for remark in found.remarks)
