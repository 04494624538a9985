"""Groups that no constraint compares change nothing: not a bit of a score, not a round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.generated import generate

from evenhand import HorizontalClassifier, VerticalClassifier

GIVEN = generate(3001, least=500, most=1500)
PARTS = [party.matrix for party in GIVEN.parties]


@pytest.mark.parametrize("settings", [{}, {"protection": "none"}, {"model": "trees", "max_rounds": 4, "tol": 0.0}])
def test_groups_without_a_constraint_change_nothing_across_columns(settings: dict[str, Any]) -> None:
    plain, given = (VerticalClassifier(random_state=0, **settings) for _ in range(2))
    plain.fit(PARTS, GIVEN.labels)
    given.fit(PARTS, GIVEN.labels, sensitive_features=GIVEN.sensitive)
    np.testing.assert_array_equal(given.decision_function(PARTS), plain.decision_function(PARTS))
    assert given.certificate_ == plain.certificate_


@pytest.mark.parametrize(
    "settings", [{"solver": "sqp"}, {"solver": "fedavg", "max_rounds": 2}, {"model": "trees", "max_rounds": 8}]
)
def test_groups_without_a_constraint_change_nothing_across_clients(settings: dict[str, Any]) -> None:
    rows, clients = np.hstack(PARTS), np.arange(len(GIVEN.labels)) % 3
    plain, given = (HorizontalClassifier(random_state=0, tol=1e-3, **settings) for _ in range(2))
    plain.fit(rows, GIVEN.labels, clients=clients)
    given.fit(rows, GIVEN.labels, clients=clients, sensitive_features=GIVEN.sensitive)
    np.testing.assert_array_equal(given.decision_function(rows), plain.decision_function(rows))
    assert given.n_iter_ == plain.n_iter_
