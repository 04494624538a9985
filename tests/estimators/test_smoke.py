"""One small fit for each split: what `make quick` runs of training."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand import EqualOpportunity, HorizontalClassifier, VerticalClassifier

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 6))
GROUP = np.where(RNG.random(400) < 0.5, "a", "b")
Y = (X[:, 0] + X[:, 3] + (GROUP == "a") + RNG.normal(size=400) > 0.5).astype(int)
EPSILON = 0.1

pytestmark = pytest.mark.filterwarnings("ignore::evenhand.errors.EvenhandWarning")


def gap(losses: np.ndarray) -> float:
    return abs(losses[(Y == 1) & (GROUP == "a")].mean() - losses[(Y == 1) & (GROUP == "b")].mean())


def test_a_vertical_fit_meets_its_constraint() -> None:
    parts = [X[:, :2], X[:, 2:4], X[:, 4:]]
    model = VerticalClassifier(constraint=EqualOpportunity(EPSILON)).fit(parts, Y, sensitive_features=GROUP)
    assert model.certificate_.converged
    assert gap(np.logaddexp(0, -model.decision_function(parts))) <= EPSILON + 1e-6


def test_a_horizontal_fit_meets_its_constraint() -> None:
    clients = np.arange(400) % 3
    model = HorizontalClassifier(constraint=EqualOpportunity(EPSILON))
    model.fit(X, Y, sensitive_features=GROUP, clients=clients)
    assert model.certificate_.converged
    assert gap(np.logaddexp(0, -model.decision_function(X))) <= EPSILON + 1e-3
