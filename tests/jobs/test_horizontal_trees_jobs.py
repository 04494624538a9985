"""Horizontal job files with `solver = "trees"`, and `HorizontalClassifier(model="trees")`: tables as they come."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from support.hospitals import HospitalJob

from evenhand import EqualizedOdds, HorizontalClassifier
from evenhand.errors import InputError, RunError
from evenhand.jobs.auditing import audit_run, plan_of
from evenhand.jobs.checking import check_job_file
from evenhand.jobs.horizontal.runs import run_horizontal_job
from evenhand.jobs.new_rows import read_model, score_new_clients


@pytest.fixture
def hospitals(tmp_path: Path) -> HospitalJob:
    made = HospitalJob(tmp_path)
    made.content["job"] |= {"solver": "trees", "max_rounds": 20, "options": {"rows_a_leaf": 5, "depth": 3}}
    for frame in made.frames.values():
        frame.loc[frame.index[::7], "ward"] = None
        frame.loc[frame.index[::5], "pressure"] = np.nan
    return made


def test_a_run_folder_scores_new_rows_by_its_trees(hospitals: HospitalJob) -> None:
    finished = hospitals.run()
    assert finished.result["statistics"]["ended by"] == "max_rounds"
    assert finished.result["statistics"]["trees"] > 0
    # Two levels of a tree in each of five models: better than one decision for everybody.
    assert finished.result["performance"]["train"][0]["metrics"]["AUC"][0] > 0.65
    encoder, score = read_model(finished.folder)
    assert encoder.categorical == (1,)
    scores = score_new_clients(finished.folder).scores
    for name, frame in hospitals.frames.items():
        np.testing.assert_array_equal(scores.loc[name, "score"], score(encoder.transform(frame)))
        np.testing.assert_array_equal(scores.loc[name, "score"], finished.run.model.predict(encoder.transform(frame)))


def test_a_killed_run_goes_on_where_it_was(hospitals: HospitalJob) -> None:
    whole = hospitals.run("whole")

    def killed(_: object) -> None:
        raise KeyboardInterrupt

    job, out = hospitals.read(), hospitals.folder / "run"
    with pytest.raises(KeyboardInterrupt):
        run_horizontal_job(job, hospitals.folder, out, on_round=killed, checkpoint_seconds=0.0)
    again = run_horizontal_job(job, hospitals.folder, out, resume=True, checkpoint_seconds=0.0)
    assert again.run.weights.tobytes() == whole.run.weights.tobytes()


def test_trees_that_were_changed_are_told(hospitals: HospitalJob) -> None:
    finished = hospitals.run()
    state = finished.folder.read_model("weights")
    finished.folder.write_model("weights", {**state, "sizes": state["sizes"] + 1})
    with pytest.raises(RunError, match="do not fit"):
        read_model(finished.folder)


def test_check_and_audit_take_what_train_takes(hospitals: HospitalJob) -> None:
    """`solver = "trees"` says the model; neither `check` nor `audit` may ask for `model` again."""
    assert "model" not in hospitals.content["job"]
    finished = hospitals.run()
    assert check_job_file(hospitals.read(), hospitals.folder).problems == []
    assert audit_run(finished.folder).split == "horizontal"
    assert "trees histograms" in {one.kind for one in plan_of(hospitals.read())}


def people(rows: int = 1500, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    sex, town = rng.choice(["f", "m"], rows), rng.choice(["Ghent", "Lyon", "Turin"], rows).astype(object)
    income, age = rng.lognormal(size=rows) + 0.8 * (sex == "m"), rng.normal(45, 15, rows)
    truth = 2.0 * (income > 1.3) + (town == "Lyon") - ((age - 45) / 15) ** 2
    labels = np.where(truth + 0.5 * rng.logistic(size=rows) > 0.5, "yes", "no")
    income[rng.random(rows) < 0.1] = np.nan
    town[rng.random(rows) < 0.1] = None
    return pd.DataFrame({"income": income, "town": town, "age": age}), labels, sex, rng.choice(["a", "b"], rows)


def test_the_estimator_takes_gaps_and_categories() -> None:
    X, y, sex, clients = people()
    model = HorizontalClassifier(
        model="trees", constraint=EqualizedOdds(0.03, measure="error"), max_rounds=60, random_state=0
    ).fit(X, y, sensitive_features=sex, clients=clients)
    new, labels, _, _ = people(4000, seed=1)
    new.loc[0, "town"] = "Oslo"
    assert roc_auc_score(labels == "yes", model.decision_function(new)) > 0.85
    assert not hasattr(model, "coef_")
    assert model.certificate_.violation <= 0.004
    again = clone(model).fit(X, y, sensitive_features=sex, clients=np.repeat("all", len(X)))
    np.testing.assert_array_equal(again.decision_function(new), model.decision_function(new))


def test_a_solver_by_name_says_the_model_and_what_it_cannot_do_is_refused() -> None:
    X, y, sex, clients = people(200)
    model = HorizontalClassifier(solver="trees", max_rounds=8).fit(X, y, clients=clients)
    assert model.run_.record["trees"] == 1
    with pytest.raises(InputError, match="trains trees"):
        HorizontalClassifier(solver="trees", model="mlp").fit(X, y, clients=clients)
    with pytest.raises(InputError, match="linear models"):
        HorizontalClassifier(solver="sqp", model="trees").fit(X, y, clients=clients)
    with pytest.raises(InputError, match="scope 'local'"):
        HorizontalClassifier(model="trees", scope="local", constraint=EqualizedOdds(0.1)).fit(
            X, y, sensitive_features=sex, clients=clients
        )
