"""A real SuperLink and SuperNodes on loopback: TLS, node keys, every one a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
from support.tls import Authority, make_node_key

from evenhand.cli.demo_federation import free_port, wait_until_open
from evenhand.jobs.federation.files import PARTY_FILE, RUNS, run_place
from evenhand.jobs.federation.flower_app import AT_ONCE
from evenhand.runtime.folder import RunFolder

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}
BIN = Path(sys.executable).parent


class SuperLink:
    """A SuperLink with a SuperNode for each party; a context in which they run.

    Parameters
    ----------
    parties
        Each party's own file.
    server
        The file of the party that holds the labels.

    Attributes
    ----------
    dialled
        The port that nodes dial: the SuperLink's own, unless something is put between before they start.
    """

    def __init__(self, folder: Path, parties: Mapping[str, Path], server: Path) -> None:
        self.folder = folder
        self.parties = parties
        self.port = self.dialled = free_port()
        self._stack = ExitStack()
        folder.mkdir(parents=True)
        authority = Authority()
        authority.write(folder / "ca.crt")
        authority.issue("localhost", folder / "server.crt", folder / "server.key")
        for name in parties:
            make_node_key(folder, name)
        home = folder / "home"
        home.mkdir()
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "localhost:{self.port}"\n'
            f'root-certificates = "{folder / "ca.crt"}"\n'
        )
        self._server = server
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        with self._stack:
            tls = ["--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.crt", "--ssl-keyfile", "server.key"]
            closed = ["--enable-supernode-auth", "--disable-runtime-dependency-installation"]
            place = ["--host", "127.0.0.1", "--port", str(self.port)]
            self.start("superlink", "flower-superlink", [*tls, *closed, *place], self._server)
            wait_until_open(self.port)
            for name, file in self.parties.items():
                self.flwr("supernode", "register", str(self.folder / f"{name}.pub"), "--name", name)
                self.nodes[name] = self.start_node(name, file)
            self._stack = self._stack.pop_all()
        return self

    def start_node(self, name: str, file: Path, key: str | None = None) -> subprocess.Popen[bytes]:
        reach = ["--superlink", f"localhost:{self.dialled}", "--root-certificates", "ca.crt"]
        own = ["--auth-supernode-private-key", f"{key or name}.key", "--port", str(free_port())]
        return self.start(name, "flower-supernode", [*reach, *own], file)

    def start(self, name: str, program: str, arguments: list[str], party: Path) -> subprocess.Popen[bytes]:
        own = {PARTY_FILE: str(party), RUNS: str(self.folder / f"runs {name}"), "FLWR_HOME": str(self.folder / name)}
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(BIN / program), *arguments],
                cwd=self.folder,
                env=os.environ | QUIET | own | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        self._stack.callback(stop, process)
        return process

    def flwr(self, *arguments: str) -> str:
        home = {"FLWR_HOME": str(self.folder / "home")}
        done = subprocess.run(
            [str(BIN / "flwr"), *arguments], env=os.environ | QUIET | home, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, app: Path, patience: float = 3000.0) -> tuple[str, str]:
        """Submit an app and wait: its run's number and how it ended."""
        # All nodes share this machine: more at once than it has cores would only hold each other up.
        few = ("--run-config", f"{AT_ONCE}={os.cpu_count()}")
        run = str(json.loads(self.flwr("run", str(app), *few, "--format", "json"))["run-id"])
        end = time.monotonic() + patience
        # Its log costs nothing to look at; asking starts a process each time, and may be answered with an error.
        while not re.search(rf"Finished task \d+ of run {run}", self.log("superlink")):
            assert time.monotonic() < end, f"the run did not end:\n{self.log('superlink')[-3000:]}"
            time.sleep(1.0)
        while "runs" not in (told := json.loads(self.flwr("list", "--run-id", run, "--format", "json"))):
            assert time.monotonic() < end, told
        return run, str(told["runs"][0]["status"])

    def side(self, name: str, run: str) -> RunFolder:
        return RunFolder.open(run_place(self.folder / f"runs {name}", run, at_server=name == "superlink"))

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        # A node that was not let in ends and leaves its helper behind.
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("FLWR_HOME", "").startswith(f"{self.folder}{os.sep}"):
                    process.kill()


def stop(process: subprocess.Popen[Any]) -> None:
    """End a process and all that it has started."""
    try:
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        family = []
    process.terminate()
    psutil.wait_procs(family, timeout=10)
    for one in family:
        if one.is_running():
            one.kill()
    process.wait()
