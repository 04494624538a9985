"""`evenhand train` and `evenhand predict` on horizontal jobs: what they print, refuse, and go on with when killed."""

from __future__ import annotations

import io
import signal
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.hospitals import HospitalJob, patients
from support.tables import SmallJob, outcome

from evenhand.errors import FELL_SHORT

pytest.importorskip("torch")


@pytest.fixture
def hospitals(tmp_path: Path) -> HospitalJob:
    return HospitalJob(tmp_path)


def test_training_prints_tables_and_the_run_folder_last(evenhand: Any, hospitals: HospitalJob) -> None:
    hospitals.write()
    done = evenhand("train", "job.toml", "--out", "runs/monday", cwd=hospitals.folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "runs/monday"
    for word in ("quality on test rows", "accuracy", "DP", "equalized_odds", "certificate", "lyon"):
        assert word in done.stdout
    assert "privacy" not in done.stdout
    assert "objective" in done.stderr
    scored = evenhand("predict", "runs/monday", cwd=hospitals.folder)
    assert scored.returncode == 0
    assert "quality on scored rows" in scored.stderr
    scores = pd.read_csv(io.StringIO(scored.stdout), index_col=["client", "patient"])
    assert len(scores) == 270
    assert list(scores.columns) == ["score", "probability", "prediction", "held_out"]


def test_what_cannot_be_stated_about_privacy_is_printed(here: Any, hospitals: HospitalJob) -> None:
    hospitals.averaging(rounds=2)
    hospitals.content["privacy"] = {
        "mechanism": "clipped-gaussian",
        "clip": 1.0,
        "dual_clip": 1.0,
        "noise_multiplier": 2.0,
    }
    done = here("train", hospitals.write(), "--out", hospitals.folder / "run")
    # Two rounds of noise may well leave one label for everybody; of convergence nothing is known.
    assert done.returncode in (0, FELL_SHORT), done.stderr
    assert "did not converge" not in done.stderr
    said = " ".join(done.stdout.split())
    assert "privacy of every client: No ε can be stated" in said
    assert "There is no certificate" in said
    assert "nan" not in said


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("solver", "magic", "solver is 'magic'"),
        ("scope", "near", "key job.scope"),
        ("split", "diagonal", "choose 'vertical' or 'horizontal'"),
    ],
)
def test_a_wrong_file_ends_with_one_message(
    here: Any, hospitals: HospitalJob, key: str, value: str, words: str
) -> None:
    hospitals.content["job"][key] = value
    done = here("train", hospitals.write(), "--out", hospitals.folder / "run")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert words in done.stderr
    assert not (hospitals.folder / "run").exists()


def test_a_new_table_is_scored_whoever_it_is_of(here: Any, hospitals: HospitalJob) -> None:
    hospitals.run()
    run, new = hospitals.folder / "run", hospitals.folder / "new.csv"
    patients("new", 12, seed=3).drop(columns=["sex", "outcome"]).to_csv(new)
    out = hospitals.folder / "scores.parquet"
    done = here("predict", run, "--table", f"newtown={new}", "--out", out)
    assert done.returncode == 0, done.stderr
    assert f"12 rows scored into {out}" in done.stderr
    scores = pd.read_parquet(out)
    assert list(scores.index.names) == ["client", "patient"]
    other = HospitalJob(hospitals.folder / "tuesday", seed=8)
    by_job = here("predict", run, "--job", other.write())
    assert by_job.returncode == 0, by_job.stderr
    assert by_job.stdout.count("\n") == 271
    vertical = SmallJob(hospitals.folder / "vertical").write()
    refused = here("predict", run, "--job", vertical)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "its split differs from that of the run" in refused.stderr
    patients("new", 12, seed=3).drop(columns=["age"]).to_csv(new)
    refused = here("predict", run, "--table", f"newtown={new}")
    assert refused.returncode == 2
    assert "client 'newtown'" in refused.stderr
    assert "'age'" in refused.stderr


@pytest.mark.soak
def test_a_killed_run_ends_where_an_uninterrupted_one_does(start: Any, evenhand: Any, hospitals: HospitalJob) -> None:
    hospitals.averaging(rounds=300)
    whole = hospitals.run("whole")
    out = hospitals.folder / "run"
    process = start("train", hospitals.path, "--out", out, "--checkpoint-seconds", 0, "-q")
    while not ((out / "metrics.jsonl").exists() and (out / "metrics.jsonl").read_bytes().count(b"\n") > 20):
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (out / "result.json").exists()
    last = evenhand("train", hospitals.path, "--out", out, "--resume", "-q")
    assert last.returncode == FELL_SHORT, last.stderr
    assert outcome(out) == outcome(whole.folder.path)
