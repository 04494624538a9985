"""Multinomial models across clients: equal to the pooled model for any partition of rows, with bounded rates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from evenhand import DemographicParity, EqualizedOdds, EqualOpportunity, HorizontalClassifier, LossParity
from evenhand.constraints.kinds import Constraint
from evenhand.data import PartyEncoder
from evenhand.errors import EvenhandError

AS_IS = PartyEncoder(scale=False, numbers="standard")
NAMES = np.array(["bus", "car", "walk", "train"])


def table(seed: int = 0, rows: int = 500, classes: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 4)) @ (np.eye(4) + 0.4 * rng.normal(size=(4, 4)))
    group = (rng.random(rows) < 0.4).astype(int)
    X[:, 0] += 1.5 * group
    scores = 0.7 * X @ rng.normal(size=(4, classes)) + rng.gumbel(size=(rows, classes))
    return X, NAMES[:classes][scores.argmax(axis=1)], group


def pooled(X: np.ndarray, y: Any, alpha: float) -> LogisticRegression:
    return LogisticRegression(C=1.0 / (alpha * len(y)), tol=1e-10, max_iter=5000).fit(X, y)


@pytest.mark.parametrize("partition", ["even", "by class", "one large"])
@pytest.mark.parametrize("protection", ["none", "masked"])
def test_any_partition_of_rows_gives_the_pooled_model(partition: str, protection: str) -> None:
    X, y, _ = table(classes=4)
    place = np.arange(len(y))
    clients = {"even": place % 3, "by class": (y == "walk") + 2 * (y == "bus"), "one large": (place < 20) + (place < 9)}
    model = HorizontalClassifier(alpha=0.01, encoder=AS_IS, tol=1e-7, protection=protection)
    model.fit(X, y, clients=clients[partition])
    best = pooled(X, y, 0.01)
    assert model.run_.terms.job.solver == "sqp"
    assert model.certificate_.converged
    assert list(model.classes_) == list(best.classes_)
    np.testing.assert_allclose(model.coef_, best.coef_, atol=1e-4)
    np.testing.assert_allclose(model.intercept_ - model.intercept_.mean(), best.intercept_, atol=1e-4)
    np.testing.assert_allclose(model.predict_proba(X[:5]), best.predict_proba(X[:5]), atol=1e-4)


@pytest.mark.parametrize(
    "constraint",
    [DemographicParity(0.04), EqualizedOdds(0.06, "error"), EqualOpportunity(0.02, "error", of_class="bus")],
    ids=lambda one: one.kind,
)
def test_rates_of_each_class_are_within_the_bound_on_training_rows(constraint: Any) -> None:
    X, y, group = table(2, rows=900)
    free = HorizontalClassifier(encoder=AS_IS).fit(X, y, clients=np.arange(len(y)) % 3)
    model = HorizontalClassifier(encoder=AS_IS, constraint=constraint)
    model.fit(X, y, sensitive_features=group, clients=np.arange(len(y)) % 3)

    def worst(fitted: HorizontalClassifier) -> float:
        said, found = fitted.predict(X), []
        for one in fitted.classes_ if constraint.of_class is None else [constraint.of_class]:
            inside = np.full(len(y), True) if isinstance(constraint, DemographicParity) else y == one
            rates = [(said == one)[inside & (group == value)].mean() for value in (0, 1)]
            found.append(abs(rates[0] - rates[1]))
        return max(found)

    assert worst(free) > constraint.epsilon
    assert worst(model) <= constraint.epsilon
    assert model.certificate_.converged


def test_a_constraint_gives_the_model_of_parties_with_columns() -> None:
    from evenhand import VerticalClassifier

    X, y, group = table(3, rows=600)
    constraint = LossParity(0.005)
    rows = HorizontalClassifier(alpha=0.01, encoder=AS_IS, constraint=constraint, tol=1e-7)
    rows.fit(X, y, sensitive_features=group, clients=np.arange(len(y)) % 2)
    columns = VerticalClassifier(alpha=0.01, encoder=AS_IS, constraint=constraint, tol=1e-8)
    columns.fit([X[:, :2], X[:, 2:]], y, sensitive_features=group)
    np.testing.assert_allclose(rows.coef_, columns.coef_, atol=1e-3)


WRONG: dict[str, tuple[Constraint, str, str]] = {
    "rates by averaging": (
        DemographicParity(0.1),
        "fairfedavgalm",
        "only measure='loss' is supported by 'fairfedavgalm'; choose 'sqp'",
    ),
    "labels by averaging": (EqualizedOdds(0.1), "fairfedavgalm", "use loss-parity, or choose 'sqp'"),
    "two classes": (LossParity(0.1), "prox-al", "there are 3 classes, and solver 'prox-al' trains two"),
    "trees": (LossParity(0.1), "trees", "there are 3 classes, and solver 'trees' trains two"),
    "confidence": (LossParity(0.1, confidence=0.9), "sqp", "confidence supports only two labels"),
}


@pytest.mark.parametrize("case", WRONG)
def test_settings_for_two_labels_are_refused(case: str) -> None:
    X, y, group = table(rows=60)
    constraint, solver, message = WRONG[case]
    model = "trees" if solver == "trees" else "linear"
    with pytest.raises(EvenhandError, match=message):
        HorizontalClassifier(solver=solver, model=model, constraint=constraint).fit(
            X, y, sensitive_features=group, clients=np.arange(60) % 2
        )
