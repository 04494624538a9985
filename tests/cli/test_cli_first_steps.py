"""From one's own files to a job: `init`, `check`, `doctor`, `--version`, and what is said on the way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.hospitals import HospitalJob
from support.tables import SmallJob, people

from evenhand.cli.data import write_example
from evenhand.data.examples import EXAMPLES
from evenhand.jobs.folder import read_job

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def small(tmp_path: Path) -> SmallJob:
    job = SmallJob(tmp_path)
    job.write()
    return job


def test_messy_tables_get_a_job_file_that_has_nothing_wrong(here: Command, tmp_path: Path) -> None:
    paths = write_example("lending", tmp_path)
    done = here("init", *paths, "--out", tmp_path / "job.toml")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'job.toml'}\n")
    job = read_job(tmp_path / "job.toml")
    assert job.job.ids == "inner"
    bank, shop, phone = job.party
    assert (bank.id, shop.id, phone.id) == ("customer", "customer", "Kunde")
    assert (bank.label.column, bank.label.positive, bank.sensitive) == ("repaid", "yes", ["origin"])
    assert bank.types == {"income": "number", "email": "leave out"}
    assert (phone.encoding, phone.decimal, phone.types) == ("cp1252", ",", {"Vertrag": "date"})
    found = here("check", tmp_path / "job.toml")
    assert found.returncode == 0, found.stderr
    assert "no problems found" in found.stdout
    assert found.stderr == ""
    # A table of each: columns as encoded, groups by labels, what they prove.
    for line in ("phone Vertrag date 0 20", "origin abroad 200 105", "bank 3,000 2,537 637"):
        assert line in "\n".join(" ".join(one.split()) for one in found.stdout.splitlines())


def test_tables_with_the_same_columns_are_clients(here: Command, tmp_path: Path) -> None:
    paths = write_example("hospitals", tmp_path)
    assert here("init", *paths, "--out", tmp_path / "job.toml").returncode == 0
    job = read_job(tmp_path / "job.toml")
    assert job.job.split == "horizontal"
    assert (job.data.label.column, job.data.sensitive, job.data.id) == ("readmitted", ["sex"], "patient")
    assert here("check", tmp_path / "job.toml").returncode == 0


def test_what_is_given_is_not_guessed(here: Command, tmp_path: Path) -> None:
    frames = people()
    for name, frame in frames.items():
        frame.to_parquet(tmp_path / f"{name}.parquet")
    paths = [tmp_path / f"{name}.parquet" for name in frames]
    given = ["--label", "city", "--sensitive", "sex", "--id", "customer", "--out", tmp_path / "job.toml"]
    done = here("init", *paths, *given, "--positive", "Ghent")
    assert done.returncode == 2
    assert "'city' has 3 different values" in done.stderr
    done = here("init", *paths, *given[:-1], tmp_path / "cities.toml")
    assert (done.returncode, "classes '" in done.stderr) == (0, True)
    assert len(read_job(tmp_path / "cities.toml").party[0].label.classes) == 3
    given[1] = "outcome"
    assert here("init", *paths, *given).returncode == 0
    assert read_job(tmp_path / "job.toml").party[0].sensitive == ["sex"]
    again = here("init", *paths, *given)
    assert (again.returncode, again.stderr.startswith("error: ")) == (2, True)
    assert "exists" in again.stderr


def test_check_says_everything_that_is_wrong_at_once(here: Command, small: SmallJob) -> None:
    small.frames["bank"].loc[small.frames["bank"].index[-1], "outcome"] = None
    small.frames["shop"] = small.frames["shop"].iloc[5:].assign(spent=lambda one: [[1]] * len(one))
    small.party("social")["table"] = "nowhere.csv"
    small.write()
    done = here("check", small.path)
    assert done.returncode == 2
    assert "there are 2 problems" in done.stderr
    for part in ("party 'social': there is no file", "party 'bank': label column 'outcome' has 1 missing"):
        assert part in done.stderr
    small.party("social")["table"] = "social.csv"
    small.write()
    done = here("check", small.path)
    assert "lacks 5 of bank's 120 ids" in done.stderr
    assert "label column 'outcome' has 1 missing" in done.stderr
    assert "bank 120 115" in " ".join(done.stdout.split())


def test_check_says_everything_that_is_wrong_in_a_job_file(here: Command, small: SmallJob) -> None:
    small.party("bank")["types"] = {"sex": "number"}
    small.party("shop")["encoding"] = "klingon"
    small.content["job"]["options"] = {"stpe": 1.0}
    small.write()
    done = here("check", small.path)
    assert done.returncode == 2
    for part in ("types names 'sex', which is not a feature", "encoding is 'klingon'", "has no option 'stpe'"):
        assert part in done.stderr


def test_check_of_clients_says_everything_that_is_wrong(here: Command, tmp_path: Path) -> None:
    job = HospitalJob(tmp_path)
    names = list(job.frames)
    job.frames[names[0]] = job.frames[names[0]].drop(columns="age")
    job.frames[names[1]]["outcome"] = None
    job.write()
    done = here("check", job.path)
    assert done.returncode == 2
    assert "'age'" in done.stderr
    assert f"client {names[1]!r}: label column 'outcome' has" in done.stderr


def test_version_and_completion(here: Command, evenhand: Command) -> None:
    assert here("--version").stdout.startswith("evenhand 0.")
    # Which shell it is, is found out from the processes above: under a runner of tests there may be none.
    done = evenhand("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert done.returncode == 0
    assert "complete" in done.stdout


def test_doctor_says_what_is_installed(here: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from evenhand.cli import doctor

    done = here("doctor")
    assert done.returncode == 0
    assert f"pandas {pd.__version__}" in " ".join(done.stdout.replace("≥", " ").split()) or "pandas" in done.stdout
    old = [part._replace(found="0.0.1") if part.name == "numpy" else part for part in doctor.parts()]
    monkeypatch.setattr(doctor, "parts", lambda: old)
    done = here("doctor")
    assert (done.returncode, "missing or too old: numpy" in done.stderr) == (7, True)


def test_rows_that_do_not_match_and_bounds_that_nobody_gave_are_said(here: Command, small: SmallJob) -> None:
    small.content["job"] |= {"ids": "inner", "constraint": {"kind": "equal-opportunity"}, "solver": "auto"}
    del small.content["job"]["options"], small.content["job"]["tol"]
    small.frames["shop"] = small.frames["shop"].iloc[7:]
    small.write()
    done = here("train", small.path, "--out", small.folder / "run")
    assert "113 rows are in all tables and used; 7 of bank's 120 rows" in done.stderr
    said = " ".join(done.stdout.split())
    assert "constraint equal-opportunity: epsilon is 0.01, its default" in said
    assert "on the held-out rows, above the bound of 0.01 (equal-opportunity)" in said
    assert "the standard error is" in said


def test_predict_measures_where_there_are_labels_and_overwrites_nothing(here: Command, small: SmallJob) -> None:
    assert here("train", small.path, "--out", small.folder / "run", "--quiet").returncode in (0, 9)
    out = small.folder / "scores.csv"
    done = here("predict", small.folder / "run", "--out", out)
    assert "quality on scored rows" in done.stderr
    before = out.read_bytes()
    refused = here("predict", small.folder / "run", "--out", out)
    assert (refused.returncode, "exists" in refused.stderr) == (2, True)
    assert out.read_bytes() == before
    assert here("predict", small.folder / "run", "--out", out, "--overwrite").returncode == 0
    new = small.frames["bank"].drop(columns=["outcome", "sex"]).assign(city="Rome")
    new.to_csv(small.folder / "new.csv")
    done = here("predict", small.folder / "run", "--table", f"bank={small.folder / 'new.csv'}")
    assert "quality" not in done.stderr
    assert "column 'city': 120 of 120 rows have a value that no training row has, such as 'Rome'" in done.stderr


def test_a_closed_pipe_is_no_accident(start: Any, small: SmallJob, here: Command) -> None:
    assert here("train", small.path, "--out", small.folder / "run", "--quiet").returncode in (0, 9)
    running = start("predict", small.folder / "run")
    running.stdout.close()
    assert running.wait() == 1
    assert "Traceback" not in running.stderr.read()


def test_examples_are_the_same_every_time() -> None:
    for make in EXAMPLES.values():
        for one, other in zip(make().values(), make().values(), strict=True):
            pd.testing.assert_frame_equal(one, other)


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are others there")
def test_a_folder_that_may_not_be_written_to(here: Command, small: SmallJob, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("evenhand.runtime.files.write_new", refuse)
    done = here("init", small.folder / "bank.csv", small.folder / "shop.csv", "--out", small.folder / "new.toml")
    assert (done.returncode, "cannot write" in done.stderr) == (4, True)
    assert not list(small.folder.glob("new.toml*"))
