"""A kit's own start-up, in the foreground, and stopped with everything it has started."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from evenhand.errors import RunError
from evenhand.runtime.nvflare.kits import check_certificate, settle


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
        check_certificate(kit)
        settle(kit)
        self._kit = kit.absolute()
        # Who was killed could not see to its jobs.
        end_all(_left_behind(self._kit))
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
        end_all(self.processes(), patience)
        self._process.wait()
        # Those that it was starting just then, or that its own end had left without a parent.
        end_all(_left_behind(self._kit), patience)

    def processes(self) -> list[psutil.Process]:
        """The kit's own process, then all that it has started: one for each job it takes part in."""
        try:
            first = psutil.Process(self._process.pid)
            return [first, *first.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def end_all(processes: list[psutil.Process], patience: float = 10.0) -> None:
    """End processes, those that do not listen by force."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=patience)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=patience)


def _left_behind(kit: Path) -> list[psutil.Process]:
    """Processes of FLARE that work in this kit."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if any(word.startswith("nvflare.") for word in words) and str(kit) in words:
                found.append(process)
    return found
