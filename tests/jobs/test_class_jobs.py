"""Jobs with three classes: checked, trained, resumed, scored, shown, exported and refused."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w
from support.asking import PARTIES, asked, trained
from support.federation import assert_close, write_shops
from support.hospitals import HospitalJob
from support.tables import SmallJob, outcome

from evenhand import DemographicParity, VerticalClassifier, load_run
from evenhand.errors import DataError, EvenhandError, InputError
from evenhand.estimators.saved import merged_pipeline
from evenhand.jobs.auditing import audit_run, plan_of
from evenhand.jobs.checking import check_job_file
from evenhand.jobs.federation.files import read_federation_job, read_party
from evenhand.jobs.folder import read_job
from evenhand.jobs.new_rows import score_new_parties
from evenhand.jobs.scorecards import PointScale, scorecard
from evenhand.jobs.tables import held_out
from evenhand.jobs.vertical.runs import run_vertical_job
from evenhand.protocol.roles import Report
from evenhand.report.page import make_page
from evenhand.report.record import RunRecord
from evenhand.report.verdicts import verdicts
from evenhand.runtime.folder import RunFolder

CLASSES = ["car", "bus", "walk"]
"""In an order of their own: scores follow the job, not the alphabet."""


def travel(folder: Path, rows: int = 600, **job: Any) -> SmallJob:
    """The label is how people travel; classes depend on all parties' columns and on the group."""
    small = SmallJob(folder, rows=rows)
    rng = np.random.default_rng(3)
    bank, shop, social = (small.frames[name] for name in ("bank", "shop", "social"))
    scores = np.stack(
        [
            (bank["age"] - 48) / 15 + 0.9 * (bank["sex"] == "male"),
            (shop["spent"] - 100) / 30 + 0.5 * social["friends"],
            0.3 + 0.5 * (bank["city"] == "Ghent"),
        ],
        axis=1,
    )
    bank["outcome"] = np.array(CLASSES)[(scores + rng.gumbel(size=scores.shape)).argmax(axis=1)]
    constraint = {"kind": "demographic-parity", "epsilon": 0.05}
    small.content["job"] = {"constraint": constraint, "test_fraction": 0.25, **job}
    small.party("bank")["label"] = {"column": "outcome", "classes": CLASSES}
    return small


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[SmallJob, Any]:
    small = travel(tmp_path_factory.mktemp("travel"))
    return small, small.run()


def test_the_result_states_each_class_and_bounds_every_rate(finished: tuple[SmallJob, Any]) -> None:
    small, run = finished
    result = run.result
    assert list(result["labels"]["classes"]) == CLASSES
    assert "cut" not in result
    (held,) = result["constraints"]["train"]
    assert held["comparisons"] == 3
    assert held["estimate"] <= 0.05 + 1e-9
    scores, known = score_new_parties(run.folder).scores.sort_index(), small.frames["bank"].sort_index()
    for part, rows in (("train", ~scores["held_out"]), ("test", scores["held_out"])):
        truth, said, sex = known["outcome"][rows], scores["prediction"][rows], known["sex"][rows]
        table = pd.crosstab(truth, said).reindex(index=CLASSES, columns=CLASSES, fill_value=0)
        assert result["classes"][part]["confusion"] == table.to_numpy().tolist()
        rates = [[(said[sex == one] == name).mean() for one in ("female", "male")] for name in CLASSES]
        widest = max(abs(one - other) for one, other in rates)
        assert result["constraints"][part][0]["estimate"] == pytest.approx(widest, abs=1e-12)
        assert result["quality"][part]["DP"] == pytest.approx(widest, abs=1e-12)
        chances = scores[[f"probability {name}" for name in CLASSES]][rows].to_numpy()
        own = chances[np.arange(len(truth)), [CLASSES.index(one) for one in truth]]
        assert result["classes"][part]["log_loss"][0] == pytest.approx(-np.log(own).mean(), abs=1e-9)
        for place, one in enumerate(result["classes"][part]["metrics"]):
            assert one["metrics"]["recall"][0] == table.iloc[place, place] / table.iloc[place].sum()
            assert one["metrics"]["precision"][0] == table.iloc[place, place] / table.iloc[:, place].sum()
    assert sum(sum(map(sum, one["confusion"])) for one in result["groups"]["train"]) == int((~scores["held_out"]).sum())


def test_metrics_of_new_rows_are_those_of_the_result(finished: tuple[SmallJob, Any]) -> None:
    _, run = finished
    found = score_new_parties(run.folder)
    assert found.measured is not None
    assert found.measured["classes"]["scored"]["confusion"] == run.result["classes"]["test"]["confusion"]
    assert any("held-out rows only" in one for one in found.remarks)
    assert found.measured["classes"]["scored"]["metrics"][0]["metrics"]["AUC"][0] > 0.6


def test_a_job_is_the_estimator_and_its_model_is_the_same_elsewhere(finished: tuple[SmallJob, Any]) -> None:
    small, run = finished
    scores = score_new_parties(run.folder).scores.sort_index()
    chances = scores[[f"probability {one}" for one in CLASSES]]
    tables, held = {name: frame.sort_index() for name, frame in small.frames.items()}, scores["held_out"].to_numpy()
    parts = {**tables, "bank": tables["bank"].drop(columns=["outcome", "sex"])}
    model = VerticalClassifier(constraint=DemographicParity(0.05)).fit(
        {name: one[~held] for name, one in parts.items()},
        tables["bank"]["outcome"][~held],
        sensitive_features=tables["bank"][["sex"]][~held],
    )
    told = pd.DataFrame(model.predict_proba(parts), columns=model.classes_)
    np.testing.assert_allclose(chances, told[CLASSES], atol=0.02)
    saved = load_run(run.folder.path)
    np.testing.assert_allclose(saved.predict_proba(parts), chances)
    np.testing.assert_array_equal(saved.predict(parts), scores["prediction"])
    merged, joined = merged_pipeline(run.folder.path), pd.concat(parts.values(), axis=1)
    np.testing.assert_array_equal(merged.predict(joined), scores["prediction"])
    told = pd.DataFrame(merged.predict_proba(joined), columns=merged.classes_)
    np.testing.assert_allclose(chances, told[CLASSES], atol=1e-12)


def test_a_killed_run_resumes_to_the_same_bits(finished: tuple[SmallJob, Any], tmp_path: Path) -> None:
    def stop(report: Report) -> None:
        if report["round"] >= 2:
            raise KeyboardInterrupt

    small = travel(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        small.run("killed", on_round=stop, checkpoint_seconds=0.0)
    resumed = small.run("killed", resume=True)
    assert resumed.result == finished[1].result
    whole, again = outcome(finished[1].folder.path), outcome(resumed.folder.path)
    assert [name for name in whole if name.startswith("parties/") and whole[name] != again[name]] == []


def test_the_page_shows_classes_and_their_verdict(finished: tuple[SmallJob, Any]) -> None:
    record = RunRecord.read(finished[1].folder.path)
    page = make_page([record])
    for title in ("Classes on held-out rows", "Group metrics on held-out rows", "Calibration by class"):
        assert title in page
    assert "which predicts one of car, bus, walk" in page
    assert "Predicted walk, among all rows of the group, by sex" in page
    assert "Confusion matrix of sex female" in page
    (verdict,) = verdicts(record.result)
    assert verdict.state in ("met", "contradicted", "shown")
    assert "The constraint could not be measured" not in page
    assert "training rows the largest gap is" in page
    assert list(record.weights["shop"].columns) == CLASSES
    assert len(record.shapes["bank"]["age"]) == 3


def test_check_counts_rows_by_group_and_class(tmp_path: Path) -> None:
    found = check_job_file(read_job(travel(tmp_path).write()), tmp_path)
    assert not found.problems
    assert found.labels == tuple(CLASSES)
    assert sum(sum(one.counts) for one in found.groups) == found.tables[0].used - found.tables[0].test  # type: ignore[operator]
    assert any("rates of errors among walk" in str(list(table.columns[1].cells)) for table in found.shown())


def test_what_is_for_two_classes_is_refused_of_a_finished_run(finished: tuple[SmallJob, Any]) -> None:
    folder = finished[1].folder
    with pytest.raises(InputError, match="several classes"):
        scorecard(folder, "bank", PointScale())


@pytest.mark.slow
def test_an_audit_reads_the_classes(finished: tuple[SmallJob, Any]) -> None:
    found = [one for one in audit_run(finished[1].folder).findings if one.attack == "sign"]
    assert len({one.target for one in found}) == 3
    assert min(one.value.value for one in found) > 0.95


@pytest.mark.parametrize("protection", ["none", "masked"])
def test_between_organisations_the_model_is_that_of_one_process(protection: str, tmp_path: Path) -> None:
    def with_classes(paths: dict[str, Path]) -> None:
        table = pd.read_csv(tmp_path / "bank" / "table.csv")
        table["good"] = np.where(table["good"] == "no", "C", np.where(table["income"] > 0, "A", "B"))
        table.to_csv(tmp_path / "bank" / "table.csv", index=False)
        for name in ("bank", "together"):
            content = tomllib.loads(paths[name].read_text())
            own = content["party"] if name == "bank" else content["party"][0]
            own["label"] = {"column": "good"}
            if name == "together":
                own["label"]["classes"] = content["job"].pop("classes")
            paths[name].write_text(tomli_w.dumps(content))

    constraint = {"kind": "equalized-odds", "epsilon": 0.3, "measure": "error"}
    job = {"classes": ["A", "B", "C"], "protection": protection, "test_fraction": 0.25, "constraint": constraint}
    paths = trained(tmp_path, job, change=with_classes)
    alone = run_vertical_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    between = RunFolder.open(tmp_path / "runs" / "server" / "first").result
    assert_close(between["quality"], alone.result["quality"])
    assert between["classes"]["train"]["confusion"] == alone.result["classes"]["train"]["confusion"]
    assert list(RunRecord.read(tmp_path / "runs" / "shop" / "first").weights["shop"].columns) == ["A", "B", "C"]
    scores = score_new_parties(alone.folder).scores
    ids = [*scores.index[5:20], "nobody"]
    told = asked(paths, tmp_path / "runs", ids)["server"]
    assert told["scores"].pop() is None
    largest = np.array(told["scores"]).argmax(axis=1)
    assert [["A", "B", "C"][one] for one in largest] == scores.loc[ids[:-1], "prediction"].tolist()
    assert set(PARTIES) <= set(read_federation_job(paths["job"]).parts)


@pytest.mark.parametrize(
    ("job", "label", "told"),
    [
        ({}, {"classes": ["car", "bus"]}, "list each of three or more labels once"),
        ({}, {"classes": ["car", "bus", "bus"]}, "list each of three or more labels once"),
        ({}, {"classes": CLASSES, "positive": "car"}, r"label\.positive is for two labels"),
        ({}, {"classes": CLASSES, "negative": "car"}, r"label\.negative is for two labels"),
        ({"threshold": 0.3}, {"classes": CLASSES}, "remove the threshold"),
        ({"threshold": "accuracy"}, {"classes": CLASSES}, "is for two labels"),
        ({"solver": "trees", "model": "trees"}, {"classes": CLASSES}, "3 classes, and solver 'trees' trains two"),
        ({"protection": "encrypted"}, {"classes": CLASSES}, "supports two classes"),
        ({"class_weight": {"positive": 2.0}}, {"classes": CLASSES}, "negative and positive are for two labels"),
        ({"label_privacy": {"epsilon": 1.0}}, {"classes": CLASSES}, "label_privacy supports only two labels"),
        ({"constraint": {"kind": "equal-opportunity"}}, {"classes": CLASSES}, "name one in of_class"),
        ({"constraint": {"kind": "equal-opportunity", "of_class": "tram"}}, {"classes": CLASSES}, "none of the labels"),
        ({"loss": "squared", "constraint": []}, {"classes": CLASSES}, "takes numbers"),
    ],
)
def test_keys_that_do_not_fit_classes_are_refused(
    job: dict[str, Any], label: dict[str, Any], told: str, tmp_path: Path
) -> None:
    small = travel(tmp_path, rows=60, **job)
    small.party("bank")["label"] = {"column": "outcome", **label}
    with pytest.raises(EvenhandError, match=told):
        read_job(small.write())


def test_labels_that_do_not_fit_name_the_party_and_the_label(tmp_path: Path) -> None:
    small = travel(tmp_path)
    small.party("bank")["label"]["classes"] = [*CLASSES, "tram"]
    with pytest.raises(DataError, match=r"party 'bank': no training row has the label 'tram'; remove it from classes"):
        small.run("one")
    small.party("bank")["label"]["classes"] = ["car", "bus", "tram"]
    with pytest.raises(DataError, match=r"party 'bank': unknown label 'walk'; it is not among"):
        small.run("two")
    del small.party("bank")["label"]["classes"]
    with pytest.raises(DataError, match=r"party 'bank'.*3 different values.*list them: classes"):
        small.run("three")
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


@pytest.mark.parametrize("rows", [1, 3])
def test_a_class_of_a_few_rows_is_named(rows: int, tmp_path: Path) -> None:
    small = travel(tmp_path, constraint=[], test_fraction=0.0, tol=1e-9)
    outcomes = small.frames["bank"]["outcome"].to_numpy()
    outcomes[outcomes == "walk"] = "bus"
    outcomes[:rows] = "walk"
    small.frames["bank"]["outcome"] = outcomes
    with pytest.raises(DataError, match=f"label 'walk' has {rows} of the 600 training rows.*give at least 5 rows"):
        small.run()


def test_held_out_rows_of_one_class_are_refused_before_training(tmp_path: Path) -> None:
    small = travel(tmp_path, 300, test_fraction=0.02)
    bank = small.frames["bank"]
    held = held_out(bank.index, 0.02, 0)
    bank.loc[held, "outcome"] = "bus"
    with pytest.raises(DataError, match=r"test rows: only the label 'bus' occurs; hold out more rows"):
        small.run()


def test_a_federations_job_names_the_classes_and_a_party_does_not(tmp_path: Path) -> None:
    paths = write_shops(tmp_path, {"classes": ["A", "B"]})
    with pytest.raises(EvenhandError, match=r"job\.classes.*three or more"):
        read_federation_job(paths["job"])
    content = tomllib.loads(paths["bank"].read_text())
    content["party"]["label"] = {"column": "good", "classes": ["A", "B", "C"]}
    paths["bank"].write_text(tomli_w.dumps(content))
    with pytest.raises(EvenhandError, match=r"the job names them; remove the key, and set classes in \[job\]"):
        read_party(paths["bank"])


def test_the_plan_lists_the_messages_of_classes(tmp_path: Path) -> None:
    kinds = {one.kind for one in plan_of(read_job(travel(tmp_path / "one").write()))}
    assert "derivative" in kinds
    paths = write_shops(tmp_path / "two", {"classes": ["A", "B", "C"]})
    assert "partial-scores" in {one.kind for one in plan_of(read_federation_job(paths["job"]))}


def test_across_clients_the_page_shows_classes_too(tmp_path: Path) -> None:
    hospitals = HospitalJob(tmp_path)
    rng = np.random.default_rng(0)
    for frame in hospitals.frames.values():
        frame["outcome"] = rng.choice(["A", "B", "C"], len(frame))
    hospitals.content["data"]["label"] = {"column": "outcome", "classes": ["A", "B", "C"]}
    constraint = {"kind": "equalized-odds", "epsilon": 0.3, "measure": "error"}
    hospitals.content["job"] |= {"constraint": constraint, "solver": "sqp"}
    run = hospitals.run()
    record = RunRecord.read(run.folder.path)
    assert "Classes on" in make_page([record])
    assert run.result["constraints"]["train"][0]["estimate"] <= 0.3 + 1e-3
    assert list(record.weights["all clients"].columns) == ["A", "B", "C"]
    hospitals.frames["lyon"].iloc[0, -1] = "D"
    with pytest.raises(DataError, match="client 'lyon': unknown label 'D'"):
        hospitals.run("again")


def test_gaps_by_pattern_of_presence_are_those_of_every_class(tmp_path: Path) -> None:
    """Where parties lack rows; and the bound holds in each pattern if it is asked to."""
    constraint = {"kind": "demographic-parity", "epsilon": 0.1, "by_presence": True}
    small = travel(tmp_path, rows=1500, ids="left", missing_party="absent", constraint=[constraint])
    for place, name in enumerate(("shop", "social")):
        frame = small.frames[name]
        small.frames[name] = frame[np.arange(len(frame)) % 3 != place]
    run = small.run()
    scores, known = score_new_parties(run.folder).scores.sort_index(), small.frames["bank"].sort_index()
    has = {name: known.index.isin(small.frames[name].index) for name in ("shop", "social")}
    for part, rows in (("train", ~scores["held_out"]), ("test", scores["held_out"])):
        patterns = run.result["presence"][part]["patterns"]
        assert len(patterns) == 3
        for one in patterns:
            among = rows & np.all([held == (name in one["pattern"]) for name, held in has.items()], axis=0)
            truth, said, sex = known["outcome"][among], scores["prediction"][among], known["sex"][among]
            assert one["rows"] == among.sum()
            assert one["accuracy"] == pytest.approx((truth == said).mean())
            gaps = {gap["rate"]: gap["gap"] for gap in one["gaps"]}
            for label in CLASSES:
                chosen = [(said[sex == group] == label).mean() for group in ("female", "male")]
                missed = [(said[(sex == group) & (truth == label)] != label).mean() for group in ("female", "male")]
                assert gaps[f"selection rate of {label}"] == pytest.approx(chosen[0] - chosen[1])
                assert gaps[f"false-negative rate of {label}"] == pytest.approx(missed[0] - missed[1])
                assert part == "test" or abs(gaps[f"selection rate of {label}"]) <= 0.1 + 1e-9
    page = make_page([RunRecord.read(run.folder.path)])
    for words in ("Rows that parties lack", "gap of false-negative rate of walk, sex", "A pattern is the set"):
        assert words in page
