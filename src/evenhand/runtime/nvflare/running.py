"""A kit's own start-up, in the foreground, and stopped with everything it has started."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from evenhand.errors import RunError
from evenhand.runtime.nvflare.kits import settle


class RunningKit:
    """A server or a party, as long as it runs.

    Parameters
    ----------
    settings
        Environment variables for it and for the processes of its jobs.
    log
        Where its output goes; None leaves it on the console.
    """

    def __init__(self, kit: Path, settings: Mapping[str, str], log: Path | None = None) -> None:
        start = kit / "startup" / "sub_start.sh"
        if not start.is_file():
            raise RunError(f"{kit} is no kit of a server or party: it has no startup/sub_start.sh")
        settle(kit)
        # The kit calls python3: it is to be the one that this package is installed for.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        with contextlib.ExitStack() as stack:
            out = None if log is None else stack.enter_context(log.open("ab"))
            self._process = subprocess.Popen(
                ["bash", str(start.absolute()), "--once"],
                cwd=kit,
                env={**os.environ, **settings, "PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT if out else None,
            )

    def wait(self) -> int:
        return self._process.wait()

    def stop(self, patience: float = 10.0) -> None:
        """End it and all it has started; jobs have sessions of their own, and would go on."""
        family = self.processes()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        end = time.monotonic() + patience
        while any(process.is_running() for process in family) and time.monotonic() < end:
            family += [one for one in self.processes() if one not in family]
            psutil.wait_procs(family, timeout=0.2)
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()

    def processes(self) -> list[psutil.Process]:
        """The kit's own process, then all that it has started: one for each job it takes part in."""
        try:
            first = psutil.Process(self._process.pid)
            return [first, *first.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
