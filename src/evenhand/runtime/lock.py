"""One training at a time in a run folder.

The lock is the kernel's, on the file `lock`, taken with filelock. It ends with the process that holds it, even if that
is killed. The file names the holder. Over NFS, Linux passes the lock on to the server, so it also holds between hosts,
unless the folder was mounted with ``local_lock``. There, and on file systems without locks, nothing keeps a second host
out; a warning says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import warnings
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout

from evenhand.errors import EvenhandWarning, RunError
from evenhand.runtime.files import PRIVATE_FILE, disk_error, make_folder

LOCK: Final = "lock"
_SECONDS: Final = 0.2
"""How long a training tries: a process that asks whether the folder is held takes the lock for that moment."""


@contextlib.contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold the folder, and make it if needed; if another process holds it, raise an error that names the process."""
    made = not path.exists()
    make_folder(path, private=True)
    lock = path / LOCK
    try:
        os.close(os.open(lock, os.O_RDWR | os.O_CREAT, PRIVATE_FILE))
    except OSError as error:
        raise disk_error(lock, error) from error
    held = _acquire(lock, _SECONDS)
    try:
        _warn_of_another_host(lock)
        _sign(lock)
        yield
    finally:
        with contextlib.suppress(OSError):
            lock.unlink()
        held.release()
        if made:
            # Succeeds only if the folder is empty.
            with contextlib.suppress(OSError):
                path.rmdir()


def check_not_held(path: Path) -> None:
    """Raise an error if another process holds the folder; ask before reading tables."""
    lock = path / LOCK
    if not os.access(lock, os.W_OK):
        return
    held = _acquire(lock, 0)
    with contextlib.suppress(OSError):
        if not lock.stat().st_size:
            # The holder removed its file just before; filelock made this one.
            lock.unlink()
    held.release()


def is_held(path: Path) -> bool:
    """Tell whether a training works in the folder."""
    try:
        check_not_held(path)
    except RunError:
        return True
    return False


def _acquire(lock: Path, seconds: float) -> FileLock:
    held = FileLock(lock, seconds, PRIVATE_FILE, poll_interval=0.01, fallback_to_soft=False, preserve_lock_file=True)
    try:
        held.acquire()
    except Timeout:
        raise RunError(
            f"{lock.parent} is being written by another training ({_describe(_holder(lock))}); wait for it to end, or "
            "choose another folder"
        ) from None
    except OSError as error:
        warnings.warn(
            f"{lock.parent} cannot be locked ({error}): make sure yourself that only one training writes there",
            EvenhandWarning,
            stacklevel=4,
        )
    return held


def _sign(lock: Path) -> None:
    since = datetime.now().astimezone().isoformat(timespec="seconds")
    try:
        lock.chmod(PRIVATE_FILE)
        lock.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}))
    except OSError as error:
        raise disk_error(lock, error) from error


def _holder(lock: Path) -> dict[str, Any]:
    """Read what the last holder wrote; it may have been killed before it wrote anything."""
    try:
        content = json.loads(lock.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _describe(holder: dict[str, Any]) -> str:
    if not holder:
        return "another process"
    return f"process {holder.get('pid')} on {holder.get('host')}, since {holder.get('since')}"


def _warn_of_another_host(lock: Path) -> None:
    """Warn if the last holder was on another host and did not remove its file: we cannot tell whether it still runs."""
    holder = _holder(lock)
    if holder and holder.get("host") != socket.gethostname():
        warnings.warn(
            f"{lock.parent} was last written by {_describe(holder)}, which did not end well; if it is still running "
            "there, stop one of the two",
            EvenhandWarning,
            stacklevel=4,
        )
