"""Standard errors of a party's curves: the sandwich of its own block, and how often they hold the truth."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from evenhand import VerticalClassifier, VerticalRegressor
from evenhand.data import PartyEncoder
from evenhand.estimators.base import VerticalEstimator
from evenhand.models.uncertainty import MOST_COLUMNS, covariance

AS_IS = PartyEncoder(scale=False, numbers="standard")
TRUTH = {"a": np.array([0.8, -0.5]), "b": np.array([0.6, 0.4])}


def draw(seed: int, loss: str, correlation: float, rows: int = 600) -> tuple[dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(seed)
    shared = np.sqrt(correlation) * rng.normal(size=(rows, 1))
    columns = shared + np.sqrt(1.0 - correlation) * rng.normal(size=(rows, 4))
    scores = columns @ np.concatenate(list(TRUTH.values())) - 0.5
    if loss == "logistic":
        targets = np.where(scores + rng.logistic(size=rows) > 0, 1.0, -1.0)
    else:
        # Noise that depends on a column: an estimate that takes it for constant would be off.
        targets = scores + rng.normal(size=rows) * (1.0 + 0.5 * np.abs(columns[:, 0]))
    return {"a": columns[:, :2], "b": columns[:, 2:]}, targets


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Models of the last `fit` as training leaves them, before the estimator drops what holds rows."""
    found: dict[str, Any] = {}
    kept = VerticalEstimator._keep

    def keep(self: VerticalEstimator, run: Any) -> None:
        found.update(run.models)
        kept(self, run)

    monkeypatch.setattr(VerticalEstimator, "_keep", keep)
    return found


@pytest.mark.parametrize(
    ("loss", "correlation", "least"), [("logistic", 0.0, 0.88), ("squared", 0.0, 0.88), ("logistic", 0.5, 0.8)]
)
def test_intervals_hold_the_truth(loss: str, correlation: float, least: float, fitted: dict[str, Any]) -> None:
    """About 95 % where the parties' columns are independent; less where they are correlated, as the page says."""
    inside = []
    for seed in range(30):
        tables, targets = draw(seed, loss, correlation)
        model = VerticalClassifier(encoder=AS_IS) if loss == "logistic" else VerticalRegressor(encoder=AS_IS)
        model.fit(tables, targets)
        for name, truth in TRUTH.items():
            spread = fitted[name].uncertainty()
            inside.append(np.abs(fitted[name].slopes[0] - truth) <= 1.96 * np.sqrt(np.diag(spread)))
    assert least <= np.mean(inside) <= 0.995


def test_errors_are_the_sandwich_of_all_rows(fitted: dict[str, Any]) -> None:
    """With one party nothing is taken as given, and the covariance is that of the pooled regression."""
    tables, targets = draw(3, "logistic", 0.3)
    whole = np.hstack(list(tables.values()))
    model = VerticalClassifier(encoder=AS_IS, alpha=1e-4, tol=1e-9).fit({"all": whole}, targets)
    chances, rows = model.predict_proba({"all": whole})[:, 1], len(targets)
    design = np.column_stack([whole, np.ones(rows)])
    bread = (design * (chances * (1 - chances))[:, None]).T @ design / rows + np.diag([1e-4] * 4 + [0.0])
    residuals = (chances - (targets > 0)) / rows
    meat = (design * residuals[:, None] ** 2).T @ design
    wanted = (np.linalg.inv(bread) @ meat @ np.linalg.inv(bread))[:4, :4]
    np.testing.assert_allclose(fitted["all"].uncertainty(), wanted, rtol=1e-3)


def test_a_saved_model_keeps_no_function_with_rows() -> None:
    tables, targets = draw(0, "logistic", 0.0, rows=100)
    model = VerticalClassifier(encoder=AS_IS).fit(tables, targets)
    assert all(one.uncertainty is None for one in model.models_.values())
    assert all(one.uncertainty is None for one in model.run_.models.values())


def test_large_and_sparse_blocks() -> None:
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(200, 5)) * (rng.random((200, 5)) < 0.3)
    nu, curvature = rng.normal(size=200) / 200, np.full(200, 0.25 / 200)
    found = covariance(sparse.csc_array(dense), nu, curvature, 0.01)
    np.testing.assert_allclose(found, covariance(dense, nu, curvature, 0.01))
    assert covariance(np.zeros((3, MOST_COLUMNS + 1)), np.zeros(3), np.ones(3), 1.0) is None
    assert covariance(np.zeros((3, 0)), np.zeros(3), np.ones(3), 1.0) is None


def test_classes_have_none(fitted: dict[str, Any]) -> None:
    tables, _ = draw(0, "logistic", 0.0, rows=120)
    labels = pd.Series(np.random.default_rng(0).choice(["x", "y", "z"], 120))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        VerticalClassifier(encoder=AS_IS, max_rounds=3).fit(tables, labels)
    assert [one.uncertainty() for one in fitted.values()] == [None, None]
