"""Horizontal job files: what they say, what they are refused for, and what running one leaves behind."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.hospitals import HospitalJob, patients
from support.tables import files, outcome, write_sqlite

from evenhand.constraints.kinds import EqualOpportunity
from evenhand.data import PartyEncoder
from evenhand.errors import DataError, InputError, JobError, RunError
from evenhand.estimators import HorizontalClassifier
from evenhand.jobs.auditing import plan_of
from evenhand.jobs.folder import read_job
from evenhand.jobs.horizontal.file import HorizontalJobFile, parse_horizontal
from evenhand.jobs.horizontal.runs import run_horizontal_job
from evenhand.jobs.new_rows import read_model, score_new_clients
from evenhand.jobs.tables import held_out
from evenhand.jobs.vertical.file import VerticalJobFile
from evenhand.metrics import constraint_gaps, intervals, summary
from evenhand.metrics.gaps import METRICS
from evenhand.privacy.accounting import noise_for, privacy_statement
from evenhand.privacy.mechanism import ClippedGaussian, GaussianNoise, SharedGaussian
from evenhand.privacy.record_level import RecordGaussian
from evenhand.runtime.folder import RunFolder

pytest.importorskip("torch")


@pytest.fixture
def hospitals(tmp_path: Path) -> HospitalJob:
    return HospitalJob(tmp_path)


def agree(hospitals: HospitalJob) -> None:
    """Say beforehand how columns are encoded, and which groups and labels there are."""
    frame = patients("lyon", 20, seed=9)[["age", "ward", "pressure"]]
    (hospitals.folder / "agreed.json").write_text(json.dumps(PartyEncoder().fit(frame).to_state()))
    hospitals.content["data"] |= {"encoder": "agreed.json", "groups": {"sex": ["female", "male"]}}
    hospitals.content["data"]["label"] = {"column": "outcome", "positive": "ill", "negative": "well"}


# -- what a file says


def test_a_full_file_says_everything(hospitals: HospitalJob) -> None:
    hospitals.content["job"] |= {
        "solver": "prox-al",
        "scope": "both",
        "missing_slices": "leave out",
        "alpha": 0.1,
        "max_rounds": 50,
        "tol": 1e-2,
        "seed": 3,
        "options": {"penalty": 10.0},
    }
    hospitals.content["server"] = {"limit": 0.01}
    hospitals.content["clock"] = {"latency": 0.5, "speeds": {"lyon": 1e6}}
    hospitals.client("lyon")["limit"] = 0.2
    content = hospitals.read()
    job = content.to_job()
    assert (job.solver, job.alpha, job.max_rounds, job.tol, job.seed) == ("prox-al", 0.1, 50, 1e-2, 3)
    assert job.constraints == (EqualOpportunity(0.05),)
    assert dict(job.options) == {"penalty": 10.0}
    where = content.to_scope()
    assert (where.scope, where.missing_slices, where.limits) == ("both", "leave out", {"lyon": 0.2, "server": 0.01})
    clock = content.to_clock()
    assert clock is not None
    assert clock.latency == 0.5
    assert content.to_protection() is None


def test_defaults_depend_on_the_solver(hospitals: HospitalJob) -> None:
    job = hospitals.read().to_job()
    assert (job.solver, job.max_rounds) == ("sqp", 200)
    hospitals.content["job"]["model"] = "mlp"
    job = hospitals.read().to_job()
    assert (job.solver, job.max_rounds, job.model) == ("fairfedavgalm", 100, "mlp")
    del hospitals.content["job"]["constraint"]
    assert hospitals.read().to_job().solver == "fedavg"


def test_either_split_is_read(hospitals: HospitalJob, tmp_path: Path) -> None:
    assert isinstance(read_job(hospitals.write()), HorizontalJobFile)
    path = tmp_path / "vertical.toml"
    path.write_text('[[party]]\nname = "a"\nrole = "active"\ntable = "a.csv"\nid = "x"\nlabel = { column = "y" }\n')
    assert isinstance(read_job(path), VerticalJobFile)


def test_noise_is_given_or_found_for_an_epsilon(hospitals: HospitalJob) -> None:
    hospitals.averaging(rounds=7)
    hospitals.content["privacy"] = {
        "mechanism": "clipped-gaussian",
        "clip": 2.0,
        "dual_clip": 0.5,
        "noise_multiplier": 3.0,
    }
    assert hospitals.read().to_protection() == ClippedGaussian(2.0, 0.5, 3.0)
    privacy = hospitals.content["privacy"]
    del privacy["noise_multiplier"]
    privacy |= {"epsilon": 4.0, "delta": 1e-6}
    found = hospitals.read().to_protection()
    assert isinstance(found, ClippedGaussian)
    assert found == ClippedGaussian(2.0, 0.5, found.noise_multiplier)
    # Rounded up to four digits, so that all sites have the same terms.
    least = noise_for(4.0, 1e-6, 7, releases=2)
    assert least <= found.noise_multiplier <= least * 1.001
    assert f"{found.noise_multiplier:.4g}" == str(found.noise_multiplier)
    hospitals.content["privacy"] = {"mechanism": "gaussian", "weight_noise": 0.01}
    assert hospitals.read().to_protection() == GaussianNoise(0.01)


def test_noise_at_every_step_is_given_or_found_for_an_epsilon(hospitals: HospitalJob) -> None:
    hospitals.averaging(rounds=7)
    privacy = {"mechanism": "record-gaussian", "clip": 1.0, "rate": 0.2, "steps": 5, "measure_clip": 3.0}
    hospitals.content["privacy"] = {**privacy, "noise_multiplier": 2.0}
    assert hospitals.read().to_protection() == RecordGaussian(1.0, 2.0, 0.2, 5, 3.0, 20.0)
    hospitals.content["privacy"] = {**privacy, "epsilon": 4.0}
    found = hospitals.read().to_protection()
    assert 3.9 < privacy_statement(found, 7, 1e-5).epsilon <= 4.0
    for wrong, told in (
        ({"measure_clip": None}, "privacy.measure_clip is missing"),
        ({"rate": None}, "privacy.rate is missing"),
        ({"dual_clip": 1.0}, "privacy.dual_clip is not used with"),
        ({"steps": 0}, "steps is 0"),
    ):
        hospitals.content["privacy"] = {**privacy, "noise_multiplier": 2.0, **wrong}
        hospitals.content["privacy"] = {
            key: value for key, value in hospitals.content["privacy"].items() if value is not None
        }
        with pytest.raises(JobError, match=told):
            hospitals.read()


def test_noise_is_shared_out_under_masks(hospitals: HospitalJob) -> None:
    hospitals.averaging(rounds=7)
    privacy = {"mechanism": "shared-gaussian", "clip": 2.0, "dual_clip": 0.5, "noise_multiplier": 3.0}
    hospitals.content["privacy"] = privacy
    with pytest.raises(JobError, match='needs protection = "masked"'):
        hospitals.read()
    hospitals.content["job"]["protection"] = "masked"
    assert hospitals.read().to_job().protection == "masked"
    assert hospitals.read().to_protection() == SharedGaussian(2.0, 0.5, 3.0, shares=2)
    privacy["shares"] = 3
    assert hospitals.read().to_protection() == SharedGaussian(2.0, 0.5, 3.0, shares=3)


def test_clients_of_a_job_agree_on_curves(hospitals: HospitalJob) -> None:
    hospitals.content["data"]["numbers"] = {"age": "curves"}
    hospitals.run()
    encoder = PartyEncoder.from_state(RunFolder.open(hospitals.folder / "run").read_model("encoder"))
    assert encoder.widths["pressure"] == 1
    assert [name.startswith("age ") for name in encoder.feature_names_out[:5]] == [True] * 4 + [False]


def test_a_masked_job_ends_where_the_plain_one_does(hospitals: HospitalJob) -> None:
    pytest.importorskip("nacl")
    plain = hospitals.run("plain")
    hospitals.content["job"]["protection"] = "masked"
    masked = hospitals.run("masked")
    np.testing.assert_allclose(masked.run.weights, plain.run.weights, atol=1e-7)
    assert masked.run.terms.job.protection == "masked"


def test_the_documented_files_are_what_they_seem() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "job-files.md").read_text(encoding="utf-8")
    plain, limits, pictures, privacy = re.findall(r"```toml\n(.*?)```", page.partition("## Horizontal jobs")[2], re.S)
    content = tomllib.loads(plain)
    assert parse_horizontal(content, "plain").to_job().solver == "sqp"
    limited = parse_horizontal(content | tomllib.loads(limits), "limits")
    assert limited.to_scope().limits == {"lyon": 0.6, "server": 0.4}
    assert parse_horizontal(tomllib.loads(pictures), "pictures").to_job().solver == "fairfedavgalm"
    protected = parse_horizontal(content | tomllib.loads(privacy), "privacy")
    assert protected.to_job().solver == "fairfedavgalm"
    assert protected.to_protection() is not None


# -- refusals


def section(name: str, **keys: Any) -> Callable[[HospitalJob], None]:
    return lambda hospitals: hospitals.content.setdefault(name, {}).update(keys)


def private(**keys: Any) -> Callable[[HospitalJob], None]:
    def change(hospitals: HospitalJob) -> None:
        hospitals.averaging()
        hospitals.content["privacy"] = {"mechanism": "clipped-gaussian", "clip": 1.0, "dual_clip": 1.0, **keys}
        hospitals.content["privacy"] = {
            key: value for key, value in hospitals.content["privacy"].items() if value is not None
        }

    return change


def lyon(**keys: Any) -> Callable[[HospitalJob], None]:
    return lambda hospitals: hospitals.client("lyon").update(keys)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (section("job", split="diagonal"), "job.split is 'diagonal'; choose 'vertical' or 'horizontal'"),
        (lambda one: one.content["job"].pop("split"), r"\[\[client\]\] needs split = \"horizontal\""),
        (lambda one: one.content.pop("data"), "key data is missing"),
        (lambda one: one.content["data"].pop("label"), "key data.label is missing"),
        (
            lambda one: one.content.pop("client"),
            r"a job needs at least one client, each under a heading \[\[client\]\]",
        ),
        (section("job", solvr="sqp"), "unknown key job.solvr; did you mean 'solver'"),
        (section("data", colums=["age"]), "unknown key data.colums; did you mean 'columns'"),
        (lyon(limt=0.1), "unknown key client.1.limt; did you mean 'limit'"),
        (section("job", solver="magic"), "solver is 'magic'.*'sqp'"),
        (section("job", solver="fedavg"), "does not support constraints"),
        (section("job", model="logistic"), "key job.model is 'logistic'; choose one of linear, mlp, trees, resnet18"),
        (section("job", scope="near"), "key job.scope"),
        (section("job", solver="fpfl", scope="local"), "solver 'fpfl' does not support scope 'local'"),
        (section("job", options={"stp": 1.0}), "job.options: solver 'sqp' has no option 'stp'"),
        (section("job", options={"penalty": "much"}), "job.options: penalty is 'much'"),
        (section("job", max_rounds=0), "max_rounds is 0"),
        (
            section("job", tol=1e-4, options={"feasibility": 1e-6}),
            "tol is 0.0001 and the solver's feasibility",
        ),
        (section("job", constraint={"kind": "fair"}), "job.constraint.kind is 'fair'"),
        (section("job", constraint={"kind": "loss-parity", "epsilon": -1.0}), "epsilon is -1.0"),
        (section("data", sensitive=[]), "compares groups: name the columns in data.sensitive"),
        (section("data", columns=[]), "columns is empty"),
        (section("data", columns=["age", "outcome"]), "columns lists the label 'outcome'"),
        (section("data", groups={"age": [1, 2]}), "data.groups has 'age'"),
        (section("data", groups={"sex": ["male"]}), "data.groups.sex"),
        (section("server", limit=0.1, table="x.csv", database="sqlite:///y.db"), r"\[server\]: a table comes from"),
        (lyon(name="ghent"), "two clients are called 'ghent'"),
        (lyon(name="server"), "key client.1.name: a client's name is 'server'"),
        (lyon(name="../x"), "key client.1.name"),
        (lyon(limit=0.1), "'lyon' has its own limit, but scope='global' does not use it"),
        (lyon(table="lyon.libsvm"), "client 'lyon': lyon.libsvm has numbered columns"),
        (lambda one: one.client("lyon").pop("table"), "client 'lyon': a table comes from either a file"),
        (section("clock", speeds={"paris": 1.0}), "clock.speeds names 'paris', which is not a client"),
        (private(), "either privacy.noise_multiplier or privacy.epsilon"),
        (private(epsilon=1.0, noise_multiplier=1.0), "either privacy.noise_multiplier or privacy.epsilon"),
        (private(epsilon=-1.0), "privacy.epsilon is -1.0"),
        (private(clip=None, epsilon=1.0), "privacy.clip is missing"),
        (private(clip=-1.0, epsilon=1.0), "clip is -1.0"),
        (private(dual_clip=None, epsilon=1.0), "privacy.dual_clip is missing"),
        (private(weight_noise=1.0, epsilon=1.0), "privacy.weight_noise is not used with"),
        (private(delta=2.0, epsilon=1.0), "key privacy.delta"),
        (private(mechanism="laplace"), "key privacy.mechanism"),
        (section("privacy", mechanism="gaussian", weight_noise=0.1), None),
    ],
)
def test_a_wrong_file_is_refused_with_the_key(
    hospitals: HospitalJob, change: Callable[[HospitalJob], Any], told: str | None
) -> None:
    change(hospitals)
    if told is None:
        # Protection alone makes "auto" choose an averaging solver.
        assert hospitals.read().to_job().solver == "fairfedavgalm"
        return
    with pytest.raises(JobError, match=told) as caught:
        hospitals.read()
    assert str(hospitals.path) in str(caught.value)


def rename(name: str, **columns: str) -> Callable[[HospitalJob], None]:
    return lambda hospitals: hospitals.frames.update({name: hospitals.frames[name].rename(columns=columns)})


def assign(name: str, **columns: Any) -> Callable[[HospitalJob], None]:
    return lambda hospitals: hospitals.frames.update({name: hospitals.frames[name].assign(**columns)})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lyon(table="none.csv"), "client 'lyon': there is no file"),
        (rename("lyon", age="years"), "client 'lyon': there is no column 'age'"),
        (rename("lyon", outcome="result"), "client 'lyon': there is no column 'outcome'"),
        (assign("turin", height=1.0), "client 'turin': column 'height' is not in the table of client 'ghent'"),
        (assign("lyon", age="old"), "client 'lyon': column 'age' held"),
        (assign("lyon", outcome="dead"), "3 different values over all clients"),
        (assign("lyon", outcome=1), "different types"),
        (assign("lyon", pressure=np.nan), "client 'lyon': .*pressure"),
        (section("data", label={"column": "outcome", "positive": "sick"}), "positive is 'sick'"),
        (section("data", sensitive=["gender"]), "client 'ghent': there is no column 'gender'"),
        (section("data", groups={"sex": ["female", "other"]}), "'male', which is not among the agreed groups"),
        (section("data", encoder="none.json"), "data.encoder: .*none.json holds no encoder"),
        (section("job", test_fraction=0.999), "client .*: test_fraction = 0.999 holds out all of the"),
        (
            private(epsilon=8.0),
            "privacy.epsilon = 8 cannot be guaranteed, because no noise is added to means.*which groups occur",
        ),
    ],
)
def test_tables_that_cannot_be_used_are_refused_and_leave_nothing(
    hospitals: HospitalJob, change: Callable[[HospitalJob], Any], told: str
) -> None:
    change(hospitals)
    with pytest.raises(InputError, match=told):
        hospitals.run()
    assert not (hospitals.folder / "run").exists()


# -- running


def test_a_run_is_the_estimators_on_the_training_rows(hospitals: HospitalJob) -> None:
    finished = hospitals.run()
    whole = pd.concat(hospitals.frames.values())
    test = held_out(whole.index, 0.25, 0)
    clients = np.repeat(list(hospitals.frames), [len(frame) for frame in hospitals.frames.values()])
    features = whole[["age", "ward", "pressure"]]
    model = HorizontalClassifier(constraint=EqualOpportunity(0.05), pos_label="ill", random_state=0)
    model.fit(features[~test], whole.outcome[~test], sensitive_features=whole[["sex"]][~test], clients=clients[~test])
    # coef_ and scores of the estimator are in favour of classes_[1]; those of the run, of the positive label.
    sign = -1.0 if model.classes_[0] == "ill" else 1.0
    np.testing.assert_allclose(finished.run.weights[:-1], sign * model.coef_[0], atol=1e-9)
    scores = sign * model.decision_function(features)
    for part, rows in {"train": ~test, "test": test}.items():
        expected = summary(whole.outcome[rows], scores[rows], sensitive_features=whole.sex[rows], pos_label="ill")
        found = finished.result["quality"][part]
        assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-6)
        assert found.keys() == METRICS.keys()
        assert set(finished.result["intervals"][part]) == set(found)
        groups = {"sensitive_features": whole.sex[rows], "pos_label": "ill"}
        said = intervals(whole.outcome[rows], scores[rows], **groups)
        for kind, column in {"standard_errors": "standard_error", "bounds": "bound"}.items():
            told = finished.result[kind][part]
            known = {name: value for name, value in said[column].dropna().items() if name in told}
            assert {"DEO", "DFP", "DFN", "DP", "equalized_odds"} <= known.keys()
            assert {name: told[name] for name in known} == pytest.approx(known, abs=1e-6)
        [held] = finished.result["constraints"][part]
        expected = constraint_gaps(EqualOpportunity(0.05), whole.outcome[rows], scores[rows], **groups).iloc[0]
        assert held["constraint"] == "equal-opportunity"
        assert held["asked"] == 0.05
        assert held["row"] == expected["row"]
        for name in ("estimate", "standard_error", "bound"):
            assert held[name] == pytest.approx(expected[name], abs=1e-6)
        sizes = {name: one[part]["rows"] for name, one in finished.result["clients"].items()}
        assert sum(sizes.values()) == rows.sum()
    assert finished.result["certificate"]["converged"]
    assert finished.result["solver"] == "sqp"


def test_crossings_can_be_agreed_beforehand(hospitals: HospitalJob) -> None:
    hospitals.content["data"]["sensitive"] = ["sex", "ward"]
    hospitals.content["data"]["columns"] = ["age", "pressure"]
    wards = sorted({ward for frame in hospitals.frames.values() for ward in frame.ward})
    crossing = [f"{wards[0]} × female", f"{wards[0]} × male", f"{wards[1]} × male"]
    groups = {"sex": ["female", "male"], "ward": wards, "ward × sex": crossing}
    hospitals.content["data"]["groups"] = groups
    with pytest.raises(JobError, match=r"data\.groups has 'ward × sex'"):
        hospitals.read()
    hospitals.content["job"]["constraint"] = {"kind": "loss-parity", "epsilon": 0.2, "cross": True}
    finished = hospitals.run()
    assert finished.run.terms.groups["ward × sex"] == tuple(crossing)
    assert sum("ward × sex" in name for name in finished.run.row_names) == 3
    # What is measured is over the crossings that occur, on whichever rows.
    assert finished.result["constraints"]["train"][0]["comparisons"] > len(finished.run.row_names)


@pytest.mark.filterwarnings("ignore::evenhand.errors.UnprovenWarning")
def test_confidence_is_a_key_of_a_constraint_and_the_result_says_what_is_proven(hospitals: HospitalJob) -> None:
    hospitals.content["job"]["constraint"] = {"kind": "loss-parity", "epsilon": 0.4, "confidence": 0.9}
    finished = hospitals.run()
    assert finished.run.terms.job.constraints[0].level == 0.9
    [proof] = finished.result["proofs"]
    assert proof["asked"] == 0.4
    assert proof["bound"] > finished.result["constraints"]["train"][0]["estimate"]
    assert proof["holds"] == (proof["bound"] <= 0.4)
    hospitals.content["job"]["constraint"]["confidence"] = 95
    with pytest.raises(JobError, match="confidence is 95"):
        hospitals.read()


def test_the_run_folder_has_what_a_run_leaves(hospitals: HospitalJob) -> None:
    finished = hospitals.run()
    folder = hospitals.folder / "run"
    assert sorted(files(folder)) == [
        *(f"clients/{name}/reference.json" for name in sorted(hospitals.frames)),
        "manifest.json",
        "metrics.jsonl",
        "model/encoder.json",
        "model/weights.safetensors",
        "result.json",
        "run.toml",
        "transcript.jsonl",
    ]
    written = RunFolder.open(folder)
    assert written.finished
    assert written.result == finished.result
    assert len(written.read_lines("metrics.jsonl")) == len(finished.run.history)
    assert len(written.read_lines("transcript.jsonl")) == len(finished.run.transcript)


def test_scopes_limits_and_the_servers_rows_reach_the_solver(hospitals: HospitalJob) -> None:
    hospitals.frames["ours"] = patients("ours", 50, seed=4)
    hospitals.content["job"]["scope"] = "both"
    hospitals.content["server"] = {"table": "ours.csv", "limit": 0.1}
    hospitals.client("lyon")["limit"] = 0.3
    finished = hospitals.run()
    holders = [name.split(":")[0] for name in finished.run.row_names]
    assert holders == ["ghent", "lyon", "turin", "server"]
    assert finished.result["certificate"]["violation"] < 1e-3
    assert "rows of the server" not in finished.result["clients"]


@pytest.mark.parametrize("solver", ["fairfedavgalm", "fedavg", "fairfed"])
def test_averaging_solvers_run_from_a_file(hospitals: HospitalJob, solver: str) -> None:
    hospitals.averaging(solver)
    if solver != "fairfedavgalm":
        del hospitals.content["job"]["constraint"]
    finished = hospitals.run()
    assert finished.result["certificate"]["rounds"] == 8
    assert finished.result["quality"]["test"]["accuracy"] > 0.5


def test_without_sensitive_columns_there_is_accuracy_alone(hospitals: HospitalJob) -> None:
    del hospitals.content["job"]["constraint"]
    hospitals.content["data"] |= {"sensitive": [], "columns": ["age", "pressure"]}
    finished = hospitals.run()
    assert set(finished.result["quality"]["test"]) == {"accuracy"}
    assert read_model(finished.folder)[0].columns_in == ["age", "pressure"]


def test_an_epsilon_that_is_asked_for_is_stated(hospitals: HospitalJob) -> None:
    agree(hospitals)
    private(epsilon=6.0, delta=1e-6)(hospitals)
    finished = hospitals.run()
    for statement in finished.result["privacy"].values():
        assert 5.99 < statement["epsilon"] <= 6.0
        assert statement["delta"] == 1e-6
        assert statement["rounds"] == 8
        assert "Simulated" in statement["words"]
    # Nothing is measured that the noise would not cover, and JSON has no NaN.
    assert finished.result["certificate"]["objective"] is None
    assert "NaN" not in (hospitals.folder / "run" / "result.json").read_text()


def test_what_was_not_agreed_keeps_a_run_from_stating_an_epsilon(hospitals: HospitalJob) -> None:
    private(noise_multiplier=5.0)(hospitals)
    finished = hospitals.run()
    for statement in finished.result["privacy"].values():
        assert statement["epsilon"] is None
        assert "means, deviations and levels" in statement["reason"]


def test_the_order_of_clients_and_the_format_of_tables_change_nothing(hospitals: HospitalJob, tmp_path: Path) -> None:
    plain = hospitals.run()
    hospitals.content["client"].reverse()
    frame = hospitals.frames["lyon"]
    frame.reset_index().to_parquet(hospitals.folder / "lyon.parquet")
    hospitals.client("lyon")["table"] = "lyon.parquet"
    turin = hospitals.client("turin")
    del turin["table"]
    sql = write_sqlite(hospitals.folder / "crm.db", "turin", hospitals.frames["turin"])
    turin |= {"database": "sqlite:///crm.db", "sql": sql}
    other = hospitals.run("other")
    np.testing.assert_array_equal(plain.run.weights, other.run.weights)
    assert plain.result["quality"]["test"] == pytest.approx(other.result["quality"]["test"])


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_new_rows_are_scored_as_the_model_scores_them(hospitals: HospitalJob, model: str) -> None:
    hospitals.averaging()
    hospitals.content["job"]["model"] = model
    finished = hospitals.run()
    scores = score_new_clients(finished.folder).scores
    assert scores.index.names == ["client", "patient"]
    assert len(scores) == sum(len(frame) for frame in hospitals.frames.values())
    for name, frame in hospitals.frames.items():
        encoded = read_model(finished.folder)[0].transform(frame)
        expected = finished.run.model.predict(encoded)
        np.testing.assert_allclose(scores.loc[name, "score"], expected, atol=1e-5)
    right = scores.prediction.droplevel("client") == pd.concat(hospitals.frames.values()).outcome
    counted = [one[part] for one in finished.result["clients"].values() for part in one]
    assert right.sum() == pytest.approx(sum(one["rows"] * one["accuracy"] for one in counted))
    new = patients("new", 15, seed=5).drop(columns=["outcome", "sex"]).assign(ward="Z")
    new.to_csv(hospitals.folder / "new.csv")
    found = score_new_clients(finished.folder, tables={"newtown": hospitals.folder / "new.csv"}).scores
    assert list(found.index.get_level_values("client").unique()) == ["newtown"]
    assert set(found.prediction) <= {"ill", "well"}


def test_rows_without_an_id_are_numbered(hospitals: HospitalJob) -> None:
    del hospitals.content["data"]["id"]
    hospitals.content["data"]["columns"] = ["age", "ward", "pressure"]
    finished = hospitals.run()
    scores = score_new_clients(finished.folder).scores
    assert scores.index.names == ["client", "row"]
    assert list(scores.loc["turin"].index) == list(range(60))
    # Other rows are held out at each client, not the same numbers.
    held = [one["test"]["rows"] for one in finished.result["clients"].values()]
    assert all(0 < count < 60 for count in held)


@pytest.mark.parametrize("solver", ["sqp", "prox-al", "fairfedavgalm"])
def test_an_interrupted_run_ends_where_it_would_have(hospitals: HospitalJob, solver: str) -> None:
    hospitals.content["job"] |= {"solver": solver, "max_rounds": 20}
    if solver == "fairfedavgalm":
        hospitals.averaging()
    whole = hospitals.run("whole")

    class Stop(Exception):
        pass

    def stop(report: Any) -> None:
        if report["round"] >= 3:
            raise Stop

    with pytest.raises(Stop):
        hospitals.run(on_round=stop, checkpoint_seconds=0.0)
    unfinished = RunFolder.open(hospitals.folder / "run")
    assert not unfinished.finished
    with pytest.raises(RunError, match="exists and is not empty"):
        hospitals.run()
    hospitals.run(resume=True)
    assert outcome(hospitals.folder / "run") == outcome(whole.folder.path)
    with pytest.raises(RunError, match="has finished"):
        hospitals.run(resume=True)


def test_another_job_or_other_rows_are_not_resumed(hospitals: HospitalJob) -> None:
    hospitals.averaging()

    class Stop(Exception):
        pass

    def stop(report: Any) -> None:
        if report["round"] >= 3:
            raise Stop

    with pytest.raises(Stop):
        hospitals.run(on_round=stop, checkpoint_seconds=0.0)
    hospitals.content["job"]["seed"] = 1
    with pytest.raises(RunError, match="another job file"):
        hospitals.run(resume=True)
    hospitals.content["job"].pop("seed")
    hospitals.frames["lyon"] = patients("lyon", 120, seed=7)
    with pytest.raises(RunError, match="another job or other data"):
        hospitals.run(resume=True)


def test_a_table_that_changes_under_a_run_voids_it(hospitals: HospitalJob) -> None:
    hospitals.averaging(rounds=4)

    def change(report: dict[str, Any]) -> None:
        if report["round"] == 2:
            hospitals.frames["lyon"].assign(pressure=120.0).to_csv(hospitals.folder / "lyon.csv")

    with pytest.raises(RunError, match=r"the table of client 'lyon' \(.*lyon\.csv\) changed while the run was on"):
        hospitals.run(on_round=change)
    assert not RunFolder.open(hospitals.folder / "run").finished


def test_passwords_are_not_kept(hospitals: HospitalJob) -> None:
    hospitals.client("lyon").pop("table")
    hospitals.client("lyon").update({"database": "postgresql://me:hunter2@db.example/x", "sql": "select 1"})
    content = hospitals.read()
    with pytest.raises(InputError) as caught:
        run_horizontal_job(content, hospitals.folder, hospitals.folder / "run")
    assert "hunter2" not in str(caught.value)
    # What a run folder holds once the password is taken out.
    hospitals.client("lyon")["database"] = "postgresql://me:***@db.example/x"
    changed = hospitals.read()
    trained = HospitalJob(hospitals.folder / "trained").run()
    with pytest.raises(DataError, match="client 'lyon': run folders do not store database passwords"):
        score_new_clients(trained.folder, changed, base=hospitals.folder)


def test_a_damaged_model_is_told(hospitals: HospitalJob) -> None:
    finished = hospitals.run()
    place = finished.folder.path / "model" / "weights.safetensors"
    place.write_bytes(place.read_bytes()[:40])
    with pytest.raises(RunError, match=r"weights\.safetensors"):
        score_new_clients(finished.folder)
    (finished.folder.path / "model" / "encoder.json").write_text("[]")
    with pytest.raises(RunError, match=r"encoder\.json"):
        score_new_clients(finished.folder)


@pytest.mark.parametrize("constraint", [None, "demographic-parity", "equalized-odds", "loss-parity"])
def test_plans_of_several_classes_list_their_messages(hospitals: HospitalJob, constraint: str | None) -> None:
    hospitals.content["data"]["label"] = {"column": "ward", "classes": ["A", "B", "C"]}
    hospitals.content["job"].pop("constraint")
    if constraint is not None:
        hospitals.content["job"]["constraint"] = {"kind": constraint, "epsilon": 0.1}
    assert "sqp judged" in {one.kind for one in plan_of(hospitals.read())}
