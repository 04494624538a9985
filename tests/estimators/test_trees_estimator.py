"""`VerticalClassifier(model="trees")`: tables as they come, in and out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("lightgbm")

from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from evenhand import (
    EqualizedOdds,
    EqualOpportunity,
    SplitTableClassifier,
    VerticalClassifier,
    VerticalRegressor,
    frontier,
    select,
)
from evenhand.errors import DataError, GridEdgeWarning, InputError
from evenhand.models.trees import TreesModel


def people(rows: int = 1200, seed: int = 0) -> tuple[dict[str, pd.DataFrame], pd.Series, pd.Series]:
    rng = np.random.default_rng(seed)
    sex = rng.choice(["female", "male"], rows)
    income = rng.lognormal(size=rows) + 1.0 * (sex == "male")
    city = rng.choice(["Ghent", "Lyon", "Turin"], rows)
    age = rng.normal(45, 15, rows) + 6.0 * (sex == "male")
    truth = 2.0 * (income > 1.2) + (city == "Lyon") - ((age - 45) / 15) ** 2 + 0.5 * (sex == "male")
    label = np.where(truth + 0.5 * rng.logistic(size=rows) > 0.5, "yes", "no")
    ids = pd.Index([f"p{number}" for number in range(rows)])
    income[rng.random(rows) < 0.1] = np.nan
    town = pd.Series(city, dtype=object)
    town[rng.random(rows) < 0.1] = None
    bank = pd.DataFrame({"income": income, "town": town.to_numpy()}, index=ids)
    shop = pd.DataFrame({"age": age}, index=ids).iloc[rng.permutation(rows)]
    return {"bank": bank, "shop": shop}, pd.Series(label, ids), pd.Series(sex, ids, name="sex")


@pytest.fixture(scope="module")
def fitted() -> VerticalClassifier:
    tables, labels, sex = people()
    model = VerticalClassifier(model="trees", constraint=EqualizedOdds(0.02, measure="error"), max_rounds=8)
    return model.fit(tables, labels, sensitive_features=sex)


def test_tables_with_gaps_and_categories_are_taken_as_they_come(fitted: VerticalClassifier) -> None:
    tables, labels, _ = people(4000, seed=1)
    assert roc_auc_score(labels == "yes", fitted.decision_function(tables)) > 0.85
    assert set(fitted.predict(tables)) == {"yes", "no"}
    np.testing.assert_allclose(fitted.predict_proba(tables).sum(axis=1), 1.0)


def test_what_is_kept_of_a_fit(fitted: VerticalClassifier) -> None:
    assert fitted.certificate_.violation <= 0.004
    assert fitted.n_iter_ <= 8
    assert not hasattr(fitted, "coef_")
    assert not hasattr(fitted, "intercept_")
    assert fitted.encoders_["bank"].categorical == (1,)
    tables, labels, sex = people()
    again = clone(fitted).fit(tables, labels, sensitive_features=sex)
    np.testing.assert_array_equal(again.decision_function(tables), fitted.decision_function(tables))


def test_a_solver_by_name_says_the_model_and_another_model_may_follow() -> None:
    tables, labels, _ = people(300)
    filled = {"bank": tables["bank"].assign(income=1.0, town="Lyon"), "shop": tables["shop"]}
    model = VerticalClassifier(solver="trees", max_rounds=2, warm_start=True).fit(filled, labels)
    model.set_params(solver="subspace", max_rounds=20).fit(filled, labels)
    assert model.coef_.shape == (1, len(model.get_feature_names_out()))
    model.set_params(solver="trees").fit(filled, labels)
    assert not hasattr(model, "coef_")


def test_the_frontier_is_drawn_with_trees() -> None:
    tables, labels, sex = people(600)
    model = VerticalClassifier(model="trees", constraint=EqualOpportunity(0.1, measure="error"), max_rounds=3)
    table = frontier(model, tables, labels, sensitive_features=sex, epsilons=(0.3, 0.05), folds=2)
    assert list(table["epsilon"]) == [0.3, 0.05]
    assert (table["accuracy"] > 0.6).all()


def test_one_table_dealt_out_and_regression() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 4))
    y = X[:, 0] ** 2 + (X[:, 3] > 0)
    one = SplitTableClassifier(VerticalClassifier(model="trees", max_rounds=5), parties=2).fit(X, y > 1)
    assert (one.predict(X) == (y > 1)).mean() > 0.9
    model = VerticalRegressor(solver="trees", max_rounds=10).fit([X[:, :2], X[:, 2:]], y)
    assert model.score([X[:, :2], X[:, 2:]], y) > 0.85


def test_weights_go_with_their_labels_and_a_party_that_is_away_is_told() -> None:
    tables, labels, sex = people(500)
    weights = pd.Series(np.where(labels == "yes", 4.0, 1.0), labels.index)
    model = VerticalClassifier(model="trees", max_rounds=3, random_state=0)
    plain = model.fit(tables, labels, sensitive_features=sex).decision_function(tables)
    weighted = clone(model).fit(tables, labels, sensitive_features=sex, sample_weight=weights)
    assert weighted.decision_function(tables).mean() > plain.mean() + 0.3
    mixed = clone(model).fit(
        tables, labels, sensitive_features=sex, sample_weight=weights.sample(frac=1.0, random_state=0)
    )
    np.testing.assert_array_equal(mixed.decision_function(tables), weighted.decision_function(tables))
    with pytest.raises(DataError, match="other ids"):
        clone(model).fit(tables, labels, sensitive_features=sex, sample_weight=weights.iloc[1:])
    with pytest.raises(DataError, match="the table of shop is missing"):
        model.predict({"bank": tables["bank"]})


def test_settings_of_trees_are_selected() -> None:
    tables, labels, sex = people(500)
    model = VerticalClassifier(model="trees", constraint=EqualOpportunity(0.2, measure="error"), max_rounds=3)
    with pytest.warns(GridEdgeWarning):
        found = select(model, tables, labels, sensitive_features=sex, epsilons=(0.3, 0.1), folds=2)
    assert found.epsilon in (0.3, 0.1)
    assert isinstance(found.estimator.models_["bank"], TreesModel)
    assert found.table["accuracy"].min() > 0.6


def test_a_confidence_is_refused_with_the_solver_that_has_it() -> None:
    tables, labels, sex = people(200)
    constraint = EqualOpportunity(0.2, measure="error", confidence=0.95)
    with pytest.raises(InputError, match="does not support confidence"):
        VerticalClassifier(model="trees", constraint=constraint).fit(tables, labels, sensitive_features=sex)
