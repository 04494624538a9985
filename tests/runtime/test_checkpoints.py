"""Stop and go on: a resumed run is the uninterrupted one bit for bit, whatever stopped it, and nothing else resumes."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.problems import Problem, deal, small
from support.tables import files

from evenhand.constraints import EqualizedOdds, EqualOpportunity
from evenhand.errors import EvenhandWarning, InputError, RunError
from evenhand.protocol.job import Job
from evenhand.runtime.checkpointfiles import state_bytes, state_from
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.inprocess import InProcess, VirtualClock
from evenhand.runtime.manifest import Manifest, entry
from evenhand.training.vertical import VerticalRun
from evenhand_reproductions.in_memory import Holdings, train_vertical

ROUNDS = 6
BLOCKS = [[0, 1], [2], [3]]
CLOCK = VirtualClock(latency=3e-7, bandwidth=2e9, speeds={"p0": 2e9, "p1": 3e7, "p2": 1e8})
EXACT = {"step": 0.2, "dual_step": 0.5, "local_steps": 2}
ASYNCHRONOUS = {**EXACT, "local_steps": 5, "pace": "until-server-speaks"}
JOBS = {
    "exact": Job(solver="fairvfl", constraints=(EqualizedOdds(0.02),), options=EXACT, max_rounds=ROUNDS, tol=0.0),
    "asynchronous": Job(
        solver="fairvfl", constraints=(EqualizedOdds(0.02),), options=ASYNCHRONOUS, max_rounds=ROUNDS, tol=0.0
    ),
    "theorem": Job(
        solver="fairvfl",
        constraints=(EqualOpportunity(0.0),),
        options={"schedule": "theorem"},
        max_rounds=ROUNDS,
        tol=0.0,
    ),
    "neural": Job(
        solver="fairvfl",
        constraints=(EqualizedOdds(0.02),),
        options={**ASYNCHRONOUS, "optimiser": "adam", "penalty": 0.5},
        max_rounds=ROUNDS,
        tol=0.0,
        model="mlp",
        hidden=(4, 3),
    ),
}


class Stop(Exception):
    """Stands for anything that ends a process between two messages."""


def _stop_at(index: int) -> Callable[[Any], None]:
    calls = iter(range(10**9))

    def on_round(report: Any) -> None:
        if next(calls) == index:
            raise Stop

    return on_round


def _train(job: Job, problem: Problem | None = None, **runtime: Any) -> VerticalRun:
    problem = small() if problem is None else problem
    parties = deal(problem, BLOCKS, (0, 2))
    return train_vertical(job, parties, problem.labels, problem.sensitive, clock=CLOCK, **runtime)


def _folder(path: Path) -> RunFolder:
    return RunFolder.open(path) if (path / "run.toml").exists() else RunFolder.create(path, {"job": "test"})


def _interrupted(job: Job, path: Path, *stops: int) -> None:
    """Begin, and be stopped at these reports, one after the other, counted from where each attempt begins."""
    for index in stops:
        with pytest.raises(Stop):
            _train(job, folder=_folder(path), checkpoint_seconds=0, on_round=_stop_at(index))


def _same(one: VerticalRun, other: VerticalRun) -> None:
    """Bit for bit."""
    for name, model in one.models.items():
        assert model.weights.tobytes() == other.models[name].weights.tobytes()
    assert one.multipliers.tobytes() == other.multipliers.tobytes()
    assert one.certificate == other.certificate
    assert one.transcript.entries == other.transcript.entries
    assert one.transcript.total_bytes == other.transcript.total_bytes
    pd.testing.assert_frame_equal(one.history, other.history, check_exact=True)


@pytest.fixture(scope="module", params=JOBS)
def job_and_whole_run(request: pytest.FixtureRequest) -> tuple[Job, VerticalRun]:
    job = JOBS[request.param]
    if job.model == "mlp":
        pytest.importorskip("torch")
    return job, _train(job)


@pytest.mark.portable
@pytest.mark.parametrize("index", range(ROUNDS + 1))
def test_a_run_stopped_at_any_round_ends_as_if_it_had_not_been(
    job_and_whole_run: tuple[Job, VerticalRun], index: int, tmp_path: Path
) -> None:
    job, whole = job_and_whole_run
    _interrupted(job, tmp_path / "run", index)
    _same(_train(job, folder=_folder(tmp_path / "run"), checkpoint_seconds=0), whole)


@settings(max_examples=8)
@given(stops=st.lists(st.integers(0, 2), min_size=2, max_size=3), every=st.sampled_from([0.0, 1e-3]))
def test_a_run_may_be_stopped_again_and_again(
    stops: list[int], every: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    job = JOBS["asynchronous"]
    path = tmp_path_factory.mktemp("runs") / "run"
    _interrupted(job, path, *stops)
    _same(_train(job, folder=_folder(path), checkpoint_seconds=every), _train(job))


def test_the_files_of_a_resumed_run_are_those_of_an_uninterrupted_one(tmp_path: Path) -> None:
    job = JOBS["asynchronous"]
    _interrupted(job, tmp_path / "stopped", 3, 1)
    resumed = _train(job, folder=_folder(tmp_path / "stopped"), checkpoint_seconds=0)
    _train(job, folder=_folder(tmp_path / "whole"), checkpoint_seconds=1e9)
    for name in ("metrics.jsonl", "transcript.jsonl"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    folder = _folder(tmp_path / "stopped")
    assert len(folder.read_lines("metrics.jsonl")) == ROUNDS + 1
    assert [tuple(line.values()) for line in folder.read_lines("transcript.jsonl")] == resumed.transcript.entries


def test_a_finished_run_keeps_no_checkpoint(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "run")
    _train(JOBS["exact"], folder=folder, checkpoint_seconds=0)
    assert folder.last_checkpoint() is not None
    assert not folder.finished
    folder.finish({"ok": True})
    assert folder.last_checkpoint() is None
    assert folder.finished
    assert folder.result == {"ok": True}


def test_the_last_two_checkpoints_are_kept(tmp_path: Path) -> None:
    _train(JOBS["exact"], folder=_folder(tmp_path / "run"), checkpoint_seconds=0)
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == [f"{ROUNDS:08d}", f"{ROUNDS + 1:08d}"]


def test_a_half_written_checkpoint_is_passed_over(tmp_path: Path) -> None:
    job = JOBS["exact"]
    _interrupted(job, tmp_path / "run", 3)
    partial = tmp_path / "run" / "checkpoints" / "00000004.partial"
    partial.mkdir()
    (partial / "runtime.safetensors").write_bytes(b"half")
    _same(_train(job, folder=_folder(tmp_path / "run"), checkpoint_seconds=0), _train(job))


def test_lines_written_after_the_checkpoint_and_half_a_line_are_dropped(tmp_path: Path) -> None:
    job = JOBS["exact"]
    _interrupted(job, tmp_path / "run", 3)
    for name in ("metrics.jsonl", "transcript.jsonl"):
        with (tmp_path / "run" / name).open("a") as file:
            file.write(json.dumps({"time": 1.0}) + '\n{"ti')
    _same(_train(job, folder=_folder(tmp_path / "run")), _train(job))
    assert len(_folder(tmp_path / "run").read_lines("metrics.jsonl")) == ROUNDS + 1


# -- what must not resume


def _changed_matrix(problem: Problem) -> Problem:
    matrix = problem.matrix.copy()
    matrix[7, 2] += 1e-9
    return replace(problem, matrix=matrix)


def _changed_labels(problem: Problem) -> Problem:
    labels = problem.labels.copy()
    labels[20] *= -1
    return replace(problem, labels=labels)


def _changed_groups(problem: Problem) -> Problem:
    sensitive = problem.sensitive.copy()
    sensitive.iloc[20, 0] = "a" if sensitive.iloc[20, 0] == "b" else "b"
    return replace(problem, sensitive=sensitive)


@pytest.mark.parametrize("change", [_changed_matrix, _changed_labels, _changed_groups])
def test_other_data_do_not_resume(change: Callable[[Problem], Problem], tmp_path: Path) -> None:
    _interrupted(JOBS["exact"], tmp_path / "run", 3)
    with pytest.raises(RunError, match="another job or other data"):
        _train(JOBS["exact"], change(small()), folder=_folder(tmp_path / "run"))


@pytest.mark.parametrize(
    "change",
    [
        {"constraints": (EqualizedOdds(0.03),)},
        {"max_rounds": 9},
        {"alpha": 0.1},
        {"seed": 1},
        {"options": {**EXACT, "step": 0.3}},
        {"fit_intercept": False},
    ],
    ids=str,
)
def test_another_job_does_not_resume(change: dict[str, Any], tmp_path: Path) -> None:
    _interrupted(JOBS["exact"], tmp_path / "run", 3)
    with pytest.raises(RunError, match="another job or other data"):
        _train(replace(JOBS["exact"], **change), folder=_folder(tmp_path / "run"))


def test_another_clock_does_not_resume(tmp_path: Path) -> None:
    """With other speeds an asynchronous run goes another way: its end would be neither the one nor the other."""
    job, problem = JOBS["asynchronous"], small()
    _interrupted(job, tmp_path / "run", 3)
    parties = deal(problem, BLOCKS, (0, 2))
    with pytest.raises(RunError, match="another"):
        train_vertical(job, parties, problem.labels, problem.sensitive, folder=_folder(tmp_path / "run"))


SPOIL: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "noise": lambda content: bytes(reversed(content)),
    "header": lambda content: content[:8] + b"X" * 20 + content[28:],
    "one bit": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
}


def _spoil(path: Path, how: str) -> None:
    if how == "removed":
        path.unlink()
    else:
        path.write_bytes(SPOIL[how](path.read_bytes()))


@pytest.mark.parametrize("spoil", [*SPOIL, "removed"])
def test_a_spoiled_checkpoint_gives_way_to_the_one_before_it(spoil: str, tmp_path: Path) -> None:
    _interrupted(JOBS["exact"], tmp_path / "run", 3)
    whole = _train(JOBS["exact"])
    older, newest = sorted((tmp_path / "run" / "checkpoints").iterdir())
    names = sorted(path.name for path in newest.iterdir())
    assert len(names) == 6, "the server, three parties, the runtime and the manifest"
    for name in names:
        copy = shutil.copytree(tmp_path / "run", tmp_path / name)
        _spoil(copy / "checkpoints" / newest.name / name, spoil)
        with pytest.warns(EvenhandWarning, match="goes on from the one before it"):
            _same(_train(JOBS["exact"], folder=_folder(copy), checkpoint_seconds=1e9), whole)
        # What was not whole is gone: the next checkpoint has a whole one before it again.
        assert [path.name for path in (copy / "checkpoints").iterdir()] == [older.name]


@pytest.mark.parametrize("spoil", [*SPOIL, "removed"])
def test_two_spoiled_checkpoints_are_a_run_error_that_changes_nothing(spoil: str, tmp_path: Path) -> None:
    _interrupted(JOBS["exact"], tmp_path / "run", 3)
    newest = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    for name in sorted(path.name for path in newest.iterdir()):
        copy = shutil.copytree(tmp_path / "run", tmp_path / name)
        for checkpoint in (copy / "checkpoints").iterdir():
            _spoil(checkpoint / name, spoil)
        before = files(copy)
        with pytest.raises(RunError, match=f"no checkpoint can be resumed from: .*{name}.*start this run again"):
            _train(JOBS["exact"], folder=_folder(copy))
        assert files(copy) == before


def test_the_state_of_another_role_or_run_is_refused(tmp_path: Path) -> None:
    """Well-formed, and its place in the manifest is in order: the mark inside the file tells."""
    _interrupted(JOBS["exact"], tmp_path / "run", 3)
    _interrupted(JOBS["exact"], tmp_path / "other", 3)
    for source in (tmp_path / "run", tmp_path / "other"):
        copy = shutil.copytree(tmp_path / "run", tmp_path / f"with {source.name}")
        for checkpoint in (copy / "checkpoints").iterdir():
            foreign = source / "checkpoints" / checkpoint.name / "role p1.safetensors"
            manifest = Manifest.read(checkpoint)
            for role in ("p1", "p0") if source.name == "other" else ("p0",):
                (checkpoint / f"role {role}.safetensors").write_bytes(foreign.read_bytes())
                manifest.files[f"role {role}.safetensors"] = entry(f"role {role}", foreign.read_bytes())
            manifest.write(checkpoint)
        with pytest.raises(RunError, match=r"belongs to role p1 of run \w+, not to role p"):
            _train(JOBS["exact"], folder=_folder(copy))


def test_roles_that_changed_places_are_refused(tmp_path: Path) -> None:
    _interrupted(JOBS["exact"], tmp_path / "run", 3)
    for checkpoint in (tmp_path / "run" / "checkpoints").iterdir():
        one, other = (checkpoint / f"role {name}.safetensors" for name in ("p1", "p2"))
        content = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(content)
    with pytest.raises(
        RunError,
        match=r"differs from what the run wrote for role p1 \(it holds role "
        r"p2\.safetensors\)",
    ):
        _train(JOBS["exact"], folder=_folder(tmp_path / "run"))


@pytest.mark.parametrize("name", ["metrics.jsonl", "transcript.jsonl"])
def test_a_shortened_record_is_a_run_error(name: str, tmp_path: Path) -> None:
    _interrupted(JOBS["exact"], tmp_path / "run", 3)
    path = tmp_path / "run" / name
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:1]))
    with pytest.raises(RunError, match="the folder was changed"):
        _train(JOBS["exact"], folder=_folder(tmp_path / "run"))


@pytest.mark.parametrize("name", ["metrics.jsonl", "transcript.jsonl"])
def test_a_record_that_is_no_json_is_a_run_error(name: str, tmp_path: Path) -> None:
    _interrupted(JOBS["exact"], tmp_path / "run", 3)
    path = tmp_path / "run" / name
    path.write_bytes(path.read_bytes().replace(b"{", b"#"))
    with pytest.raises(RunError):
        _train(JOBS["exact"], folder=_folder(tmp_path / "run"))


@pytest.mark.parametrize("name", ["progress", "runtime", "a b", "ä"])
def test_a_party_may_have_any_plain_name(name: str, tmp_path: Path) -> None:
    """Names become file names, beside files the run folder has for itself."""
    run = _named_run(name, folder=None)
    with pytest.raises(Stop):
        _named_run(name, folder=_folder(tmp_path / "run"), checkpoint_seconds=0, on_round=_stop_at(3))
    _same(_named_run(name, folder=_folder(tmp_path / "run")), run)


@pytest.mark.parametrize("name", ["", "..", "a/b", "../../outside", "/outside"])
def test_a_party_whose_name_is_no_file_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name"):
        _named_run(name, folder=_folder(tmp_path / "run"), checkpoint_seconds=0)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["manifest.json", "run", "run.toml"]


def _named_run(name: str, **runtime: Any) -> VerticalRun:
    problem = small()
    parties = deal(problem, [[0, 1], [2, 3]])
    parties[1] = replace(parties[1], name=name)
    return train_vertical(JOBS["exact"], parties, problem.labels, problem.sensitive, **runtime)


def _runtime(blocks: list[list[int]]) -> InProcess:
    problem, job = small(), JOBS["exact"]
    server, parties = Holdings.of(job, deal(problem, blocks), problem.labels, problem.sensitive).roles()
    return InProcess([server, *parties])


def test_a_checkpoint_of_other_roles_is_refused() -> None:
    taken = _runtime(BLOCKS).snapshot()
    with pytest.raises(RunError, match=r"has roles \['p0', 'p1', 'p2', 'server'\], but the job has \['p0', 'server'\]"):
        _runtime([[0, 1, 2, 3]]).restore(taken)


# -- state files


def test_a_state_survives_the_disk_bit_for_bit(tmp_path: Path) -> None:
    state = {
        "numbers": np.array([[0.1, -0.0, 1e-310], [np.pi, np.nan, -np.inf]]),
        "integers": np.arange(3),
        "empty": np.zeros((2, 0)),
        "no dimensions": np.array(0.1),
        "not a number": float("nan"),
        "fraction": np.float64(0.1),
        "flag": True,
        "text": "ä",
        "nested": {"list": [1, 2.5, "x", None]},
    }
    found = state_from(state_bytes(state), tmp_path)
    assert found.keys() == state.keys()
    for name, value in state.items():
        if isinstance(value, np.ndarray):
            assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
            assert found[name].tobytes() == value.tobytes()
        else:
            assert repr(found[name]) == repr(value.item() if isinstance(value, np.generic) else value)


# -- a process that is really killed

CHILD = """
import sys
sys.path[:0] = {paths!r}
from pathlib import Path
from test_checkpoints import KILLED_JOB, _folder, _train
_train(KILLED_JOB, folder=_folder(Path(sys.argv[1])), checkpoint_seconds=0)
"""
KILLED_JOB = Job(solver="fairvfl", constraints=(EqualizedOdds(0.02),), options=ASYNCHRONOUS, max_rounds=500, tol=0.0)


def _checkpoints_seen(path: Path) -> int:
    found = [int(entry.name) for entry in path.glob("checkpoints/*") if entry.name.isdigit()]
    return max(found, default=0)


def test_a_killed_process_resumes_bit_for_bit(tmp_path: Path) -> None:
    """SIGKILL at moments nobody chose: each time a little after some new checkpoint has appeared."""
    here = Path(__file__).resolve()
    script = CHILD.format(paths=[str(here.parent), str(here.parents[1])])
    path = tmp_path / "run"
    delays = np.random.default_rng().uniform(0.0, 0.05, size=2)
    for delay in delays:
        before = _checkpoints_seen(path)
        child = subprocess.Popen([sys.executable, "-W", "error", "-c", script, str(path)])
        try:
            while _checkpoints_seen(path) < before + 5:
                assert child.poll() is None, "the child ended before it could be killed"
                time.sleep(0.002)
            time.sleep(delay)
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
        assert child.returncode == -signal.SIGKILL, "the child was done before it was killed: the job is too short"
    resumed = _train(KILLED_JOB, folder=_folder(path), checkpoint_seconds=1e9)
    _same(resumed, _train(KILLED_JOB))
