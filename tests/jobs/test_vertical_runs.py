"""Jobs from start to run folder, and from run folder to scores of new rows."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
import tomllib
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file
from support.tables import SmallJob, files, outcome, write_sqlite

from evenhand import EqualOpportunity, VerticalClassifier
from evenhand.errors import DataError, DivergenceError, JobError, MissingExtraError, RunError
from evenhand.jobs.new_rows import score_new_parties
from evenhand.jobs.vertical.runs import load_vertical_tables, run_vertical_job
from evenhand.runtime.folder import RunFolder
from evenhand.solvers import FairVFL


@pytest.fixture
def small(tmp_path: Path) -> SmallJob:
    return SmallJob(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> SmallJob:
    """A job that has run, in the folder `run`; tests must not change it."""
    small = SmallJob(tmp_path_factory.mktemp("finished"))
    small.run()
    return small


@pytest.fixture
def copied(finished: SmallJob, tmp_path: Path) -> RunFolder:
    """A finished run's folder to do damage to."""
    return RunFolder(Path(shutil.copytree(finished.folder / "run", tmp_path / "run")))


# -- what is in a run folder


def test_a_run_folder_holds_what_it_promises(finished: SmallJob) -> None:
    path = finished.folder / "run"
    assert set(files(path)) == {
        "run.toml",
        "manifest.json",
        "metrics.jsonl",
        "transcript.jsonl",
        "result.json",
        *(
            f"parties/{name}/{file}"
            for name in finished.frames
            for file in ("encoder.json", "reference.json", "weights.safetensors")
        ),
    }
    description = tomllib.loads((path / "run.toml").read_text())
    assert description["evenhand"] == version("evenhand")
    assert description["base"] == str(finished.folder.resolve())
    assert [party["name"] for party in description["party"]] == ["bank", "shop", "social"]


def test_metrics_have_a_line_a_round_in_plain_json(finished: SmallJob) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    lines = (finished.folder / "run" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line, parse_constant=refuse) for line in lines]
    assert [row["round"] for row in rows] == list(range(21))
    assert {"objective", "violation", "gap", "bytes", "time"} <= rows[-1].keys()
    assert any("female" in key for key in rows[-1])


def test_the_transcript_has_a_line_a_message_and_all_the_bytes(finished: SmallJob) -> None:
    folder = RunFolder.open(finished.folder / "run")
    entries = folder.read_lines("transcript.jsonl")
    assert len(entries) == folder.result["messages"]
    assert sum(entry["nbytes"] for entry in entries) == folder.result["bytes"]
    assert {entry["sender"] for entry in entries} == {"server", "bank", "shop", "social"}


def test_each_party_keeps_its_own_weights_and_encoder(finished: SmallJob) -> None:
    sizes = {"bank": 4 + 1, "shop": 2, "social": 1}
    for name, size in sizes.items():
        folder = finished.folder / "run" / "parties" / name
        weights = load_file(folder / "weights.safetensors")
        assert weights["weights"].shape == (size,)
        encoder = json.loads((folder / "encoder.json").read_text())
        assert [column["name"] for column in encoder["columns"]] == [
            column for column in finished.frames[name] if column not in ("sex", "outcome")
        ]


def test_the_result_tells_quality_on_both_parts(finished: SmallJob) -> None:
    result = RunFolder.open(finished.folder / "run").result
    assert result["labels"] == {"negative": "defaulted", "positive": "repaid"}
    assert result["certificate"]["rounds"] == 20
    scores = score_new_parties(RunFolder.open(finished.folder / "run")).scores
    tables = load_vertical_tables(finished.read(), finished.folder)
    right = scores["prediction"] == finished.frames["bank"]["outcome"].reindex(scores.index)
    for part, rows in {"train": ~tables.test, "test": tables.test}.items():
        assert {"accuracy", "DEO", "DFP", "DFN", "FR", "HM"} <= result["quality"][part].keys()
        expected = right.reindex(tables.ids).to_numpy()[rows].mean()
        assert result["quality"][part]["accuracy"] == pytest.approx(expected)
        gaps = {"DEO", "DFP", "DFN", "DP", "equalized_odds"}
        assert result["bounds"][part].keys() == gaps
        assert gaps | {"accuracy", "log_loss", "FR"} <= result["standard_errors"][part].keys()
        for name in gaps:
            value, error = result["quality"][part][name], result["standard_errors"][part][name]
            assert result["bounds"][part][name] >= min(value + 1.95 * error, 1.0)
        assert [one["constraint"] for one in result["constraints"][part]] == ["equal-opportunity"]


def test_without_sensitive_columns_only_accuracy_is_told(small: SmallJob) -> None:
    small.content["job"] |= {"solver": "fedbcd", "constraint": [], "test_fraction": 0.0}
    del small.party("bank")["sensitive"]
    result = small.run().result
    assert list(result["quality"]) == ["train"]
    assert list(result["quality"]["train"]) == ["accuracy"]
    assert list(result["standard_errors"]["train"]) == ["accuracy"]
    assert result["constraints"] == {"train": []}


# -- passwords


def write_with_database(small: SmallJob, address: str) -> None:
    """Read the shop's table from a database, through an address."""
    shop = small.party("shop")
    del shop["table"]
    sql = write_sqlite(small.folder / "shop.db", "people", small.frames["shop"])
    shop |= {"database": address, "sql": sql}


def federated(small: SmallJob) -> Any:
    """The tables as if the shop's server had been asked."""
    asked = SmallJob(small.folder)
    return load_vertical_tables(asked.read(), asked.folder)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://reader:hunter2@db.example/shop",
        "postgresql://reader:hun%74er2@db.example/shop?sslmode=require",
        "postgresql://db.example/shop?user=reader&password=hunter2",
    ],
)
def test_no_file_of_a_run_shows_a_password(small: SmallJob, address: str) -> None:
    tables = federated(small)
    write_with_database(small, address)
    run_vertical_job(small.read(), small.folder, small.folder / "run", tables=tables)
    for name, content in files(small.folder / "run").items():
        assert b"hunter2" not in content, name
        assert b"hun%74er2" not in content, name
    # Its own address is of no more use, and it says what is.
    with pytest.raises(DataError, match=r"party 'shop': .*do not store database passwords.*--job.*--table"):
        score_new_parties(RunFolder.open(small.folder / "run"))
    scores = score_new_parties(RunFolder.open(small.folder / "run"), tables={"shop": small.folder / "shop.csv"}).scores
    assert len(scores) == 120


def test_a_password_in_a_variable_is_asked_for_again(small: SmallJob, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = federated(small)
    write_with_database(small, "postgresql://reader:${SHOP_PASSWORD}@127.0.0.1:1/shop")
    run_vertical_job(small.read(), small.folder, small.folder / "run", tables=tables)
    folder = RunFolder.open(small.folder / "run")
    with pytest.raises(DataError, match="needs the environment variable SHOP_PASSWORD"):
        score_new_parties(folder)
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2")
    with pytest.raises(DataError, match="party 'shop': cannot read from") as caught:
        score_new_parties(folder)
    assert "hunter2" not in str(caught.value)


def test_a_sqlite_database_is_scored_again(small: SmallJob) -> None:
    write_with_database(small, "sqlite:///shop.db")
    small.run()
    assert len(score_new_parties(RunFolder.open(small.folder / "run")).scores) == 120


# -- folders that may not be used


def test_an_existing_folder_is_not_written_over(small: SmallJob) -> None:
    (small.folder / "run").mkdir()
    (small.folder / "run" / "notes.txt").write_text("mine")
    for resume in (False, True):
        with pytest.raises(RunError, match="exists and is not empty"):
            small.run(resume=resume)
    assert files(small.folder / "run") == {"notes.txt": b"mine"}


def test_an_empty_folder_is_used_and_so_is_what_a_kill_at_the_start_leaves(small: SmallJob) -> None:
    small.content["job"]["max_rounds"] = 2
    (small.folder / "run").mkdir()
    small.run("run")
    (small.folder / "other").mkdir()
    (small.folder / "other" / "run.toml.partial").write_text("stat")
    small.run("other", resume=True)
    assert set(files(small.folder / "run")) == set(files(small.folder / "other"))


@pytest.mark.parametrize("out", ["taken", "taken/run"])
def test_a_file_in_the_way_is_named(small: SmallJob, out: str) -> None:
    (small.folder / "taken").write_text("mine")
    with pytest.raises(RunError, match="taken"):
        small.run(out)
    assert (small.folder / "taken").read_text() == "mine"


def test_a_finished_run_cannot_be_resumed(finished: SmallJob) -> None:
    before = files(finished.folder / "run")
    with pytest.raises(RunError, match="has finished; there is nothing to resume"):
        finished.run(resume=True)
    assert files(finished.folder / "run") == before


# -- refused before training, whatever would only have been noticed after it


def test_quality_that_could_not_be_measured_is_refused_before_training(small: SmallJob) -> None:
    small.content["job"]["constraint"] = {"kind": "neyman-pearson", "limit": 0.6}
    tables = load_vertical_tables(small.read(), small.folder)
    held = tables.ids[tables.test]
    bank = small.frames["bank"]
    bank.loc[held[bank.loc[held, "sex"] == "female"], "outcome"] = "defaulted"
    with pytest.raises(DataError, match=r"test rows: no rows with label 'repaid' and sex = 'female'"):
        small.run()
    assert not (small.folder / "run").exists()


def test_a_missing_extra_leaves_nothing_behind(small: SmallJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    small.content["job"]["model"] = "mlp"
    with pytest.raises(MissingExtraError, match=r"pip install 'evenhand\[torch\]'"):
        small.run()
    assert not (small.folder / "run").exists()


def test_divergence_is_told_and_leaves_nothing_to_resume_from(small: SmallJob) -> None:
    small.content["job"] |= {"options": {"step": 1e200}, "max_rounds": 50}
    with pytest.raises(DivergenceError), np.errstate(all="ignore"):
        small.run()
    assert not (small.folder / "run").exists()


# -- interrupted and resumed


class Stopped(Exception):
    """Stands for a crash."""


def stop_at(round_number: int) -> Any:
    def on_round(report: dict[str, Any]) -> None:
        if report["round"] == round_number:
            raise Stopped

    return on_round


@pytest.mark.parametrize("solver", ["fairvfl", "subspace"])
def test_a_run_stopped_anywhere_ends_where_it_would_have(small: SmallJob, solver: str) -> None:
    options = {"step": "auto", "local_steps": 3, "pace": "until-server-speaks"} if solver == "fairvfl" else {}
    small.content["job"] |= {"solver": solver, "options": options, "max_rounds": 12}
    small.content["clock"] = {"latency": 1e-5, "speeds": {"shop": 1e7}}
    whole = small.run("whole")
    rounds = whole.result["certificate"]["rounds"]
    for stop in sorted({0, 1, rounds // 2, rounds}):
        out = f"stopped{stop}"
        with pytest.raises(Stopped):
            small.run(out, on_round=stop_at(stop), checkpoint_seconds=0.0)
        assert not (small.folder / out / "result.json").exists()
        resumed = small.run(out, resume=True)
        assert outcome(small.folder / out) == outcome(whole.folder.path)
        # Values that were not there yet are so in the history again.
        pd.testing.assert_frame_equal(resumed.run.history, whole.run.history)


def test_a_run_without_a_checkpoint_begins_again(small: SmallJob) -> None:
    with pytest.raises(Stopped):
        small.run(on_round=stop_at(3))
    small.run(resume=True)
    assert outcome(small.folder / "run") == outcome(small.run("whole").folder.path)


@pytest.mark.parametrize(
    ("changed", "checkpoint_seconds"),
    # Without a checkpoint there is nothing of the old data to go on from.
    [("job", 0.0), ("job", 1000.0), ("clock", 0.0), ("clock", 1000.0), ("data", 0.0)],
)
def test_resuming_with_another_job_or_data_is_refused(small: SmallJob, changed: str, checkpoint_seconds: float) -> None:
    with pytest.raises(Stopped):
        small.run(on_round=stop_at(3), checkpoint_seconds=checkpoint_seconds)
    before = files(small.folder / "run")
    if changed == "job":
        small.content["job"]["max_rounds"] = 30
    elif changed == "clock":
        small.content["clock"] = {"latency": 1.0}
    else:
        small.frames["shop"]["spent"] += np.arange(120)
    with pytest.raises(RunError, match="started with another job"):
        small.run(resume=True)
    assert files(small.folder / "run") == before


@pytest.mark.parametrize("form", ["csv", "parquet", "sqlite"])
def test_a_table_that_changes_under_a_run_voids_it(small: SmallJob, form: str) -> None:
    changed, shop = small.frames["shop"].assign(visits=7), small.party("shop")
    if form == "parquet":
        shop["table"] = "shop.parquet"
        small.frames["shop"].to_parquet(small.folder / "shop.parquet")
    elif form == "sqlite":
        write_with_database(small, "sqlite:///shop.db")

    def change(report: dict[str, Any]) -> None:
        if report["round"] != 3:
            return
        if form == "sqlite":
            with closing(sqlite3.connect(small.folder / "shop.db")) as connection, connection:
                connection.execute("update people set visits = 7")
        else:
            changed.to_csv(small.folder / "shop.csv")
            changed.to_parquet(small.folder / "shop.parquet")

    with pytest.raises(RunError, match=r"the table of party 'shop' \(.*shop.*\) changed while the run was on"):
        small.run(on_round=change)
    folder = RunFolder.open(small.folder / "run")
    assert not folder.finished
    with pytest.raises(RunError, match="holds an unfinished run"):
        score_new_parties(folder)


def test_a_changed_folder_is_not_resumed_and_not_deleted(small: SmallJob) -> None:
    with pytest.raises(Stopped):
        small.run(on_round=stop_at(5), checkpoint_seconds=0.0)
    (small.folder / "run" / "metrics.jsonl").unlink()
    with pytest.raises(RunError, match=r"metrics\.jsonl is missing.*start this run again"):
        small.run(resume=True)
    assert (small.folder / "run" / "checkpoints").is_dir()


def test_damaged_checkpoints_are_an_error_that_names_the_file(small: SmallJob) -> None:
    with pytest.raises(Stopped):
        small.run(on_round=stop_at(5), checkpoint_seconds=0.0)
    for damaged in (small.folder / "run" / "checkpoints").glob("*/role shop.safetensors"):
        damaged.write_bytes(damaged.read_bytes()[:40])
    with pytest.raises(RunError, match=r"role shop\.safetensors differs from what the run wrote for role shop"):
        small.run(resume=True)


# -- scoring


def test_scores_are_those_of_the_estimator(small: SmallJob) -> None:
    small.content["job"] |= {"test_fraction": 0.0}
    small.run()
    scores = score_new_parties(RunFolder.open(small.folder / "run")).scores
    bank = small.frames["bank"]
    tables = small.frames | {"bank": bank[["age", "city"]]}
    classifier = VerticalClassifier(
        solver=FairVFL(step="auto"),
        constraint=EqualOpportunity(0.05),
        max_rounds=20,
        tol=0.0,
        random_state=0,
    )
    classifier.fit(tables, bank["outcome"], sensitive_features=bank["sex"])
    mine = scores.reindex(bank.index)
    np.testing.assert_allclose(mine["score"], classifier.decision_function(tables), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(mine["probability"], classifier.predict_proba(tables)[:, 1], rtol=1e-9)
    np.testing.assert_array_equal(mine["prediction"], classifier.predict(tables))


def test_a_negative_first_label_turns_no_score_around(small: SmallJob) -> None:
    small.run("repaid")
    small.party("bank")["label"]["positive"] = "defaulted"
    small.content["job"]["constraint"] = []
    small.run("defaulted")
    scores = score_new_parties(RunFolder.open(small.folder / "defaulted")).scores
    assert (scores["prediction"] == np.where(scores["score"] > 0, "defaulted", "repaid")).all()
    right = scores["prediction"] == small.frames["bank"]["outcome"].reindex(scores.index)
    assert right.mean() > 0.6


def test_new_rows_may_have_other_columns_in_another_order(finished: SmallJob, tmp_path: Path) -> None:
    folder = RunFolder.open(finished.folder / "run")
    before = score_new_parties(folder).scores
    new = {name: frame.iloc[7:30].sort_index(ascending=False) for name, frame in finished.frames.items()}
    # No label, no group: whoever is scored has none yet.
    new["bank"] = new["bank"][["city", "age"]]
    new["shop"] = new["shop"].assign(extra="x")[["visits", "extra", "spent"]]
    for name, frame in new.items():
        frame.to_csv(tmp_path / f"{name}.csv")
    scores = score_new_parties(folder, tables={name: tmp_path / f"{name}.csv" for name in new}).scores
    assert list(scores.index) == list(new["bank"].index)
    assert scores.index.name == "customer"
    pd.testing.assert_frame_equal(scores, before.drop(columns="held_out").loc[scores.index], rtol=1e-12)


def test_a_job_file_says_where_new_tables_are(finished: SmallJob, tmp_path: Path) -> None:
    new = SmallJob(tmp_path / "tuesday", rows=30, seed=9)
    scores = score_new_parties(RunFolder.open(finished.folder / "run"), new.read(), base=new.folder).scores
    assert len(scores) == 30
    del new.content["party"][2]
    with pytest.raises(DataError, match="the job's parties are bank, shop; the run's are bank, shop, social"):
        score_new_parties(RunFolder.open(finished.folder / "run"), new.read(), base=new.folder)


def test_rows_that_cannot_be_scored_are_refused(finished: SmallJob, tmp_path: Path) -> None:
    folder = RunFolder.open(finished.folder / "run")
    shop = finished.frames["shop"]
    path = tmp_path / "shop.csv"
    cases: dict[str, pd.DataFrame] = {
        "party 'shop': .*no column 'visits'": shop[["spent"]],
        "shop lacks 20 of bank's 120 ids": shop.iloc[20:],
        "party 'shop': .*more than once": pd.concat([shop, shop.iloc[:2]]),
        "party 'shop': .*gives no rows": shop.iloc[:0],
    }
    for message, frame in cases.items():
        frame.to_csv(path)
        with pytest.raises(DataError, match=message):
            score_new_parties(folder, tables={"shop": path})
    with pytest.raises(DataError, match="party 'shop': there is no file"):
        score_new_parties(folder, tables={"shop": tmp_path / "none.csv"})
    with pytest.raises(DataError, match="no party is called 'shpo'; the run's parties are bank, shop, social"):
        score_new_parties(folder, tables={"shpo": path})


# -- damaged run folders


def test_an_unfinished_run_cannot_score(small: SmallJob) -> None:
    with pytest.raises(Stopped):
        small.run(on_round=stop_at(3))
    with pytest.raises(RunError, match=r"holds an unfinished run.*--resume"):
        score_new_parties(RunFolder.open(small.folder / "run"))


@pytest.mark.parametrize("file", ["parties/shop/weights.safetensors", "parties/shop/encoder.json", "result.json"])
@pytest.mark.parametrize("damage", ["cut", "garbage", "gone", "empty", "other"])
def test_a_damaged_file_is_a_run_error_that_names_it(copied: RunFolder, file: str, damage: str) -> None:
    path = copied.path / file
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "other":
        other = {"weights.safetensors": "parties/bank/weights.safetensors", "encoder.json": "result.json"}
        path.write_bytes((copied.path / other[path.name]).read_bytes() if path.name in other else b"[1]")
    else:
        path.write_bytes({"cut": content[: len(content) // 2], "garbage": b"\xff" * 64, "empty": b""}[damage])
    with pytest.raises(RunError) as caught:
        score_new_parties(copied)
    assert str(copied.path) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"status = ", b"\xff\xfe"])
def test_a_damaged_description_is_a_run_error(copied: RunFolder, content: bytes) -> None:
    (copied.path / "run.toml").write_bytes(content)
    with pytest.raises(RunError, match=r"run\.toml differs from what the run wrote"):
        score_new_parties(copied)


def test_what_is_no_run_folder_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run folder"):
        RunFolder.open(tmp_path)


# -- rows that stand for several people


def test_a_row_whose_weight_is_two_is_the_row_twice(small: SmallJob) -> None:
    times = np.random.default_rng(0).integers(0, 4, 120)
    small.content["job"] |= {"solver": "subspace", "alpha": 0.05, "tol": 1e-8, "test_fraction": 0.0, "options": {}}
    small.content["job"]["scale"] = False
    small.party("shop")["columns"], small.party("bank")["columns"] = ["visits"], ["city"]
    small.frames["bank"]["times"] = times
    small.party("bank")["weight"] = "times"
    weighted = small.run("weighted").run
    small.frames = {
        name: frame.loc[frame.index.repeat(times)].set_axis(np.arange(times.sum())).rename_axis("customer")
        for name, frame in small.frames.items()
    }
    del small.party("bank")["weight"]
    repeated = small.run("repeated").run
    assert weighted.certificate.objective == pytest.approx(repeated.certificate.objective, rel=1e-6)
    for name, model in weighted.models.items():
        np.testing.assert_allclose(model.weights, repeated.models[name].weights, atol=1e-4)


def test_a_weight_is_no_feature_and_is_refused_where_it_means_nothing(small: SmallJob) -> None:
    small.frames["bank"]["times"] = 1.0
    small.party("bank")["weight"] = "times"
    assert "times" not in load_vertical_tables(small.read(), small.folder).encoders["bank"].columns_in
    for wrong in (0.0, -1.0, "many", None):
        small.frames["bank"]["times"] = wrong
        with pytest.raises(DataError, match="weight column 'times'"):
            load_vertical_tables(small.read(), small.folder)
    small.content["job"] |= {"solver": "vfb2-svrg", "options": {}}
    with pytest.raises(JobError, match="does not support sample_weight"):
        small.read()
