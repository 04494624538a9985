"""One training at a time: the lock is held, told, freed by a kill, and honest where there is none to be had."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from evenhand.errors import EvenhandWarning, RunError
from evenhand.runtime.files import LOCK, check_not_held, hold

HOLDER = """
import sys
from pathlib import Path
from evenhand.runtime.files import hold
with hold(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(path: Path) -> subprocess.Popen[str]:
    """Another process that holds the folder until its input ends."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def ended(process: subprocess.Popen[str]) -> int:
    process.communicate()
    return process.returncode


def test_a_folder_that_is_held_is_refused_and_the_holder_named(tmp_path: Path) -> None:
    process = holder(tmp_path / "run")
    words = (
        rf"run is being written by another training \(process {process.pid} on {socket.gethostname()}, since \d{{4}}-"
    )
    try:
        with pytest.raises(RunError, match=words), hold(tmp_path / "run"):
            pass
        with pytest.raises(RunError, match=words):
            check_not_held(tmp_path / "run")
    finally:
        assert ended(process) == 0
    check_not_held(tmp_path / "run")
    # Nothing was recorded: nothing is left.
    assert list(tmp_path.iterdir()) == []


def test_a_kill_frees_it(tmp_path: Path) -> None:
    process = holder(tmp_path / "run")
    process.kill()
    ended(process)
    assert json.loads((tmp_path / "run" / LOCK).read_text())["pid"] == process.pid
    check_not_held(tmp_path / "run")
    with hold(tmp_path / "run"):
        assert json.loads((tmp_path / "run" / LOCK).read_text())["pid"] == os.getpid()
        (tmp_path / "run" / "run.toml").write_text("")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.toml"]


def test_the_same_process_may_not_hold_it_twice_but_again(tmp_path: Path) -> None:
    with hold(tmp_path), pytest.raises(RunError, match=f"process {os.getpid()} on"), hold(tmp_path):
        pass
    with hold(tmp_path):
        pass


@pytest.mark.parametrize("content", [b"", b"[1]", b"\xff", b"{", b'{"pid": [1]}', b"[" * 100_000])
def test_whatever_a_stale_lock_says_is_no_obstacle(content: bytes, tmp_path: Path) -> None:
    (tmp_path / LOCK).write_bytes(content)
    if content == b'{"pid": [1]}':
        with pytest.warns(EvenhandWarning, match="did not end well"), hold(tmp_path):
            pass
    else:
        with hold(tmp_path):
            pass


def test_a_holder_on_another_machine_that_did_not_end_well_is_told_of(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text(json.dumps({"pid": 7, "host": "elsewhere", "since": "2024-05-01T10:00:00+00:00"}))
    with (
        pytest.warns(EvenhandWarning, match="process 7 on elsewhere, since 2024-05-01.*still running there"),
        hold(tmp_path),
    ):
        pass


def test_where_there_are_no_locks_a_warning_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with (
        pytest.warns(EvenhandWarning, match=r"cannot be locked \(no locks available\).*only one training"),
        hold(tmp_path),
    ):
        assert (tmp_path / LOCK).exists()
    assert not (tmp_path / LOCK).exists()


def test_asking_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder may remove its file between the look and the lock."""
    check_not_held(tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    check_not_held(tmp_path)
    assert list(tmp_path.iterdir()) == []
