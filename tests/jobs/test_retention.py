"""Old runs and jobs are deleted; what is young, runs, or is something else stays."""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path

import pytest
from typer.testing import CliRunner

from evenhand.cli.app import app
from evenhand.errors import InputError
from evenhand.jobs.federation.retention import age_of, old_jobs, old_logs, old_runs, remove
from evenhand.runtime.files import hold
from evenhand.runtime.folder import RunFolder

DAY = 86400.0


def aged(path: Path, days: float) -> Path:
    then = time.time() - days * DAY
    for one in [*path.rglob("*"), path]:
        os.utime(one, (then, then))
    return path


def job(store: Path, name: str, status: str, days: float) -> Path:
    path = store / "jobs" / name
    path.mkdir(parents=True)
    (path / "meta").write_text(json.dumps({"status": status}))
    (path / "data").write_bytes(b"x")
    return aged(path, days)


def test_ages() -> None:
    assert [age_of(text) for text in ("12h", "90d", "4w")] == [DAY / 2, 90 * DAY, 28 * DAY]
    for text in ("90", "d", "-1d", "1.5d", "90 d", "9999999d"):
        with pytest.raises(InputError, match="is not an age"):
            age_of(text)


def test_runs_that_are_old_and_not_worked_on(tmp_path: Path) -> None:
    for name, days in (("old", 100.0), ("young", 80.0), ("held", 100.0)):
        RunFolder.create(tmp_path / name, {"side": "shop"})
        aged(tmp_path / name, days)
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "customers.csv").write_text("id\n1\n")
    aged(tmp_path / "table", 200.0)
    with hold(tmp_path / "held"):
        aged(tmp_path / "held", 100.0)
        assert list(old_runs(tmp_path, 90 * DAY)) == [tmp_path / "old"]
    # A file that was written since keeps the run.
    (tmp_path / "old" / "report.html").write_text("new")
    assert tmp_path / "old" not in list(old_runs(tmp_path, 90 * DAY))


def test_links_are_not_followed(tmp_path: Path) -> None:
    runs, elsewhere = tmp_path / "runs", tmp_path / "elsewhere"
    elsewhere.mkdir()
    RunFolder.create(runs / "old", {"side": "shop"})
    (runs / "old" / "gone").symlink_to(tmp_path / "nothing")
    (runs / "old" / "table").symlink_to(elsewhere)
    (runs / "link").symlink_to(elsewhere)
    for one in [*(runs / "old").rglob("*"), runs / "old"]:
        os.utime(one, (0.0, 0.0), follow_symlinks=False)
    assert list(old_runs(runs, 90 * DAY)) == [runs / "old"]
    remove(runs / "old")
    assert elsewhere.is_dir()


def test_jobs_that_have_ended(tmp_path: Path) -> None:
    gone = job(tmp_path, "gone", "FINISHED:COMPLETED", 100.0)
    job(tmp_path, "young", "FINISHED:COMPLETED", 10.0)
    job(tmp_path, "waits", "SUBMITTED", 100.0)
    job(tmp_path, "runs", "RUNNING", 100.0)
    (tmp_path / "jobs" / "strange").mkdir()
    aged(tmp_path / "jobs" / "strange", 100.0)
    assert list(old_jobs(tmp_path, 90 * DAY)) == [gone]


def test_the_command(tmp_path: Path) -> None:
    gone = job(tmp_path, "gone", "FINISHED:COMPLETED", 100.0)
    kept = job(tmp_path, "kept", "FINISHED:ABORTED", 10.0)
    words = ["federation", "prune", "--keep", "90d", "--store", str(tmp_path)]
    done = CliRunner().invoke(app, [*words, "--dry-run"])
    assert done.output.split() == [str(gone)]
    assert gone.exists()
    assert CliRunner().invoke(app, words).exit_code == 0
    assert not gone.exists()
    assert kept.exists()
    with pytest.raises(InputError):
        list(old_jobs(tmp_path / "nowhere", 1.0))
    assert isinstance(CliRunner().invoke(app, words[:4]).exception, InputError)


def test_logs_of_old_jobs_go_and_the_kit_stays(tmp_path: Path) -> None:
    names = [str(uuid.uuid4()) for _ in range(4)]
    made = [tmp_path / names[0], tmp_path / names[1], tmp_path / "logs" / names[2], tmp_path / "logs" / names[3]]
    for path in [*made, tmp_path / "startup", tmp_path / "local", tmp_path / "identity"]:
        path.mkdir(parents=True)
        (path / "log.txt").write_text("a line\n")
    for path in (made[0], made[2], tmp_path / "startup"):
        for one in (path / "log.txt", path):
            os.utime(one, (0, 0))
    assert set(old_logs(tmp_path, 3600.0)) == {made[0], made[2]}
    # A job in progress may have written nothing for a while.
    half = time.time() - 12 * 3600.0
    for one in (made[1] / "log.txt", made[1]):
        os.utime(one, (half, half))
    assert made[1] not in set(old_logs(tmp_path, 0.0))
