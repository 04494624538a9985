"""Where a run may be recorded, what it leaves when it is refused, and what kills left that is cleared away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tables import files

from evenhand.errors import DataError, ResourceError, RunError
from evenhand.jobs import folder as run_location
from evenhand.jobs.folder import check_place, has_finished, record_in
from evenhand.protocol.transcript import Entry
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.manifest import Manifest

JOB: dict[str, Any] = {"job": {"seed": 1}}
SENT = [Entry(0.0, "bank", "server", "scores", 8)]
STATES = {"": {"time": 1.0}, "bank": {"weights": np.ones(2)}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run"


def begun(path: Path, then: Callable[[], Any] = lambda: None) -> None:
    """A run that goes no further than its second checkpoint, if what happens then lets it."""
    with record_in(path, JOB, path.parent, False) as folder:
        for number in range(2):
            folder.append([{"round": number}], SENT)
            folder.checkpoint(STATES)
        then()


def finished(path: Path) -> None:
    with record_in(path, JOB, path.parent, False) as folder:
        folder.append([{"round": 0}], SENT)
        folder.checkpoint(STATES)
        folder.finish({"bytes": 8})


def test_a_run_that_is_refused_before_it_recorded_anything_leaves_nothing(path: Path) -> None:
    with pytest.raises(DataError), record_in(path, JOB, path.parent, False):
        raise DataError("no rows")
    assert not path.exists()


def test_a_run_that_recorded_something_stays(path: Path) -> None:
    def refuse() -> None:
        raise DataError("no rows")

    with pytest.raises(DataError):
        begun(path, refuse)
    assert {"manifest.json", "metrics.jsonl", "run.toml", "transcript.jsonl"} < set(files(path))


def test_nobody_else_records_there_meanwhile(path: Path) -> None:
    with record_in(path, JOB, path.parent, False):
        for resume in (False, True):
            with pytest.raises(RunError, match="is being written by another training"):
                check_place(path, resume)
            with pytest.raises(RunError, match="is being written"), record_in(path, JOB, path.parent, resume):
                pass
    check_place(path, True)


def test_a_run_that_another_has_finished_meanwhile_is_not_begun_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the first look and the lock another may have come and gone."""
    looks = iter([lambda: finished(path)])
    real = run_location.check_place

    def look(path: Path, resume: bool) -> None:
        real(path, resume)
        next(looks, lambda: None)()

    monkeypatch.setattr(run_location, "check_place", look)
    with pytest.raises(RunError, match="exists and is not empty"), record_in(path, JOB, path.parent, False):
        pass
    assert RunFolder.open(path).result == {"bytes": 8}


def test_what_kills_have_left_is_cleared_away_at_the_next_start(path: Path) -> None:
    begun(path)
    known = files(path)
    for name in ("checkpoints/00000003.partial", "checkpoints/00000001.partial"):
        (path / name).mkdir()
        (path / name / "role bank.safetensors").write_bytes(b"half")
    (path / "parties" / "bank").mkdir(parents=True)
    (path / "parties" / "bank" / "weights.safetensors.partial").write_bytes(b"half")
    (path / "manifest.json.partial").write_bytes(b"half")
    with record_in(path, JOB, path.parent, True):
        assert set(files(path)) == {*known, "lock"}
    assert files(path) == known


def test_a_kill_between_the_last_file_and_the_manifest_is_no_end(path: Path) -> None:
    """All files of a finished run may be there: as long as the manifest does not say so, the run goes on."""
    begun(path)
    running = (path / "manifest.json").read_bytes()
    with record_in(path, JOB, path.parent, True) as folder:
        folder.resume_from(folder.last_checkpoint())
        folder.finish({"bytes": 16})
    (path / "manifest.json").write_bytes(running)
    with pytest.raises(RunError, match="holds an unfinished run"):
        _ = RunFolder.open(path).result
    check_place(path, True)


def test_checkpoints_of_a_finished_run_are_cleared_away(path: Path) -> None:
    finished(path)
    known = files(path)
    (path / "checkpoints" / "00000001").mkdir(parents=True)
    (path / "checkpoints" / "00000001" / "role bank.safetensors").write_bytes(b"left")
    assert has_finished(path, JOB)
    assert files(path) == known
    assert not (path / "checkpoints").exists()


def test_only_the_same_job_whole_counts_as_finished(path: Path) -> None:
    assert not has_finished(path, JOB)
    finished(path)
    with pytest.raises(RunError, match="started with another job file"):
        has_finished(path, {"job": {"seed": 2}})
    with pytest.raises(RunError, match="has finished; there is nothing to resume"):
        check_place(path, True)
    (path / "transcript.jsonl").write_bytes(b"{}\n")
    with pytest.raises(RunError, match=r"transcript\.jsonl differs from what the run wrote"):
        has_finished(path, JOB)


def test_an_unfinished_run_is_not_finished(path: Path) -> None:
    begun(path)
    assert not has_finished(path, JOB)


@pytest.mark.parametrize("left", [[], ["lock"], ["manifest.json"], ["manifest.json.partial"], ["run.toml.partial"]])
@pytest.mark.parametrize("resume", [False, True])
def test_what_a_kill_at_the_very_start_leaves_is_no_obstacle(path: Path, left: list[str], resume: bool) -> None:
    path.mkdir()
    for name in left:
        (path / name).write_bytes(b"half")
    with record_in(path, JOB, path.parent, resume) as folder:
        folder.finish({})
    assert set(files(path)) == {"manifest.json", "result.json", "run.toml"}


def test_a_folder_of_this_version_without_its_manifest_is_refused(path: Path) -> None:
    for make in (finished, begun):
        make(path.with_name(make.__name__))
        (path.with_name(make.__name__) / "manifest.json").unlink()
        with pytest.raises(RunError, match=r"manifest\.json is missing; put it back from a copy"):
            _ = RunFolder.open(path.with_name(make.__name__)).finished


def test_another_version_does_not_go_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(path)
    monkeypatch.setattr(run_location, "version", lambda name: "9.9")
    with pytest.raises(RunError, match=r"started with evenhand .* cannot be resumed with 9\.9; start a new run"):
        check_place(path, True)


def test_two_runs_of_one_job_have_different_ids(path: Path) -> None:
    for name in ("one", "two"):
        finished(path.with_name(name))
    one, two = (Manifest.read(path.with_name(name)) for name in ("one", "two"))
    assert one.run != two.run
    assert len(one.run) == 32


def test_too_little_memory_is_told_and_can_be_gone_on_from(path: Path) -> None:
    with pytest.raises(ResourceError, match=r"Unable to allocate .*--resume"):
        begun(path, lambda: np.zeros(2**61, dtype=np.int8))
    check_place(path, True)
