"""One training at a time in a run folder.

The lock is the kernel's (`flock` on the file `lock`): it ends with the process that holds it, however that ends, and
the file says who that is. Over NFS Linux passes the lock on to the server, so that it holds between machines as well,
unless the folder was mounted with ``local_lock``: then, and wherever a file system knows no locks, nothing keeps a
second machine out, and a warning tells what is known.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
import warnings
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from evenhand.errors import EvenhandWarning, RunError
from evenhand.runtime.files import PRIVATE_FILE, disk_error, make_folder

if sys.platform == "win32":

    def _flock(descriptor: int) -> None:
        raise OSError("this operating system has no flock")

else:
    import fcntl

    def _flock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


LOCK: Final = "lock"
_LOOKS: Final = 20
"""Whoever asks who holds a folder holds it for that moment; a training looks again, for a fifth of a second in all."""


@contextlib.contextmanager
def hold(path: Path) -> Iterator[None]:
    """Make the folder if need be and hold it; refuse if another process does, and say which."""
    made = not path.exists()
    make_folder(path, private=True)
    descriptor = _take(path / LOCK)
    try:
        _tell_of_another_host(path / LOCK)
        _sign(path / LOCK, descriptor)
        yield
    finally:
        with contextlib.suppress(OSError):
            (path / LOCK).unlink()
        os.close(descriptor)
        if made:
            # Only if it is empty: nothing came of it.
            with contextlib.suppress(OSError):
                path.rmdir()


def check_not_held(path: Path) -> None:
    """Refuse a folder that another process holds; worth asking before tables are read."""
    try:
        descriptor = os.open(path / LOCK, os.O_RDWR)
    except OSError:
        return
    try:
        if not _locked(descriptor, path / LOCK):
            raise _held(path / LOCK)
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether a training works in the folder."""
    try:
        check_not_held(path)
    except RunError:
        return True
    return False


def _take(lock: Path) -> int:
    for _ in range(_LOOKS):
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        except OSError as error:
            raise disk_error(lock, error) from error
        if _locked(descriptor, lock) and _is_at(descriptor, lock):
            return descriptor
        os.close(descriptor)
        time.sleep(0.01)
    raise _held(lock)


def _locked(descriptor: int, lock: Path) -> bool:
    try:
        _flock(descriptor)
    except BlockingIOError:
        return False
    except OSError as error:
        warnings.warn(
            f"{lock.parent} cannot be locked ({error}): see to it yourself that only one training writes there",
            EvenhandWarning,
            stacklevel=2,
        )
    return True


def _is_at(descriptor: int, lock: Path) -> bool:
    """Whether the file that was locked is still the one of that name: who held it before has removed it at its end."""
    try:
        return os.path.samestat(os.fstat(descriptor), lock.stat())
    except OSError:
        return False


def _sign(lock: Path, descriptor: int) -> None:
    since = datetime.now().astimezone().isoformat(timespec="seconds")
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
    try:
        lock.chmod(PRIVATE_FILE)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps(holder).encode())
    except OSError as error:
        raise disk_error(lock, error) from error


def _holder(lock: Path) -> dict[str, Any]:
    """What the last holder has written; nothing if it was killed before it could."""
    try:
        content = json.loads(lock.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _words(holder: dict[str, Any]) -> str:
    if not holder:
        return "another process"
    return f"process {holder.get('pid')} on {holder.get('host')}, since {holder.get('since')}"


def _held(lock: Path) -> RunError:
    return RunError(
        f"{lock.parent} is being written by another training ({_words(_holder(lock))}); wait for it to end, or choose "
        "another folder"
    )


def _tell_of_another_host(lock: Path) -> None:
    """A holder that ended well has removed its file; one that was killed here is gone; of other machines who knows."""
    holder = _holder(lock)
    if holder and holder.get("host") != socket.gethostname():
        warnings.warn(
            f"{lock.parent} was last written by {_words(holder)}, which did not end well; if it is still running "
            "there, stop one of the two",
            EvenhandWarning,
            stacklevel=4,
        )
