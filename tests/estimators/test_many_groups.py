"""With many small groups, a fit does not end at one decision for everybody while a better feasible model is near."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from evenhand import EqualizedOdds, HorizontalClassifier, VerticalClassifier

EPSILON, GROUPS, ROWS = 0.02, 8, 5000


def people(
    seed: int, intercept: float = 2.5, groups: int = GROUPS, rows: int = ROWS
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw rows, most positive by default; groups shrink by a quarter each, and differ in what all columns share."""
    random = np.random.default_rng(seed)
    shares = np.r_[1.0, 0.08 * 0.75 ** np.arange(groups - 1)]
    effects = np.r_[0.0, -random.uniform(0.3, 1.4, groups - 1)]
    group = random.choice(groups, rows, p=shares / shares.sum())
    factor = random.normal(size=rows) + 0.8 * effects[group]
    columns = factor[:, None] * random.uniform(0.3, 0.9, 6) + random.normal(size=(rows, 6))
    score = intercept + factor + 0.3 * columns[:, 0] + 0.3 * effects[group]
    return columns, (score + random.logistic(size=rows) > 0.0).astype(int), group


def gap(decided: np.ndarray, labels: np.ndarray, group: np.ndarray) -> float:
    rates = [[np.mean(decided[(labels == y) & (group == g)]) for g in np.unique(group)] for y in (0, 1)]
    return max(max(one) - min(one) for one in rates)


def fitted(solver: str, columns: np.ndarray, labels: np.ndarray, group: np.ndarray) -> tuple[Any, np.ndarray]:
    settings: dict[str, Any] = {"constraint": EqualizedOdds(EPSILON, measure="error"), "random_state": 0}
    groups, parts = pd.DataFrame({"group": group}), [columns[:, :3], columns[:, 3:]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if solver == "subspace":
            model = VerticalClassifier(**settings).fit(parts, labels, sensitive_features=groups)
            return model, model.decision_function(parts)
        model = HorizontalClassifier(solver=solver, **settings)
        model.fit(columns, labels, sensitive_features=groups, clients=np.arange(len(labels)) % 3)
        return model, model.decision_function(columns)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("solver", ["subspace", "sqp"])
def test_no_feasible_model_on_a_simple_path_is_better(solver: str, seed: int) -> None:
    columns, labels, group = people(seed)
    model, scores = fitted(solver, columns, labels, group)
    # sqp may end at a cut of the model without bounds, which is no optimum, and says so.
    at_a_cut = solver == "sqp" and "another cut" in str(model.certificate_.unmet)
    assert model.certificate_.converged or at_a_cut
    assert gap(scores > 0, labels, group) <= EPSILON

    def loss(of: np.ndarray) -> float:
        return float(np.mean(np.logaddexp(0.0, np.where(labels > 0, -of, of))))

    # The best feasible model among shifts and scales of a pooled fit without constraint.
    free = LogisticRegression().fit(columns, labels).decision_function(columns)
    paths = [a + b * (free - free.mean()) for a in np.linspace(1.0, 4.0, 31) for b in np.linspace(0.0, 1.0, 11)]
    least = min(loss(one) for one in paths if gap(one > 0, labels, group) <= EPSILON)
    assert loss(scores) <= 1.01 * least


@pytest.mark.slow
def test_a_feasible_model_is_found_where_both_labels_are_common() -> None:
    """Bounds that follow exact rates alone end without one here."""
    columns, labels, group = people(1, intercept=0.0, groups=5, rows=9000)
    model, scores = fitted("subspace", columns, labels, group)
    assert model.certificate_.converged
    assert gap(scores > 0, labels, group) <= EPSILON
