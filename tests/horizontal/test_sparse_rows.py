"""Clients whose encoded columns are mostly zeros keep them sparse, and train the model of the dense columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from evenhand import EqualizedOdds, HorizontalClassifier, LossParity, audit
from evenhand.horizontal.problem import ClientRows

RANDOM = np.random.default_rng(5)
ROWS = 600
LEVELS = {"town": 30, "trade": 12, "school": 6}


def people() -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    codes = {name: RANDOM.integers(levels, size=ROWS) for name, levels in LEVELS.items()}
    table = pd.DataFrame({name: [f"{name}{code}" for code in codes[name]] for name in codes})
    group = RANDOM.integers(2, size=ROWS)
    table["age"] = RANDOM.normal(size=ROWS) + 0.3 * group
    score = 0.6 * (codes["town"] % 3) + table["age"] + (codes["school"] > 3) - 1.0
    return table, (score + RANDOM.logistic(size=ROWS) > 0.0).astype(int), group


TABLE, LABELS, GROUPS = people()
GROUPS_TABLE = pd.DataFrame({"group": GROUPS})
CLIENTS = np.arange(ROWS) % 3


def fitted(solver: str) -> HorizontalClassifier:
    settings: dict[str, Any] = {
        "sqp": {"constraint": EqualizedOdds(0.1, measure="error")},
        "prox-al": {"constraint": LossParity(0.1), "max_rounds": 20},
        "fedavg": {"max_rounds": 3},
    }[solver]
    model = HorizontalClassifier(solver=solver, random_state=0, **settings)
    return model.fit(TABLE, LABELS, sensitive_features=GROUPS_TABLE, clients=CLIENTS)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", ["sqp", "prox-al", "fedavg"])
def test_sparse_columns_give_the_model_of_dense_ones(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    check = ClientRows.__init__

    def watched(self: ClientRows, *given: Any, **named: Any) -> None:
        check(self, *given, **named)
        seen.append(sp.issparse(self.features))

    monkeypatch.setattr(ClientRows, "__init__", watched)
    scores = fitted(solver).decision_function(TABLE)
    assert all(seen)
    seen.clear()
    monkeypatch.setattr("evenhand.data.tables.encoding.sparse_is_faster", lambda columns: False)
    plain = fitted(solver).decision_function(TABLE)
    assert not any(seen)
    np.testing.assert_allclose(scores, plain, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("solver", ["fedavg"])
def test_an_audit_attacks_sparse_columns_too(solver: str) -> None:
    model = fitted(solver)
    found = audit(model, TABLE, LABELS, sensitive_features=GROUPS_TABLE, clients=CLIENTS)
    assert len(found.findings) > 0


def test_trees_take_a_sparse_matrix() -> None:
    matrix = sp.csr_array(np.where(RANDOM.random((ROWS, 12)) < 0.1, RANDOM.normal(size=(ROWS, 12)), 0.0))
    model = HorizontalClassifier(model="trees", max_rounds=6, tol=0.0, random_state=0)
    scores = model.fit(matrix, LABELS, clients=CLIENTS).decision_function(matrix)
    dense_model = HorizontalClassifier(model="trees", max_rounds=6, tol=0.0, random_state=0)
    expected = dense_model.fit(matrix.toarray(), LABELS, clients=CLIENTS).decision_function(matrix.toarray())
    np.testing.assert_allclose(scores, expected, atol=1e-12)
