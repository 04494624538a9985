"""Delete what a site has kept for long enough: run folders with models, logs of jobs, the server's store of jobs."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from evenhand.errors import InputError
from evenhand.runtime.files import is_held
from evenhand.runtime.folder import is_run
from evenhand.runtime.nvflare.quiet import LOGS

_JOB: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Name of FLARE's folder of a job."""
_UNITS: Final = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


def age_of(text: str) -> float:
    """Return an age such as ``90d`` in seconds."""
    found = re.fullmatch(r"(\d{1,6})([hdw])", text)
    if found is None:
        raise InputError(f"--keep {text!r} is not an age; write hours, days or weeks, such as 12h, 90d or 4w")
    return int(found[1]) * _UNITS[found[2]]


def old_runs(runs: Path, keep: float) -> Iterator[Path]:
    """Yield run folders in which nothing was written for longer, and on which no process works."""
    for path in _folders(runs):
        if is_run(path) and _silent_for(path) > keep and not is_held(path):
            yield path


def old_jobs(store: Path, keep: float) -> Iterator[Path]:
    """Yield jobs of a server's store that ended longer ago; those that wait or run are kept."""
    for path in _folders(store / "jobs" if (store / "jobs").is_dir() else store):
        meta = path / "meta"
        try:
            status = str(json.loads(meta.read_text(encoding="utf-8")).get("status", ""))
        except (OSError, ValueError, AttributeError):
            continue
        if status.startswith("FINISHED") and _silent_for(path) > keep:
            yield path


def old_logs(kit: Path, keep: float) -> Iterator[Path]:
    """Yield a kit's logs of jobs in which nothing was written for longer, and for a day: a job in progress writes."""
    for place in (kit, kit / LOGS):
        for path in _folders(place) if place == kit or place.is_dir() else ():
            if _JOB.fullmatch(path.name) and _silent_for(path) > max(keep, _UNITS["d"]):
                yield path


def remove(path: Path) -> None:
    """Delete a run, a job or its logs."""
    shutil.rmtree(path)


def _folders(place: Path) -> list[Path]:
    if not place.is_dir():
        raise InputError(f"{place} is not a folder")
    return sorted(path for path in place.iterdir() if path.is_dir() and not path.is_symlink())


def _silent_for(path: Path) -> float:
    """Return the seconds since anything in a folder was written; what links lead to is not in it."""
    return time.time() - max(one.lstat().st_mtime for one in [path, *path.rglob("*")])
