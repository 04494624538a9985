"""Columns of two values are read from sums behind masks without knowing a row; other columns are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evenhand import VerticalClassifier
from evenhand.auditing.cases import Case
from evenhand.auditing.findings import Audit, Finding
from evenhand.auditing.separation import LOOKED_AT, best_split, components, two_valued
from evenhand.auditing.views import View
from evenhand.estimators.auditing import trained_for_audit

ROWS = 600


def test_a_split_explains_what_two_values_and_a_normal_distribution_leave() -> None:
    rng = np.random.default_rng(0)
    flags = rng.random(500) < 0.2
    found = best_split(np.where(flags, 5.0, -1.0))
    assert found.explained == pytest.approx(1.0)
    assert -1.0 < found.threshold < 5.0
    assert best_split(rng.normal(size=20_000)).explained == pytest.approx(2 / np.pi, abs=0.01)
    assert best_split(np.zeros(5)).explained == 0.0


def test_numbers_that_do_not_vary_have_no_components() -> None:
    assert components(np.ones((50, 3))).shape == (50, 0)
    one = components(np.arange(50.0)[:, None])
    assert abs(np.corrcoef(one[:, 0], np.arange(50))[0, 1]) == pytest.approx(1.0)
    assert components(np.random.default_rng(0).normal(size=(300, 6))).shape == (300, LOOKED_AT)


def found(secret: bool) -> list[Finding]:
    """Attack a masked run of two passive parties as the server; one party has a column of two values, or none."""
    rng = np.random.default_rng(3)
    others, own = rng.normal(size=(ROWS, 6)), rng.normal(size=(ROWS, 1))
    flag = 0.5 * others[:, 0] + np.sqrt(0.75) * rng.normal(size=ROWS)
    column = (flag > 0.25).astype(float) if secret else flag
    labels = own[:, 0] + 2.0 * column + 0.7 * others.sum(axis=1) + rng.logistic(size=ROWS) > 0
    tables = {"bank": own, "shop": column[:, None], "phone": others}
    scene = trained_for_audit(VerticalClassifier(protection="masked"), tables, labels, None)[1]
    scene = replace(scene, known=rng.random(ROWS) < 0.5, rows=np.arange(ROWS))
    return list(two_valued(Case(View.of(scene, ["bank"]), rng)))


def test_the_server_reads_a_column_of_two_values_behind_masks() -> None:
    pytest.importorskip("nacl")
    area, share = found(secret=True)
    assert area.target == "a column of two values of shop"
    assert area.value.value > 0.99
    assert set(area.floors) == {"random sums", "half known"}
    assert max(area.floors.values()) < 0.95
    assert area.real
    assert (share.value.value, share.floors["chance"]) == (1.0, 0.0)
    said = Audit("vertical", "masked", [replace(area, attack="blind separation")]).sentences
    assert said[0].startswith("bank (server) can ")
    assert "from its own columns and random combinations of messages it could guess" in said[0]


def test_without_such_a_column_there_is_nothing_to_find() -> None:
    pytest.importorskip("nacl")
    assert found(secret=False) == []
