"""What people expect of an estimator: names, tables of weights, settings in a grid, columns by name, saved runs."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from support.hospitals import HospitalJob
from support.tables import SmallJob, people

import evenhand
from evenhand import DemographicParity, EqualOpportunity, HorizontalClassifier, SplitTableClassifier, VerticalClassifier
from evenhand.errors import ConstraintError, DataError, InputError
from evenhand.estimators import OneVsRestClassifier
from evenhand.jobs.new_rows import score_new_clients, score_new_parties
from evenhand.runtime.folder import RunFolder
from evenhand.solvers import Subspace


@pytest.fixture
def frames() -> dict[str, pd.DataFrame]:
    return people()


def features(frames: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    return {"bank": frames["bank"][["age", "city"]], "shop": frames["shop"]}


def test_names_and_weights_as_a_table(frames: dict[str, pd.DataFrame]) -> None:
    model = VerticalClassifier()
    assert not hasattr(model, "feature_names_in_")
    model.fit(features(frames), frames["bank"]["outcome"])
    assert model.feature_names_in_.tolist() == ["bank__age", "bank__city", "shop__spent", "shop__visits"]
    names = model.get_feature_names_out().tolist()
    ages = [name for name in names if name.startswith("bank__age ")]
    assert len(ages) > 1
    assert names[len(ages)] == "bank__city=Ghent"
    table = model.coefficients()
    assert [f"{party}__{name}" for party, name in table.index] == names
    np.testing.assert_array_equal(table["weight"], model.coef_[0])


def test_rows_that_not_all_have_are_left_out_when_asked(frames: dict[str, pd.DataFrame]) -> None:
    tables, labels = features(frames), frames["bank"]["outcome"]
    tables["shop"] = tables["shop"].iloc[10:]
    with pytest.raises(DataError, match=r'fit\(\.\.\., ids="inner"\) keeps the common ids'):
        VerticalClassifier().fit(tables, labels)
    found = VerticalClassifier().fit(tables, labels, ids="inner")
    common = tables["shop"].index
    expected = VerticalClassifier().fit({name: table.loc[common] for name, table in tables.items()}, labels[common])
    np.testing.assert_allclose(found.coefficients(), expected.coefficients(), atol=1e-8)


def test_groups_by_the_name_of_a_column(frames: dict[str, pd.DataFrame]) -> None:
    bank, fair = frames["bank"], EqualOpportunity(0.05)
    tables = {"bank": bank[["age", "city", "sex"]], "shop": frames["shop"]}
    by_name = VerticalClassifier(constraint=fair).fit(tables, bank["outcome"], sensitive_features="sex")
    given = VerticalClassifier(constraint=fair).fit(features(frames), bank["outcome"], sensitive_features=bank["sex"])
    np.testing.assert_array_equal(by_name.coefficients(), given.coefficients())
    np.testing.assert_array_equal(by_name.predict(tables), given.predict(features(frames)))
    with pytest.raises(DataError, match="bank has no column 'hair' for sensitive_features"):
        VerticalClassifier(constraint=fair).fit(tables, bank["outcome"], sensitive_features=["hair"])
    clients = np.where(np.arange(len(bank)) < 60, "a", "b")
    X = bank[["age", "city", "sex"]]
    one = HorizontalClassifier(constraint=fair).fit(X, bank["outcome"], sensitive_features="sex", clients=clients)
    other = HorizontalClassifier(constraint=fair).fit(
        X[["age", "city"]], bank["outcome"], sensitive_features=bank["sex"], clients=clients
    )
    pd.testing.assert_frame_equal(one.coefficients(), other.coefficients())
    assert one.coefficients().index.tolist()[0] == "age"


def test_parameters_of_a_solver_in_a_grid(frames: dict[str, pd.DataFrame]) -> None:
    model = VerticalClassifier(solver=Subspace(history=8), constraint=EqualOpportunity(0.05), random_state=0)
    assert model.get_params()["solver__history"] == 8
    assert "solver__history" not in model.get_params(deep=False)
    assert "solver=Subspace(history=8" in repr(model)
    copy = clone(model).set_params(solver__history=4, constraint__epsilon=0.1)
    assert (copy.solver, copy.constraint) == (Subspace(history=4), EqualOpportunity(0.1))
    assert model.solver == Subspace(history=8)
    X, y = pd.concat([frames["bank"][["age"]], frames["shop"]], axis=1), frames["bank"]["outcome"]
    grid = {"classifier__solver__history": [2, 8], "classifier__solver__bands": [1, 2]}
    search = GridSearchCV(SplitTableClassifier(VerticalClassifier(solver=Subspace(), random_state=0)), grid, cv=3)
    search.fit(X, y)
    assert search.best_estimator_.classifier_.solver == Subspace(
        history=search.best_params_["classifier__solver__history"],
        bands=search.best_params_["classifier__solver__bands"],
    )
    assert search.best_estimator_.classifier_._job().options == {
        name.removeprefix("classifier__solver__"): value for name, value in search.best_params_.items()
    }


def test_a_solver_with_its_defaults_equals_its_name(frames: dict[str, pd.DataFrame]) -> None:
    tables, y = features(frames), frames["bank"]["outcome"]
    by_name = VerticalClassifier(solver="subspace", random_state=0).fit(tables, y)
    given = VerticalClassifier(solver=Subspace(), random_state=0).fit(tables, y)
    assert by_name._job() == given._job()
    np.testing.assert_array_equal(by_name.coef_, given.coef_)


def test_settings_of_a_constraint_in_a_grid(frames: dict[str, pd.DataFrame]) -> None:
    model = VerticalClassifier(constraint=EqualOpportunity(0.05))
    assert model.get_params()["constraint__epsilon"] == 0.05
    assert clone(model).set_params(constraint__epsilon=0.2).constraint == EqualOpportunity(0.2)
    with pytest.raises(InputError, match="EqualOpportunity has no parameter 'eps'"):
        model.set_params(constraint__eps=1.0)
    with pytest.raises(InputError, match="constraint__epsilon needs one object as constraint"):
        VerticalClassifier().set_params(constraint__epsilon=1.0)
    bank = frames["bank"]
    X = pd.concat([bank[["age"]], frames["shop"]], axis=1)
    grid = GridSearchCV(
        SplitTableClassifier(VerticalClassifier(constraint=EqualOpportunity(0.05))),
        {"classifier__constraint__epsilon": [0.01, 0.5]},
        cv=2,
    )
    grid.fit(X, (bank["outcome"] == "repaid").to_numpy(), sensitive_features=bank["sex"].to_numpy())
    assert set(grid.best_params_) == {"classifier__constraint__epsilon"}


def test_a_finished_run_scores_in_python_as_on_the_command_line(tmp_path: Path) -> None:
    small = SmallJob(tmp_path / "vertical")
    small.run()
    model = evenhand.load_run(small.folder / "run")
    expected = score_new_parties(RunFolder.open(small.folder / "run")).scores
    tables = {name: frame.loc[expected.index] for name, frame in small.frames.items()}
    np.testing.assert_allclose(model.decision_function(tables), expected["score"], atol=1e-12)
    assert model.predict(tables).tolist() == expected["prediction"].tolist()
    assert model.classes_.tolist() == ["defaulted", "repaid"]
    assert "certificate" in model.result
    with pytest.raises(DataError, match="a table for each party, by its name: bank, shop, social"):
        model.predict([tables["bank"]])
    job = HospitalJob(tmp_path / "horizontal")
    job.run()
    found = score_new_clients(RunFolder.open(job.folder / "run")).scores.loc["lyon"]
    model = evenhand.load_run(str(job.folder / "run"))
    np.testing.assert_allclose(model.predict_proba(job.frames["lyon"])[:, 1], found["probability"], atol=1e-12)


def test_three_classes_one_against_the_rest(frames: dict[str, pd.DataFrame]) -> None:
    rng = np.random.default_rng(0)
    town = frames["bank"]["city"]
    signal = pd.DataFrame(
        {f"x{k}": (town == one) + 0.1 * rng.normal(size=len(town)) for k, one in enumerate(set(town))}
    )
    tables = {"bank": frames["bank"][["age"]], "shop": signal.set_axis(town.index)}
    model = OneVsRestClassifier(VerticalClassifier(alpha=0.01)).fit(tables, town)
    assert (model.predict(tables) == town).mean() > 0.95
    np.testing.assert_allclose(model.predict_proba(tables).sum(axis=1), 1.0)
    alone = VerticalClassifier(alpha=0.01, pos_label=1).fit(tables, (town == "Lyon").astype(int))
    place = model.classes_.tolist().index("Lyon")
    np.testing.assert_allclose(model.decision_function(tables)[:, place], alone.decision_function(tables), atol=1e-8)


def test_one_class_against_the_rest_names_its_class_and_merges_empty_groups() -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(300, 4))
    y = np.array(["a", "b", "c"])[np.argmax(X[:, :3] + rng.gumbel(size=(300, 3)), axis=1)]
    group = np.where(rng.random(300) < 0.5, "u", "v")
    # Nobody of the third group has class c.
    group[np.flatnonzero(y != "c")[:40]] = "w"
    groups = pd.DataFrame({"g": group})
    parts, fair = [X[:, :2], X[:, 2:]], VerticalClassifier(constraint=EqualOpportunity(0.5), random_state=0)
    with pytest.raises(ConstraintError, match=r"class 'c' against the rest: .*empty.*empty_slices='merge'"):
        OneVsRestClassifier(fair).fit(parts, y, sensitive_features=groups)
    merged = OneVsRestClassifier(fair, empty_slices="merge")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        merged.fit(parts, y, sensitive_features=groups)
    smaller = "u" if (group == "u").sum() < (group == "v").sum() else "v"
    by_hand = groups.replace({"w": smaller})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = clone(fair).set_params(pos_label=1).fit(parts, np.where(y == "c", 1, -1), sensitive_features=by_hand)
    np.testing.assert_array_equal(merged.decision_function(parts)[:, 2], alone.decision_function(parts))
    with pytest.warns(ConvergenceWarning, match=r"^class 'a' against the rest: the solver did not converge"):
        OneVsRestClassifier(VerticalClassifier(max_rounds=1, tol=1e-12)).fit(parts, y)


def test_arrow_tables_are_tables() -> None:
    """As are those of polars, and of all others that can turn themselves into pandas."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"a": rng.normal(size=80), "b": rng.normal(size=80), "town": rng.choice(["x", "y"], 80)})
    labels, sex = (frame.a + rng.logistic(size=80) > 0).to_numpy(), pd.DataFrame({"sex": rng.choice(["f", "m"], 80)})
    arrow = pa.Table.from_pandas(frame)
    fair = DemographicParity(0.3)
    both = [VerticalClassifier(constraint=fair, max_rounds=5, tol=1e-2) for _ in range(2)]
    both[0].fit([frame[["a"]], frame[["b", "town"]]], labels, sensitive_features=sex)
    both[1].fit(
        [arrow.select(["a"]), arrow.select(["b", "town"])], labels, sensitive_features=pa.Table.from_pandas(sex)
    )
    pd.testing.assert_frame_equal(both[0].coefficients(), both[1].coefficients())
    clients = rng.integers(0, 3, 80)
    across = [HorizontalClassifier(max_rounds=5, tol=1e-2).fit(X, labels, clients=clients) for X in (frame, arrow)]
    np.testing.assert_array_equal(across[0].decision_function(frame), across[1].decision_function(arrow))
    by_name = HorizontalClassifier(constraint=fair, max_rounds=5, tol=1e-2)
    by_name.fit(arrow, labels, sensitive_features="town", clients=clients)
    assert by_name.feature_names_in_.tolist() == ["a", "b"]
