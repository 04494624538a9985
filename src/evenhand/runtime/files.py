"""Write files atomically and durably; if that fails, the error says why.

A lock lets one process at a time write to a run folder.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import warnings
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final, Literal

from filelock import FileLock, Timeout

from evenhand.errors import EvenhandError, EvenhandWarning, ResourceError, RunError, no_room

PARTIAL: Final = ".partial"
"""Suffix of a file or folder that is being written; leftovers of a killed run with this suffix can be removed."""
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700


def write_bytes(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a file atomically: readers find the old file or the complete new one, also after a power cut.

    Parameters
    ----------
    private
        Let only the owner read the file, whatever the umask.
    """
    temporary = path.with_name(path.name + PARTIAL)
    try:
        write_new(temporary, content, private=private)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise disk_error(path, error) from error


def write_figure(path: Path, figure: Any, dpi: int = 150) -> None:
    """Write a matplotlib figure in the format of the file's suffix, by default PNG."""
    stream = io.BytesIO()
    figure.savefig(stream, dpi=dpi, format=path.suffix.removeprefix(".") or "png")
    write_bytes(path, stream.getvalue())


def write_new(path: Path, content: bytes, *, private: bool = True) -> None:
    """Write a file that no process reads yet, and wait until it is on disk."""
    with open_private(path, "wb") if private else path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def open_private(path: Path, mode: Literal["wb", "ab"]) -> Iterator[IO[bytes]]:
    """Open a file for writing that only its owner may read, whatever the umask."""
    with open(path, mode, opener=lambda name, flags: os.open(name, flags, PRIVATE_FILE)) as file:
        # The umask removes permissions, and an existing file keeps its own.
        path.chmod(PRIVATE_FILE)
        yield file


def make_folder(path: Path, *, private: bool = False) -> None:
    """Make a folder unless it exists.

    Parameters
    ----------
    private
        Let only the owner in, whatever the umask.
    """
    try:
        new = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
        if private:
            path.chmod(PRIVATE_FOLDER)
        if new:
            sync_folder(path.parent)
    except OSError as error:
        if no_room(error):
            raise disk_error(path, error) from error
        raise RunError(f"cannot make the folder {path}: {error.strerror}; choose another") from error


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on disk: otherwise a power cut may undo a rename."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def disk_error(path: Path, error: OSError) -> EvenhandError:
    """Return the error to raise when the operating system refuses to write."""
    if reason := no_room(error):
        return ResourceError(f"cannot write {path}: {reason}. Make room, then resume the run with --resume")
    return RunError(f"cannot write {path}: {error.strerror or error}")


LOCK: Final = "lock"
_BUSY: Final = "{folder} is being written by another training ({holder}); wait for it to end, or choose another folder"
_SECONDS: Final = 0.2
"""How long a training tries: a process that asks whether the folder is held takes the lock for that moment."""


@contextlib.contextmanager
def hold(path: Path, busy: str = _BUSY) -> Iterator[None]:
    """Hold the folder, and make it if needed; if another process holds it, raise an error that names the process.

    Parameters
    ----------
    busy
        What the error says, with `{folder}` and `{holder}`.
    """
    made = not path.exists()
    make_folder(path, private=True)
    lock = path / LOCK
    try:
        os.close(os.open(lock, os.O_RDWR | os.O_CREAT, PRIVATE_FILE))
    except OSError as error:
        raise disk_error(lock, error) from error
    held = _acquire(lock, _SECONDS, busy)
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


def _acquire(lock: Path, seconds: float, busy: str = _BUSY) -> FileLock:
    held = FileLock(lock, seconds, PRIVATE_FILE, poll_interval=0.01, fallback_to_soft=False, preserve_lock_file=True)
    try:
        held.acquire()
    except Timeout:
        raise RunError(busy.format(folder=lock.parent, holder=_describe(_holder(lock)))) from None
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
