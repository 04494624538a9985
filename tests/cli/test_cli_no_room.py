"""A full disk, a folder that nobody may write to, output that nobody takes: for every command that writes or prints.

Each ends with an error of ours and a documented exit code, and whatever it was to write is there whole or not at all.
Files that may not grow (``ulimit -f``) stand in for a full disk, which `test_cli_folders.py` mounts for training.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import pytest
from support import hospitals, tables
from support.disks import largest_file
from support.federation import write_shops

from evenhand.errors import ResourceError

Command = Callable[..., "subprocess.CompletedProcess[str]"]

WRITING = {
    "init": "init {ground}/vertical/bank.csv {ground}/vertical/shop.csv --label outcome --out {out}/job.toml",
    "train": "train {ground}/vertical/job.toml --out {out}/run -q",
    "train across clients": "train {ground}/horizontal/job.toml --out {out}/run -q",
    "predict": "predict {ground}/vertical/run --out {out}/scores.csv",
    "predict parquet": "predict {ground}/vertical/run --out {out}/scores.parquet",
    "frontier": "frontier {ground}/vertical/job.toml --epsilon 0.1 --out {out}/frontier",
    "report": "report {ground}/vertical/run --out {out}/page.html",
    "align": "federation align {ground}/shops/bank/party.toml {ground}/shops/shop/party.toml --out {out}/common",
    "flower": "federation flower {out}/app --job {ground}/shops/job.toml",
    "data example": "data example lending --out {out}/lending",
}
PRINTING = {
    **{name: words for name, words in WRITING.items() if name != "predict parquet"},
    "train": "train {ground}/vertical/job.toml --out {out}/run",
    "check": "check {ground}/vertical/job.toml",
    "doctor": "doctor",
    "predict": "predict {ground}/vertical/run",
    "audit --plan": "audit --plan {ground}/vertical/job.toml",
    "data list": "data list",
    "--version": "--version",
    "--help": "train --help",
}


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ground")
    small = tables.SmallJob(folder / "vertical")
    small.content["job"]["max_rounds"] = 2
    small.run()
    hospitals.HospitalJob(folder / "horizontal").write()
    write_shops(folder / "shops", {"solver": "subspace"})
    return folder


def refused(done: subprocess.CompletedProcess[str], codes: tuple[int, ...]) -> None:
    assert done.returncode in codes, f"{done.returncode}: {done.stderr}"
    assert "Traceback" not in done.stderr
    assert "error:" in done.stderr


@pytest.mark.parametrize("name", WRITING)
def test_files_that_may_not_grow(name: str, ground: Path, here: Command, tmp_path: Path) -> None:
    (out := tmp_path / "out").mkdir()
    before = tables.files(ground)
    with largest_file(30):
        done = here(*WRITING[name].format(ground=ground, out=out).split())
    refused(done, (ResourceError.exit_code,))
    assert "ulimit -f" in done.stderr
    assert [path for path in out.rglob("*") if path.is_file()] == []
    assert tables.files(ground) == before


def test_an_audit_that_does_not_fit_leaves_the_run_as_it_was(
    ground: Path, here: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenhand.auditing.learners.TREES", 5)
    monkeypatch.setattr("evenhand.training.auditing._again", lambda *_: None)
    run = Path(shutil.copytree(ground / "vertical" / "run", tmp_path / "run"))
    before = tables.files(run)
    with largest_file(30):
        refused(here("audit", run, "-q"), (ResourceError.exit_code,))
    assert tables.files(run) == before


@pytest.mark.parametrize("name", WRITING)
def test_a_folder_that_nobody_may_write_to(name: str, ground: Path, here: Command) -> None:
    # Not even the superuser, who runs tests in containers, may make files here.
    with suppress(OSError):
        os.mkdir("/sys/evenhand")
        os.rmdir("/sys/evenhand")
        pytest.skip("this system has no folder that nobody may write to")
    done = here(*WRITING[name].format(ground=ground, out="/sys").split())
    refused(done, (4,))
    assert "/sys" in done.stderr


@contextmanager
def nowhere(file: int | str) -> Iterator[TextIO]:
    """A stream of which nothing arrives."""
    # An older rich leaves in the buffer what could not be written, and closing tries again.
    with suppress(OSError), open(file, "w", encoding="utf-8") as stream:
        yield stream


def closed_pipe() -> AbstractContextManager[TextIO]:
    reading, writing = os.pipe()
    os.close(reading)
    return nowhere(writing)


def full_device() -> AbstractContextManager[TextIO]:
    return nowhere("/dev/full")


@pytest.mark.parametrize(("output", "code"), [(closed_pipe, 1), (full_device, ResourceError.exit_code)])
@pytest.mark.parametrize("name", PRINTING)
def test_output_that_nobody_takes(
    name: str, output: Any, code: int, ground: Path, here: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if output is full_device and not Path("/dev/full").exists():
        pytest.skip("this system has no device that is always full")
    (out := tmp_path / "out").mkdir()
    with output() as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        done = here(*PRINTING[name].format(ground=ground, out=out).split())
        monkeypatch.undo()
    assert done.returncode == code, f"{done.returncode}: {done.stderr}"
    assert "Traceback" not in done.stderr
    assert not list(out.rglob("*.partial"))
