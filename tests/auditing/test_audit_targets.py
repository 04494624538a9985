"""Audits of numbers, of several classes, and of runs that train several times for a rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import evenhand
from evenhand import HorizontalClassifier, HorizontalRegressor, VerticalClassifier, VerticalRegressor
from evenhand.auditing.attacks import HORIZONTAL, VERTICAL, outcome
from evenhand.auditing.findings import Audit, Finding
from evenhand.constraints.thresholds import Threshold

ROWS = 200
RNG = np.random.default_rng(3)
TABLES = [pd.DataFrame(RNG.normal(size=(ROWS, 3)), columns=[f"{name}{i}" for i in range(3)]) for name in "abc"]
SCORES = sum(table.to_numpy()[:, 0] for table in TABLES)
GROUPS = np.where(RNG.random(ROWS) < 0.5, "f", "m")
CLASSES = np.array(["r", "s", "t"])[
    np.argmax(np.c_[SCORES, TABLES[1]["b1"], np.zeros(ROWS)] + RNG.gumbel(size=(ROWS, 3)), axis=1)
]
NUMBERS = SCORES + RNG.normal(size=ROWS)


def about(audit: Audit, target: str, **wanted: Any) -> list[Finding]:
    found = [one for one in audit.findings if one.target == target]
    return [one for one in found if all(getattr(one, name) == value for name, value in wanted.items())]


def vertical(model: Any, y: Any) -> Audit:
    return evenhand.audit(model, TABLES, y, sensitive_features=GROUPS)


def test_passive_parties_read_every_number_from_the_first_derivative() -> None:
    audit = vertical(VerticalRegressor(), NUMBERS)
    first = about(audit, "each person's target", who="party1", sequence=1)
    assert [one.attack for one in first] == ["target"]
    assert first[0].value.value > 0.99
    assert max(first[0].floors.values()) < 0.7
    assert first[0].permuted < 0.1
    assert not about(audit, "each person's target", who="party0 (server)")
    assert "sign, bit with score" in audit.remarks[0]
    assert "sign" not in audit.tried
    assert any(one.measure == "R²" and one.target == "the columns of party1" for one in audit.findings)


def test_counts_are_read_too_though_their_derivatives_depend_on_the_prediction() -> None:
    counts = RNG.poisson(np.exp(SCORES / 2.0)).astype(float)
    audit = vertical(VerticalRegressor(loss="poisson"), counts)
    assert max(one.value.value for one in about(audit, "each person's target", who="party1")) > 0.95


def test_passive_parties_read_every_class_from_the_sign() -> None:
    audit = vertical(VerticalClassifier(), CLASSES)
    for name in "rst":
        (one,) = about(audit, f"whether each person's class is {name}", who="party2", attack="sign", sequence=1)
        assert one.value.value == pytest.approx(1.0)
        assert max(one.floors.values()) < 0.9
        assert 0.35 < one.permuted < 0.65
    # Numbers of a row for each class are taken apart.
    assert "derivative" in audit.tried["sign"]
    assert any("several classes" in one for one in audit.remarks)
    # Scores after training are among what the server attacks.
    assert {"direction", "partial-scores"} <= set(audit.tried["variance"])


@pytest.mark.slow
def test_messages_of_all_trainings_are_attacked(monkeypatch: pytest.MonkeyPatch) -> None:
    # Runs without a person are not repeated here, to save time.
    monkeypatch.setattr("evenhand.training.auditing._again", lambda *_: None)
    model = VerticalClassifier(threshold=Threshold("rate", capacity=0.2), max_rounds=3)
    labels = (NUMBERS > 1.0).astype(int)
    audit, plain = vertical(model, labels), vertical(model.set_params(threshold=0.5), labels)
    said = "the run trains 4 times to choose the cut; messages of all trainings were attacked"
    assert said in audit.remarks
    assert said not in plain.remarks
    counts = [
        max(one.sequence for one in about(each, "each person's label", who="party1", attack="sign"))
        for each in (audit, plain)
    ]
    assert counts[0] >= 3 * counts[1]
    (one,) = about(audit, "each person's label", who="party1", attack="sign", sequence=1)
    assert one.value.value > 0.8


def test_a_client_of_one_row_has_it_read_off_whatever_the_target_is() -> None:
    table, clients = pd.concat(TABLES, axis=1), np.where(np.arange(ROWS) == 0, "one", np.arange(ROWS) % 2)
    for model, y in ((HorizontalRegressor(), NUMBERS), (HorizontalClassifier(), CLASSES)):
        audit = evenhand.audit(model, table, y, clients=clients)
        (one,) = about(audit, "the values of a row of one", attack="inversion")
        assert one.value.value > 0.99
        (other,) = about(audit, "the values of a row of 0", attack="inversion")
        assert other.value.value < 0.9


def test_controls_of_new_attacks_succeed() -> None:
    (target,) = [one for one in VERTICAL if one.name == "target"]
    found = outcome(target)
    assert found.value > 0.9
    assert found.permuted < 0.1
    assert all(one.targets for one in (*VERTICAL, *HORIZONTAL))
