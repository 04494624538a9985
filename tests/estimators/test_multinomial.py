"""Multinomial models of linear parties: equal to scikit-learn's on pooled columns, with bounded rates of classes."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from evenhand import (
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    LossParity,
    NeymanPearson,
    VerticalClassifier,
)
from evenhand.constraints.kinds import Constraint
from evenhand.data import PartyEncoder
from evenhand.errors import EvenhandError
from evenhand.models import BoostedTrees
from evenhand.privacy import Dealer, RandomizedResponse

AS_IS = PartyEncoder(scale=False, numbers="standard")
NAMES = np.array(["bus", "car", "walk", "train", "other"])


def table(
    seed: int = 0, rows: int = 600, columns: int = 6, classes: int = 3
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Correlated columns, classes of unequal size, and a group that some columns and classes depend on."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns)) @ (np.eye(columns) + 0.4 * rng.normal(size=(columns, columns)))
    group = (rng.random(rows) < 0.4).astype(int)
    X[:, 0] += 1.5 * group
    scores = (
        X @ rng.normal(size=(columns, classes)) + np.linspace(0.0, -1.0, classes) + rng.gumbel(size=(rows, classes))
    )
    return X, NAMES[:classes][scores.argmax(axis=1)], group


def pooled(X: np.ndarray, y: Any, alpha: float, **settings: Any) -> LogisticRegression:
    return LogisticRegression(C=1.0 / (alpha * len(y)), tol=1e-10, max_iter=5000, **settings).fit(X, y)


def gaps(constraint: Constraint, model: VerticalClassifier, X: Any, y: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Differences between the two groups, by class, of what the constraint bounds; counted from predictions."""
    said = model.predict(X)
    found = []
    for one in model.classes_:
        hit = said == one
        if isinstance(constraint, DemographicParity):
            rates = [hit[group == value].mean() for value in (0, 1)]
        else:
            rates = [hit[(group == value) & (y == one)].mean() for value in (0, 1)]
        found.append(abs(rates[0] - rates[1]))
    return np.array(found)


@pytest.mark.parametrize("parts", [[[0, 1, 2], [3, 4, 5]], [[5], [0, 3], [1, 2, 4]], [[2, 1], [4], [0], [5, 3]]])
@pytest.mark.parametrize("classes", [3, 5])
def test_any_partition_of_columns_gives_the_pooled_model(parts: list[list[int]], classes: int) -> None:
    X, y, _ = table(classes=classes)
    alpha = 5.0 / len(y)
    model = VerticalClassifier(alpha=alpha, encoder=AS_IS, tol=1e-8).fit([X[:, part] for part in parts], y)
    best = pooled(X[:, np.concatenate(parts)], y, alpha)
    assert model.certificate_.converged
    assert model.n_iter_ <= 12
    assert list(model.classes_) == list(best.classes_)
    np.testing.assert_allclose(model.coef_, best.coef_, atol=1e-4)
    np.testing.assert_allclose(model.intercept_ - model.intercept_.mean(), best.intercept_, atol=1e-4)
    given = [X[:5, part] for part in parts]
    chances = best.predict_proba(X[:5, np.concatenate(parts)])
    np.testing.assert_allclose(model.predict_proba(given), chances, atol=1e-4)
    np.testing.assert_array_equal(model.predict(given), best.predict(X[:5, np.concatenate(parts)]))


def test_default_tolerance_reaches_the_optimum_to_a_thousandth() -> None:
    X, y, _ = table(3, rows=900, columns=9, classes=4)
    model = VerticalClassifier(encoder=AS_IS).fit([X[:, :3], X[:, 3:5], X[:, 5:]], y)
    alpha = 2.0 / len(y)
    best = pooled(X, y, alpha)

    def objective(chances: np.ndarray, weights: np.ndarray) -> float:
        own = chances[np.arange(len(y)), np.searchsorted(model.classes_, y)]
        return float(-np.log(own).mean() + 0.5 * alpha * (weights**2).sum())

    least = objective(best.predict_proba(X), best.coef_)
    assert objective(model.predict_proba([X[:, :3], X[:, 3:5], X[:, 5:]]), model.coef_) <= least * 1.001
    assert model.certificate_.objective == pytest.approx(least, rel=1e-3)


def test_many_columns_of_the_label_holder_stay_in_its_directions() -> None:
    X, y, _ = table(1, rows=300, columns=72)
    parts = [X[:, :66], X[:, 66:69], X[:, 69:]]
    model = VerticalClassifier(alpha=0.05, encoder=AS_IS, tol=1e-7).fit(parts, y)
    np.testing.assert_allclose(model.coef_, pooled(X, y, 0.05).coef_, atol=2e-3)
    # Kept steps get shorter and shorter. The server's scores must stay those of the parties' weights.
    own = -np.log(model.predict_proba(parts)[np.arange(len(y)), np.searchsorted(model.classes_, y)]).mean()
    objective = own + 0.025 * float((model.coef_**2).sum())
    assert objective == pytest.approx(model.certificate_.objective, rel=1e-9)


@pytest.mark.parametrize("protection", ["none", "masked"])
@pytest.mark.parametrize(
    "constraint",
    [DemographicParity(0.03), EqualizedOdds(0.05, "error"), EqualOpportunity(0.02, "error", of_class="walk")],
    ids=lambda one: one.kind,
)
def test_rates_of_each_class_are_within_the_bound_on_training_rows(constraint: Any, protection: str) -> None:
    X, y, group = table(2, rows=1200, classes=3)
    parts = [X[:, :2], X[:, 2:4], X[:, 4:]]
    free = VerticalClassifier(encoder=AS_IS).fit(parts, y)
    model = VerticalClassifier(encoder=AS_IS, constraint=constraint, protection=protection)
    model.fit(parts, y, sensitive_features=group)
    bounded = slice(None) if constraint.of_class is None else list(model.classes_).index(constraint.of_class)
    assert gaps(constraint, free, parts, y, group)[bounded].max() > constraint.epsilon
    assert gaps(constraint, model, parts, y, group)[bounded].max() <= constraint.epsilon
    assert model.certificate_.converged
    assert model.certificate_.violation == 0.0
    assert model.certificate_.objective >= free.certificate_.objective


def test_mean_losses_and_a_limit_on_one_class_hold() -> None:
    X, y, group = table(4, rows=900)
    parts = [X[:, :3], X[:, 3:]]
    model = VerticalClassifier(
        encoder=AS_IS, constraint=[LossParity(0.01), NeymanPearson(0.3, of_class="car", measure="error")]
    )
    model.fit(parts, y, sensitive_features=group)
    own = -np.log(model.predict_proba(parts)[np.arange(len(y)), np.searchsorted(model.classes_, y)])
    assert abs(own[group == 0].mean() - own[group == 1].mean()) <= 0.01 + 1e-6
    assert (model.predict(parts) != y)[y == "car"].mean() <= 0.3


def test_weights_of_rows_and_of_classes_are_those_of_scikit_learn() -> None:
    X, y, _ = table(5)
    people = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    parts = [X[:, :3], X[:, 3:]]
    alpha = 0.01
    model = VerticalClassifier(alpha=alpha, encoder=AS_IS, tol=1e-8).fit(parts, y, people)
    best = LogisticRegression(C=1.0 / (alpha * people.sum()), tol=1e-10, max_iter=5000).fit(X, y, people)
    np.testing.assert_allclose(model.coef_, best.coef_, atol=1e-4)
    for weights in ("balanced", {"bus": 1.0, "car": 2.0, "walk": 4.0}):
        model = VerticalClassifier(alpha=alpha, encoder=AS_IS, tol=1e-8, class_weight=weights).fit(parts, y)
        given = "balanced" if weights == "balanced" else {one: weights[one] for one in weights}  # type: ignore[index]
        total = len(y) if weights == "balanced" else sum(given[one] for one in y)  # type: ignore[index]
        best = LogisticRegression(C=1.0 / (alpha * total), tol=1e-10, max_iter=5000, class_weight=given).fit(X, y)
        np.testing.assert_allclose(model.coef_, best.coef_, atol=1e-4)


def test_a_fitted_model_starts_again_and_is_pickled() -> None:
    X, y, group = table(6)
    parts = [X[:, :3], X[:, 3:]]
    model = VerticalClassifier(encoder=AS_IS, constraint=DemographicParity(0.05), warm_start=True)
    first = model.fit(parts, y, sensitive_features=group).n_iter_
    again = model.fit(parts, y, sensitive_features=group)
    assert again.n_iter_ <= first
    copy = pickle.loads(pickle.dumps(model))  # noqa: S301
    np.testing.assert_array_equal(copy.predict_proba(parts), model.predict_proba(parts))
    assert model.coefficients().shape == (6, 3)


def test_numbers_as_labels_and_a_class_without_common_rows() -> None:
    X, _, _ = table(7, rows=200)
    codes = np.random.default_rng(0).integers(0, 3, 200) * 10
    codes[:4] = 70
    index = pd.Index(range(200))
    left, right = pd.DataFrame(X[:, :3], index=index), pd.DataFrame(X[4:, 3:], index=index[4:])
    model = VerticalClassifier(encoder=AS_IS).fit([left, right], pd.Series(codes, index), ids="inner")
    assert model.classes_.tolist() == [0, 10, 20, 70]
    assert set(model.predict([left.loc[4:], right])) <= {0, 10, 20}


def test_a_class_that_a_group_lacks_is_refused_by_name() -> None:
    X, y, group = table(8)
    y = np.where((y == "walk") & (group == 1), "bus", y)
    model = VerticalClassifier(encoder=AS_IS, constraint=EqualizedOdds(0.1, "error"))
    with pytest.raises(EvenhandError, match=r"slice .class walk with group = 1. is empty"):
        model.fit([X[:, :3], X[:, 3:]], y, sensitive_features=group)
    model.set_params(constraint=EqualizedOdds(0.1, "error", of_class="car"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit([X[:, :3], X[:, 3:]], y, sensitive_features=group)
    said, cars = model.predict([X[:, :3], X[:, 3:]]) == "car", y == "car"
    assert abs(said[cars & (group == 0)].mean() - said[cars & (group == 1)].mean()) <= 0.1


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "trees": ({"model": BoostedTrees()}, "3 classes, and solver 'trees' trains two"),
    "fairvfl": ({"solver": "fairvfl"}, "Choose 'subspace'"),
    "positive label": ({"pos_label": "bus"}, "pos_label is 'bus', but y has 3 classes"),
    "threshold": ({"threshold": 0.3}, "threshold is 0.3, which is for two labels, and y has 3 classes"),
    "dealer": ({"protection": Dealer()}, "protection 'dealer' supports two classes"),
    "label privacy": ({"label_privacy": RandomizedResponse(1.0)}, "label_privacy supports only two labels"),
    "weights": ({"class_weight": {"bus": 2.0, "tram": 1.0}}, r"class_weight names \['bus', 'tram'\], but the labels"),
    "no class": ({"constraint": EqualOpportunity(0.1)}, r"3 labels \('bus', 'car', 'walk'\); name one in of_class"),
    "limit": ({"constraint": NeymanPearson(0.1)}, "bounds one label, and there are 3"),
    "unknown class": ({"constraint": DemographicParity(0.1, of_class="tram")}, "of_class is 'tram', which is none of"),
    "error of all": ({"constraint": LossParity(0.1, of_class="bus")}, "compares rows of all classes; remove of_class"),
    "confidence": ({"constraint": DemographicParity(0.1, confidence=0.9)}, "confidence supports only two labels"),
}


@pytest.mark.parametrize("case", WRONG)
def test_settings_for_two_labels_are_refused(case: str) -> None:
    X, y, group = table(rows=60)
    settings, message = WRONG[case]
    with pytest.raises(EvenhandError, match=message):
        VerticalClassifier(**settings).fit([X[:, :2], X[:, 2:4], X[:, 4:]], y, sensitive_features=group)


def test_a_class_is_refused_where_there_are_two_labels() -> None:
    X, y, group = table(rows=60)
    with pytest.raises(EvenhandError, match="of_class is 'bus', but there are two labels"):
        VerticalClassifier(constraint=DemographicParity(0.1, of_class="bus")).fit(
            [X], y == "bus", sensitive_features=group
        )
