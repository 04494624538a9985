"""Run a kit's start-up script in the foreground, and stop it with all processes that it has started."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil

from evenhand.errors import RunError
from evenhand.runtime.files import hold
from evenhand.runtime.nvflare.certificates import check_certificate
from evenhand.runtime.nvflare.kits import DRIVERS, settle
from evenhand.runtime.nvflare.quiet import quieten

_BUSY: Final = "the kit {folder} is in use by {holder}; stop it first. Each kit runs once"


class RunningKit:
    """Running server or party.

    Parameters
    ----------
    settings
        Environment variables for it and for the processes of its jobs.
    log
        File for its output; None leaves it on the console.
    store
        Folder for the jobs of a server; by default its kit.
    """

    def __init__(
        self, kit: Path, settings: Mapping[str, str], log: Path | None = None, store: Path | None = None
    ) -> None:
        start = kit / "startup" / "sub_start.sh"
        if not start.is_file():
            raise RunError(f"{kit} is not the kit of a server or party: it has no startup/sub_start.sh")
        check_certificate(kit)
        self._kit = kit.absolute()
        self._held = contextlib.ExitStack()
        self._held.enter_context(hold(self._kit, _BUSY))
        try:
            settle(kit, store)
            quieten(kit)
            self._process = self._start(kit, start, settings, log)
        except BaseException:
            self._held.close()
            raise

    def _start(self, kit: Path, start: Path, settings: Mapping[str, str], log: Path | None) -> subprocess.Popen[bytes]:
        # A killed process could not end its jobs. No other process holds the kit.
        end_all(_left_behind(self._kit))
        # The kit calls python3, which must be the interpreter of this environment.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        with contextlib.ExitStack() as stack:
            out = None if log is None else stack.enter_context(log.open("ab"))
            return subprocess.Popen(
                ["bash", str(start.absolute()), "--once"],
                cwd=kit,
                env={**os.environ, **settings, "PATH": path, "NVFLARE_COMM_DRIVER_PATH": str(DRIVERS)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT if out else None,
            )

    def wait(self) -> int:
        code = self._process.wait()
        self._held.close()
        return code

    def stop(self, patience: float = 10.0) -> None:
        """End it and all processes that it has started; jobs have their own sessions and would continue."""
        end_all(self.processes(), patience)
        self._process.wait()
        # Processes that it was just starting, or that its own end left without a parent.
        end_all(_left_behind(self._kit), patience)
        self._held.close()

    def processes(self) -> list[psutil.Process]:
        """Return the kit's own process, then all that it has started: one for each of its jobs."""
        # One that has ended is still listed until its end is noticed.
        self._process.poll()
        try:
            first = psutil.Process(self._process.pid)
            return [first, *first.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def end_all(processes: list[psutil.Process], patience: float = 10.0) -> None:
    """End processes, by force if they do not react."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=patience)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=patience)


def _left_behind(kit: Path) -> list[psutil.Process]:
    """Return FLARE's processes that work in this kit."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if any(word.startswith("nvflare.") for word in words) and str(kit) in words:
                found.append(process)
    return found
