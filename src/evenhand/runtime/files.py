"""Write files atomically and durably; if that fails, the error says why."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final, Literal

from evenhand.errors import EvenhandError, ResourceError, RunError, no_room

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
