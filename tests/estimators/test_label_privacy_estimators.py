"""Label privacy of estimators: one answer for each id, an audit that says so, and what cannot be had with it."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from support.problems import Problem, small

from evenhand import (
    EqualOpportunity,
    OneVsRestClassifier,
    SplitTableClassifier,
    VerticalClassifier,
    audit,
    frontier,
    select,
)
from evenhand.auditing.findings import Finding
from evenhand.errors import InputError
from evenhand.privacy import Dealer, Masked, RandomizedResponse
from evenhand.protocol.job import Job
from evenhand.solvers.registry import check_job

ASKED = RandomizedResponse(epsilon=1.0)


def tables(problem: Problem, order: np.ndarray) -> tuple[dict[str, pd.DataFrame], pd.Series, pd.Series]:
    """Two parties' tables of some rows, known by id."""
    ids = pd.Index([f"c{place}" for place in order])
    shares = {"bank": [0, 1], "shop": [2], "social": [3]}
    found = {
        name: pd.DataFrame(problem.matrix[np.ix_(order, columns)], index=ids, columns=[f"x{one}" for one in columns])
        for name, columns in shares.items()
    }
    return found, pd.Series(problem.labels[order], index=ids), pd.Series(problem.groups[order], index=ids)


def test_an_answer_belongs_to_the_id_whatever_the_order() -> None:
    problem, model = small(1, rows=400), VerticalClassifier(label_privacy=ASKED)
    order = np.random.default_rng(0).permutation(400)
    first, again = (clone(model).fit(*tables(problem, rows)[:2]) for rows in (np.arange(400), order))
    np.testing.assert_allclose(first.coef_, again.coef_, atol=1e-3)
    other = clone(model).set_params(random_state=1).fit(*tables(problem, order)[:2])
    assert np.abs(other.coef_ - first.coef_).max() > 0.02
    assert first.label_privacy_.epsilon == 1.0
    assert first.label_privacy_.simulated
    assert VerticalClassifier().fit(*tables(problem, order)[:2]).label_privacy_ is None


def best(found: list[Finding], who: str) -> Finding:
    told = [one for one in found if one.who == who and one.target == "each person's label"]
    return max(told, key=lambda one: one.lift.value)


@pytest.mark.soak
def test_attacks_fall_from_certainty_to_the_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    # No run is repeated without a person: that is another attack.
    monkeypatch.setattr("evenhand.training.auditing._again", lambda *_: None)
    problem = small(2, rows=1200)
    X, y, groups = tables(problem, np.arange(1200))
    model = VerticalClassifier(constraint=EqualOpportunity(0.05), protection="none")
    with_nu = audit(model, X, y, sensitive_features=groups)
    private = audit(
        clone(model).set_params(label_privacy=RandomizedResponse(epsilon=0.5)), X, y, sensitive_features=groups
    )
    both = audit(
        clone(model).set_params(
            label_privacy=RandomizedResponse(epsilon=1.0), protection=Dealer(allow_experimental=True)
        ),
        X,
        y,
        sensitive_features=groups,
    )
    assert best(with_nu.findings, "shop").value.value == 1.0
    # The score that ν tells is left, and a bit that is true in three of five cases.
    assert best(private.findings, "shop").value.value < 0.93
    # On shared weights the shop's messages tell no more of labels than its own columns do.
    told = [one for one in both.findings if one.who == "shop" and one.target == "each person's label"]
    assert told
    assert all(one.lift is not None and one.lift.low <= 0.0 for one in told)


@pytest.mark.parametrize("model", ["linear", "trees"])
def test_split_tables_have_it_too(model: str) -> None:
    problem = small(3, rows=600)
    inner = VerticalClassifier(model=model, label_privacy=RandomizedResponse(epsilon=4.0), max_rounds=10)  # type: ignore[arg-type]
    fitted = SplitTableClassifier(inner, parties=2).fit(problem.matrix, problem.labels)
    assert (fitted.predict(problem.matrix) == problem.labels).mean() > 0.6
    assert fitted.classifier_.label_privacy_.epsilon == 4.0


def test_more_than_two_classes_would_add_up() -> None:
    problem = small(1, rows=60)
    with pytest.raises(InputError, match="add up"):
        OneVsRestClassifier(VerticalClassifier(label_privacy=ASKED)).fit([problem.matrix], np.arange(60) % 3)


def test_clients_have_another_way() -> None:
    with pytest.raises(InputError, match="label_privacy is for vertical jobs"):
        check_job(Job(solver="fedavg", label_privacy=ASKED), "horizontal")


def test_choosing_by_the_truth_is_refused_and_looking_is_not() -> None:
    problem = small(4, rows=900)
    X, y, groups = tables(problem, np.arange(900))
    model = VerticalClassifier(constraint=EqualOpportunity(0.1), label_privacy=RandomizedResponse(epsilon=3.0))
    with pytest.raises(InputError, match="select does not support label_privacy"):
        select(model, X, y, sensitive_features=groups)
    table = frontier(model, X, y, sensitive_features=groups, epsilons=[0.2, 0.1], folds=2)
    assert len(table) == 2
    fitted = clone(model).set_params(warm_start=True).fit(X, y, sensitive_features=groups)
    with pytest.raises(InputError, match="does not support warm_start"):
        fitted.fit(X, y, sensitive_features=groups)


def test_parameters_of_label_privacy_and_protection_in_a_grid() -> None:
    problem = small(1, rows=120)
    asked = RandomizedResponse(epsilon=4.0)
    model = VerticalClassifier(label_privacy=asked, protection=Masked(), random_state=0, max_rounds=20)
    assert model.get_params()["label_privacy__epsilon"] == 4.0
    assert clone(model).set_params(label_privacy__epsilon=2.0).label_privacy == RandomizedResponse(epsilon=2.0)
    grid = {"classifier__label_privacy__epsilon": [0.5, 8.0], "classifier__protection": [Masked(), "none"]}
    search = GridSearchCV(SplitTableClassifier(model, parties=3), grid, cv=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(problem.matrix, problem.labels)
    best = search.best_estimator_.classifier_
    assert best.label_privacy.epsilon == search.best_params_["classifier__label_privacy__epsilon"]
    assert best._job().protection in ("masked", "none")
    with pytest.raises(InputError, match=r"give RandomizedResponse\(epsilon=1.0\)"):
        VerticalClassifier(label_privacy={"epsilon": 1.0}).fit([problem.matrix], problem.labels)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"protection is 'glass'.*Masked\(\)"):
        VerticalClassifier(protection="glass").fit([problem.matrix], problem.labels)
