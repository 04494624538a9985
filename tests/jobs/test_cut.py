"""The cut of decisions from the job file to the scores of new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from evenhand import DemographicParity, VerticalClassifier, load_run
from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.errors import InputError, JobError
from evenhand.estimators.saved import merged_pipeline
from evenhand.estimators.shared import ShortfallWarning
from evenhand.jobs.auditing import audit_run
from evenhand.jobs.new_rows import score_new_parties
from evenhand.jobs.vertical.file import parse_vertical
from evenhand.jobs.vertical.runs import run_vertical_job
from evenhand.metrics import Threshold
from evenhand.protocol.job import Job
from evenhand.report.verdicts import remarks
from evenhand.runtime.folder import RunFolder
from evenhand.solvers.roles import vertical_terms
from evenhand.training.vertical_steps import _folds

ROWS = 1500


@pytest.fixture(scope="module")
def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Few positives, and a group that the features tell apart."""
    random = np.random.default_rng(0)
    group = random.random(ROWS) < 0.4
    first, second = random.normal(size=(2, ROWS)) + 0.8 * group
    chance = 1.0 / (1.0 + np.exp(4.2 - 1.1 * first - 0.9 * second))
    bank = pd.DataFrame({"first": first, "sex": np.where(group, "f", "m"), "default": random.random(ROWS) < chance})
    bank["default"] = np.where(bank["default"], "yes", "no")
    shop = pd.DataFrame({"second": second})
    return bank.rename_axis("id"), shop.rename_axis("id")


def job_of(**settings: Any) -> dict[str, Any]:
    label = {"column": "default", "positive": "yes"}
    bank = {"name": "bank", "role": "active", "table": "bank.csv", "id": "id", "label": label, "sensitive": ["sex"]}
    shop = {"name": "shop", "table": "shop.csv", "id": "id"}
    return {"job": {"split": "vertical", "test_fraction": 0.3, **settings}, "party": [bank, shop]}


def run(folder: Path, tables: tuple[pd.DataFrame, pd.DataFrame], **settings: Any) -> Any:
    for name, table in zip(("bank", "shop"), tables, strict=True):
        table.to_csv(folder / f"{name}.csv")
    return run_vertical_job(parse_vertical(job_of(**settings), "job.toml"), folder, folder / "run")


PARITY = {"kind": "demographic-parity", "epsilon": 0.02, "measure": "positive"}


def test_constraints_hold_at_the_cut_that_is_used(tmp_path: Path, tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    result = run(tmp_path, tables, threshold="rate", capacity=0.2, constraint=PARITY).result
    cut = result["cut"]
    assert cut["rule"] == "rate"
    assert cut["chosen_on"] == "cross-fitted scores"
    assert cut["score"] < -0.5
    (held,) = result["constraints"]["train"]
    assert held["estimate"] <= 0.02 + 1e-9
    everybody = result["performance"]["train"][0]
    share = everybody["selected"] / everybody["rows"]
    assert 0.185 <= share <= 0.2 + 1e-9
    assert not any("capacity" in one for one in remarks(result))


def test_a_bound_at_another_cut_would_not_hold(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    bank, shop = tables
    X, y, groups = [bank[["first"]], shop], bank["default"], bank["sex"]

    def gap(model: VerticalClassifier) -> float:
        chosen = pd.Series(model.predict(X) == "yes").groupby(groups.to_numpy()).mean()
        return float(np.ptp(chosen.to_numpy()))

    at_cut = VerticalClassifier(constraint=DemographicParity(0.02), threshold=0.1).fit(X, y, sensitive_features=groups)
    assert gap(at_cut) <= 0.02 + 1e-9
    at_half = VerticalClassifier(constraint=DemographicParity(0.02)).fit(X, y, sensitive_features=groups)
    at_half.cut_ = at_cut.cut_
    assert gap(at_half) > 0.05


def test_gradient_steps_train_at_the_cut(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    bank, shop = tables
    X, y, groups = [bank[["first"]], shop], bank["default"], bank["sex"]
    gaps = {}
    for epsilon in (0.9, 0.02):
        constraint = DemographicParity(epsilon)
        model = VerticalClassifier(solver="fairvfl", constraint=constraint, threshold=0.1, max_rounds=60)
        with pytest.warns(ShortfallWarning):
            model.fit(X, y, sensitive_features=groups)
        chosen = pd.Series(model.predict(X) == "yes").groupby(groups.to_numpy()).mean()
        gaps[epsilon] = float(np.ptp(chosen.to_numpy()))
    assert gaps[0.02] < 0.5 * gaps[0.9]


def test_the_cut_reaches_predictions_saved_models_and_pipelines(
    tmp_path: Path, tables: tuple[pd.DataFrame, pd.DataFrame]
) -> None:
    finished = run(tmp_path, tables, threshold="cost", costs={"missed": 10, "false_alarm": 1})
    cut = finished.result["cut"]["score"]
    assert cut < -1.0
    scores = score_new_parties(finished.folder).scores
    assert ((scores["prediction"] == "yes") == (scores["score"] > cut)).all()
    assert (scores["prediction"] == "yes").mean() > 0.1
    bank, shop = tables
    saved = load_run(finished.folder.path)
    assert (saved.predict({"bank": bank, "shop": shop}) == scores["prediction"].to_numpy()).all()
    whole = merged_pipeline(finished.folder.path)
    assert (whole.predict(bank.join(shop)) == scores["prediction"].to_numpy()).all()


def test_an_estimator_decides_at_its_cut(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    bank, shop = tables
    X, y = [bank[["first"]], shop], bank["default"]
    model = VerticalClassifier(threshold=Threshold("rate", capacity=0.05)).fit(X, y)
    assert model.cut_.rule == "rate"
    assert model.cut_.chosen_on == "cross-fitted scores"
    assert abs((model.predict(X) == "yes").sum() - int(0.05 * ROWS)) <= 0.02 * ROWS
    turned = VerticalClassifier(threshold=0.1, pos_label="no").fit(X, y)
    # A probability of "no" above one tenth is enough to predict it.
    assert ((turned.predict_proba(X)[:, 0] > 0.1) == (turned.predict(X) == "no")).all()
    assert model.set_params(threshold__capacity=0.1).threshold.capacity == 0.1
    assert model.run_.unseen_scores is None


def test_trees_choose_on_cross_fitted_scores(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    pytest.importorskip("lightgbm")
    bank, shop = tables
    given = Threshold("recall", target=0.6)
    model = VerticalClassifier(model="trees", threshold=given, constraint=DemographicParity(0.3), max_rounds=4)
    model.fit([bank[["first"]], shop], bank["default"], sensitive_features=bank["sex"])
    assert model.cut_.chosen_on == "cross-fitted scores"


def test_class_weights_move_the_scores_and_not_the_rates(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    bank, shop = tables
    X, y = [bank[["first"]], shop], bank["default"]
    plain = VerticalClassifier().fit(X, y)
    weighted = VerticalClassifier(class_weight={"yes": 10.0, "no": 1.0}).fit(X, y)
    copies = np.where(y == "yes", 10.0, 1.0)
    repeated = VerticalClassifier(alpha=2.0 / ROWS).fit(X, y, copies)
    assert weighted.decision_function(X).mean() > plain.decision_function(X).mean() + 1.5
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=2e-2)
    balanced = VerticalClassifier(class_weight="balanced", constraint=DemographicParity(0.02))
    chosen = balanced.fit(X, y, sensitive_features=bank["sex"]).predict(X) == "yes"
    # A rate counts people, whatever their class weighs.
    assert np.ptp(pd.Series(chosen).groupby(bank["sex"].to_numpy()).mean().to_numpy()) <= 0.02 + 1e-9
    with pytest.raises(InputError, match="class_weight"):
        VerticalClassifier(class_weight="balanced", solver="vfb2-svrg").fit(X, y)
    with pytest.raises(InputError, match="labels in y"):
        VerticalClassifier(class_weight={0: 1.0, 1: 2.0}).fit(X, y)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"threshold": "cost"}, "job.threshold.*needs costs; add it.*missed = 10"),
        ({"threshold": "rate"}, "job.threshold.*needs capacity; add it"),
        ({"threshold": "cost", "costs": 10}, "job.costs: .*for instance costs"),
        ({"threshold": "cost", "costs": {"missed": 10}}, "job.costs.false_alarm is missing"),
        ({"threshold": "cost", "costs": {"missed": -1, "false_alarm": 1}}, "job.costs.missed.*greater than 0"),
        ({"threshold": "recall", "target": 60}, "job.target.*less than or equal to 1"),
        ({"threshold": 1.5}, "job.threshold.*between 0 and 1"),
        ({"threshold": "best"}, "job.threshold.*one of 'accuracy'"),
        ({"threshold": "rate", "capacity": 5}, "job.capacity.*less than or equal to 1"),
        ({"capacity": 0.1}, "capacity goes with threshold = 'rate', but threshold is 0.5"),
        ({"threshold": "rate", "capacity": 0.1, "costs": {"missed": 1, "false_alarm": 1}}, "does not use costs"),
        ({"class_weight": "heavy"}, "job.class_weight: Input should be 'balanced'"),
        ({"class_weight": {"yes": 5.0}}, "unknown key job.class_weight.yes; choose one of negative, positive"),
        ({"class_weight": {"positive": -1.0}}, "class_weight"),
        ({"class_weight": "balanced", "solver": "vfb2-svrg"}, "does not support class_weight"),
    ],
)
def test_wrong_keys_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(JobError, match=words):
        parse_vertical(job_of(**settings), "job.toml")


def test_probabilities_are_recalibrated_and_decisions_are_not(
    tmp_path: Path, tables: tuple[pd.DataFrame, pd.DataFrame]
) -> None:
    finished = run(tmp_path, tables, class_weight="balanced")
    given = finished.result["probability"]
    assert given["fitted_on"] == "held-out rows"
    assert given["intercept"] < -1.0
    scores = score_new_parties(finished.folder).scores
    bank, shop = tables
    assert abs(scores["probability"].mean() - (bank["default"] == "yes").mean()) < 0.03
    assert ((scores["prediction"] == "yes") == (scores["score"] > 0.0)).all()
    chance = load_run(finished.folder.path).predict_proba({"bank": bank, "shop": shop})
    np.testing.assert_allclose(chance[:, 1], scores["probability"])
    test = finished.result["performance"]["test"]
    assert [one["group"] for one in test] == [None, "f", "m"]


@pytest.mark.slow
def test_an_audit_attacks_the_messages_of_all_trainings(
    tmp_path: Path, tables: tuple[pd.DataFrame, pd.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenhand.training.auditing._again", lambda *_: None)
    run(tmp_path, tables, threshold="rate", capacity=0.2, max_rounds=2)
    audit = audit_run(RunFolder.open(tmp_path / "run"))
    assert any("trains 4 times" in one for one in audit.remarks)
    assert any(one.attack == "sign" and one.value.value > 0.9 for one in audit.findings)


@pytest.mark.parametrize("compared", [False, True])
def test_folds_depend_on_groups_only_if_a_constraint_compares_them(compared: bool) -> None:
    random = np.random.default_rng(0)
    labels = np.where(random.random(90) < 0.4, 1.0, -1.0)
    constraints = [DemographicParity(0.1)] if compared else []
    job = Job(solver="subspace", rule=Threshold("rate", capacity=0.2), constraints=constraints)
    found = []
    for seed in (1, 2):
        sex = np.where(np.random.default_rng(seed).random(90) < 0.5, "f", "m")
        terms = vertical_terms(job, {"bank": "active", "shop": "passive"}, 90, {"sex": ("f", "m")})
        found.append(_folds(terms, LabelledRows(labels, pd.DataFrame({"sex": sex}))))
    assert (found[0] == found[1]).all() == (not compared)
