"""Three parties and their server on a provisioned federation on loopback, each a process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from support.federation import servers_copy, write_shops

from evenhand.cli.demo_federation import free_port, wait_until_open
from evenhand.cli.federation_client import start
from evenhand.jobs.federation.client import connect, run_to_end
from evenhand.jobs.federation.files import FederationJob, read_federation_job
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.nvflare.kits import provision
from evenhand.runtime.nvflare.running import RunningKit

PARTIES = ["bank", "shop", "phone"]
LEASE = 15.0
"""Seconds that a job goes on without its submitter."""
FAIR = {"max_rounds": 20, "constraint": {"kind": "equal-opportunity", "epsilon": 0.05}, "test_fraction": 0.2}


class Shops:
    """The federation, running; the policy is phone's, and who is absent has a kit and is not started.

    With a level of protection, phone does not know the labels, and there may be a notary who deals.
    """

    def __init__(self, folder: Path, policy: str = "", absent: str = "", protection: str = "auto") -> None:
        self.folder = folder
        active = ("bank", "phone") if protection == "auto" else ("bank",)
        self.paths = write_shops(
            folder / "sites", {**FAIR, "protection": protection, "allow_experimental": True}, active
        )
        self.paths["server"] = servers_copy(self.paths["bank"])
        names = list(read_federation_job(self.paths["job"]).parts)
        with self.paths["phone"].open("a") as file:
            file.write(f"\n[policy]\n{policy}\n")
        self.port = free_port()
        provision("shops", "localhost", self.port, names, folder / "kits")
        self.running: dict[str, RunningKit] = {}
        for name in ("server", *(name for name in names if name != absent)):
            self.start(name)
            if name == "server":
                wait_until_open(self.port)

    def start(self, name: str) -> None:
        if name in self.running:
            self.running[name].wait()
        own = self.paths[name]
        log = self.folder / f"{name}.log"
        self.running[name] = start(self.folder / "kits" / name, own, self.folder / name, log, 1.0, LEASE)

    def submit(
        self, *, retries: int = 0, resume: str | None = None, patience: float = 120.0, **job: Any
    ) -> dict[str, Any]:
        """What the server says of a job."""
        content = read_federation_job(self.paths["job"])
        changed = FederationJob(job=content.job.model_copy(update=job), party=content.party)
        kit = self.folder / "kits" / "admin"
        with connect(kit, patience) as federation:
            return run_to_end(federation, changed, "shops", print, retries=retries, resume=resume or "")._asdict()

    def side(self, name: str) -> RunFolder:
        """The newest run folder of a side."""
        return RunFolder.open(max((self.folder / name).iterdir(), key=lambda path: path.stat().st_mtime))

    def stop(self) -> None:
        for one in self.running.values():
            one.stop()


@contextmanager
def running_shops(folder: Path, policy: str = "", absent: str = "", protection: str = "auto") -> Iterator[Shops]:
    """The federation; when it has ended, nothing of it runs."""
    shops = Shops(folder, policy, absent, protection)
    try:
        yield shops
    finally:
        shops.stop()
    left = [one for one in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(one.info["cmdline"] or ())]
    assert not left, f"still running: {left}"


def job_processes(kit: RunningKit) -> list[psutil.Process]:
    """The processes of jobs that a kit runs at present."""
    jobs = ("worker_process", "runner_process")
    return [one for one in kit.processes()[1:] if any(job in part for part in _command(one) for job in jobs)]


def _command(process: psutil.Process) -> list[str]:
    """The command of a process; nothing if it has just ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def wait_until(happens: Callable[[], bool]) -> None:
    end = time.monotonic() + 180
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.1)
