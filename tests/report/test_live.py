"""Runs that go on, seen from outside: the terminal's view, and the page that follows them."""

from __future__ import annotations

import http.client
import http.server
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.tables import SmallJob

from evenhand.errors import ResourceError
from evenhand.report.record import RunRecord
from evenhand.report.serving import HOST, page_server
from evenhand.report.tables import sparkline
from evenhand.runtime.manifest import Manifest

EVENHAND = [sys.executable, "-c", "from evenhand.cli import main; main()"]


def rounds_on_disk(run: Path) -> int:
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.fixture
def going_on(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A run that would take minutes, once its first rounds are on the disk."""
    job, run = SmallJob(tmp_path), tmp_path / "run"
    job.content["job"] |= {"max_rounds": 1_000_000}
    job.write()
    process = subprocess.Popen([*EVENHAND, "train", str(tmp_path / "job.toml"), "--out", str(run), "--quiet"])
    while not rounds_on_disk(run):
        assert process.poll() is None
        time.sleep(0.05)
    yield run, process
    process.kill()
    process.wait()


def looked_at(server: http.server.ThreadingHTTPServer, path: str = "/", host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection(HOST, server.server_port, timeout=30)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


@pytest.fixture
def serving() -> Iterator[list[http.server.ThreadingHTTPServer]]:
    """Servers that a test puts here answer until its end."""
    opened: list[http.server.ThreadingHTTPServer] = []
    yield opened
    for server in opened:
        server.shutdown()
        server.server_close()


def test_a_run_is_watched_until_it_is_killed(going_on: tuple[Path, subprocess.Popen[bytes]]) -> None:
    run, training = going_on
    watching = subprocess.Popen(
        [*EVENHAND, "watch", str(run), "--every", "0.2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert watching.stdout is not None
    lines = [watching.stdout.readline() for _ in range(2)]
    found = [re.fullmatch(r"round (\d+) objective [\d.]+ violation [\d.e+-]+\n", line) for line in lines]
    first, second = (int(one[1]) for one in found if one is not None)
    assert first < second
    os.kill(training.pid, signal.SIGKILL)
    training.wait()
    _, errors = watching.communicate(timeout=60)
    assert watching.returncode == 4
    assert "--resume" in errors


def test_the_page_follows_a_run(
    going_on: tuple[Path, subprocess.Popen[bytes]], serving: list[http.server.ThreadingHTTPServer]
) -> None:
    run, _ = going_on
    server = page_server([run], 0)
    threading.Thread(target=server.serve_forever).start()
    serving.append(server)
    rounds = []
    for _ in range(2):
        status, page = looked_at(server)
        found = re.search(r"Not finished\.</strong> Round ([\d,]+): objective", page)
        assert status == 200
        assert found is not None
        assert 'http-equiv="refresh"' in page
        rounds.append(int(found[1].replace(",", "")))
        now = rounds_on_disk(run)
        while rounds_on_disk(run) <= now:
            time.sleep(0.05)
    assert rounds[0] < rounds[1]


def test_the_page_of_a_finished_run_stays_and_is_for_this_machine(
    runs: dict[str, Path], serving: list[http.server.ThreadingHTTPServer]
) -> None:
    server = page_server([runs["fair"]], 0)
    threading.Thread(target=server.serve_forever).start()
    serving.append(server)
    assert server.server_address[0] == "127.0.0.1"
    status, page = looked_at(server)
    assert status == 200
    assert 'http-equiv="refresh"' not in page
    assert looked_at(server, "/etc/passwd")[0] == 404
    status, words = looked_at(server, host="elsewhere.example")
    assert status == 421
    assert "html" not in words
    with pytest.raises(ResourceError, match="--port"):
        page_server([runs["fair"]], server.server_port)


def test_half_a_line_is_not_read(tmp_path: Path) -> None:
    """Whoever writes may be in the middle of one."""
    job = SmallJob(tmp_path)
    run = job.run(tmp_path / "run").folder.path
    manifest = Manifest.read(run)
    manifest.status = "running"
    manifest.write(run)
    whole = RunRecord.read(run)
    assert not whole.finished
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"round": 99, "obj')
    assert len(RunRecord.read(run).history) == len(whole.history) > 0


def test_heights_follow_values() -> None:
    assert sparkline([0.0, 1.0, 0.5, float("nan")]) == "▁█▄ "
    assert len(sparkline(range(1000), width=30)) == 30
    assert sparkline([2.0, 2.0]) == "▁▁"
    assert sparkline([float("nan")]) == ""
