"""Files that are there whole or not at all and outlast a power cut; if they cannot be written, an error says why."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final, Literal

from evenhand.errors import EvenhandError, ResourceError, RunError, no_room

PARTIAL: Final = ".partial"
"""How the name of a file or folder ends while it is being written; what a kill leaves under such a name is no loss."""
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700


def write_bytes(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a file: whoever looks finds the old one or the whole new one, also after a power cut.

    Parameters
    ----------
    private
        Nobody but its owner may read the file, whatever the umask says.
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
    """A matplotlib figure in the format that the file's name ends with, by default PNG."""
    stream = io.BytesIO()
    figure.savefig(stream, dpi=dpi, format=path.suffix.removeprefix(".") or "png")
    write_bytes(path, stream.getvalue())


def write_new(path: Path, content: bytes, *, private: bool = True) -> None:
    """Write a file that nobody looks for yet, and wait until the disk has it."""
    with open_private(path, "wb") if private else path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def open_private(path: Path, mode: Literal["wb", "ab"]) -> Iterator[IO[bytes]]:
    """Open a file to write that nobody but its owner may read, whatever the umask says."""
    with open(path, mode, opener=lambda name, flags: os.open(name, flags, PRIVATE_FILE)) as file:
        # The umask takes rights away, and a file that was there has those it had.
        path.chmod(PRIVATE_FILE)
        yield file


def make_folder(path: Path, *, private: bool = False) -> None:
    """Make a folder, or take the one that is there.

    Parameters
    ----------
    private
        Let nobody but its owner in, whatever the umask says.
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
    """Wait until the disk has the names in a folder: without it a power cut may take a file that was renamed."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def disk_error(path: Path, error: OSError) -> EvenhandError:
    """What to raise where the operating system refused to write."""
    if reason := no_room(error):
        return ResourceError(f"cannot write {path}: {reason}. Make room; a run that was begun goes on with --resume")
    return RunError(f"cannot write {path}: {error.strerror or error}")
