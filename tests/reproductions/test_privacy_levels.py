"""The table of protections in small: every level on COMPAS, a few rounds, and what its page says."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from evenhand.data import load
from evenhand_reproductions.privacy import levels
from evenhand_reproductions.privacy.problems import LEAST_ROWS, dealt


def test_no_column_belongs_to_few_rows(sets_folder: Any) -> None:
    problem = dealt(load("compas", source=sets_folder), 10)
    assert len(problem.train) == 6
    for columns in problem.train:
        others = [len(column) - np.unique(column, return_counts=True)[1].max() for column in columns.T]
        assert min(others) >= LEAST_ROWS


@pytest.mark.soak
def test_levels_are_attacked_and_costed(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nacl")
    private = "dealer, labels ε = 1, own end"
    for level in set(levels.LEVELS) - {"none", "dealer", private}:
        monkeypatch.delitem(levels.LEVELS, level)
    monkeypatch.setattr(levels, "ATTACKED", 1000)
    folder = tiny("privacy", "compas")
    records = {one["method"]: one for one in json.loads((folder / "privacy.json").read_text())["records"]}
    assert records[private]["label lift"] < 0.05
    assert records[private]["train DEO"] == pytest.approx(records["dealer"]["train DEO"], abs=1e-3)
    assert records["none"]["label value"] == 1.0
    assert records["dealer"]["label lift"] < 0.05
    assert records["dealer"]["objective"] == pytest.approx(records["none"]["objective"], rel=1e-2)
    text = (folder / "privacy.md").read_text(encoding="utf-8")
    assert "COMPAS, none: labels at AUC 1.000, disclosed as expected." in text
    assert "what it costs" in text
