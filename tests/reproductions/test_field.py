"""The page of baselines beside their authors' numbers, on small tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("torch")

from evenhand.data.public.loaders import Dataset
from evenhand.solvers import HORIZONTAL, VERTICAL
from evenhand_reproductions.experiments import FairVFLProblem
from evenhand_reproductions.field import horizontal, page, vertical
from evenhand_reproductions.methods import register_methods
from evenhand_reproductions.settings import Meter


@pytest.fixture(autouse=True)
def _registered() -> Any:
    before = dict(HORIZONTAL), dict(VERTICAL)
    register_methods()
    yield
    for listed, kept in zip((HORIZONTAL, VERTICAL), before, strict=True):
        listed.clear()
        listed.update(kept)


def table() -> Dataset:
    rng = np.random.default_rng(0)
    rows = 400
    sex, race = rng.choice(["Female", "Male"], size=rows), rng.choice(["White", "Black"], size=rows)
    doctors = np.where(rng.random(rows) < 0.4, "Doctorate", "Bachelors")
    age = rng.normal(40.0, 10.0, size=rows)
    labels = (age / 10.0 + (sex == "Male") + (doctors == "Doctorate") + rng.logistic(size=rows) > 5.0).astype(int)
    frame = pd.DataFrame({"age": age, "education": doctors, "race": race, "sex": sex})
    return Dataset("adult", frame, pd.Series(labels), 1, frame[["sex"]], "")


def problem(name: str) -> FairVFLProblem:
    data = table()
    columns = pd.get_dummies(data.frame, dtype=np.float64)
    columns["age"] = (columns["age"] - 40.0) / 10.0
    blocks = [columns.iloc[:, :3].to_numpy(), columns.iloc[:, 3:].to_numpy()]
    signs = np.where(data.label == 1, 1, -1)
    return FairVFLProblem(name, 10, False, blocks, blocks, signs, signs, data.sensitive, data.sensitive)


def test_a_page_of_small_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vertical, "LEAST_ROUNDS", 5)
    monkeypatch.setattr(vertical, "EPOCHS", 1)
    monkeypatch.setattr(horizontal, "FCFL_SETTINGS", {0.05: (0.1, 4), 0.01: (0.1, 4)})
    monkeypatch.setattr(horizontal, "FIRST", 2)
    monkeypatch.setattr(horizontal, "EPOCHS", {"equal-opportunity": 1, "equalized-odds": 1})
    monkeypatch.setattr(horizontal, "SAMPLES", (200, 100))
    records = vertical.run(problem("compas"), Meter(show=False))
    records += [horizontal.fcfl(table(), epsilon, 1) for epsilon in horizontal.FCFL_SETTINGS]
    records += [horizontal.post_processed(table(), 1)]
    records += [horizontal.fair_batches(kind, 1) for kind in horizontal.EPOCHS]
    frame = pd.DataFrame(records)
    for column in frame.columns:
        if column.endswith(("accuracy", "F1")):
            assert frame[column].dropna().between(0.0, 1.0).all()
    made = page.page(frame)
    headings = [heading for heading, _ in made.tables]
    assert headings[0].startswith("COMPAS: the adversarial FairVFL")
    assert headings[-1] == "What could not be compared"
    fcfl = dict(made.tables)["FCFL on Adult's doctors and others"]
    assert "| FCFL, ε = 0.05, the authors' README | 0.729 | 0.820 | 0.001 | 0.045 |" in fcfl
    # What is worse comes first.
    assert made.notes[0].startswith("COMPAS: where the adversarial FairVFL is better than")


def test_the_synthetic_set_has_two_gaussians_and_a_group_that_goes_with_the_label() -> None:
    x, signs, codes = horizontal.synthetic(4000, np.random.default_rng(0))
    np.testing.assert_allclose(x[signs > 0, :2].mean(axis=0), [2.0, 2.0], atol=0.2)
    np.testing.assert_allclose(np.cov(x[signs < 0, :2].T), [[10.0, 1.0], [1.0, 3.0]], atol=0.6)
    assert codes[signs > 0].mean() > codes[signs < 0].mean() + 0.2
    np.testing.assert_array_equal(x[:, 2], codes)


def test_an_attacker_reads_a_group_that_is_there_and_no_other() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(2, size=1200)
    there = np.column_stack([3.0 * (2.0 * codes - 1.0), rng.standard_normal(1200)])
    assert vertical.attacked(there, codes, 0) > 0.95
    assert vertical.attacked(rng.standard_normal((1200, 2)), codes, 0) < 0.6
