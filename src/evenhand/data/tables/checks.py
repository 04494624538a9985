"""Reading and writing the files of a public set: nothing unverified gets in, nothing half-written stays."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from evenhand.data.public.catalog import Packing, PublicFile
from evenhand.data.public.packed import DAMAGED, open_plain
from evenhand.errors import FetchError, ResourceError, no_room


def mismatch(file: PublicFile, content: bytes) -> str | None:
    """Say how `content` differs from what the catalog promises, or None when it does not."""
    if len(content) > file.size:
        # Readers stop one byte past the promised size, so there is no sum of the whole to show.
        return f"more than the expected {file.size:,} bytes"
    found = hashlib.sha256(content).hexdigest()
    return None if found == file.sha256 else f"SHA-256 {found}, expected {file.sha256}"


def packed_mismatch(packing: Packing, content: bytes) -> str | None:
    """Like :func:`mismatch`, for the compressed file as its publisher hands it out."""
    if len(content) > packing.limit:
        return f"more than {packing.limit:,} bytes"
    found = hashlib.sha256(content).hexdigest()
    return None if found == packing.sha256 else f"SHA-256 {found}, expected {packing.sha256}"


def check_file(file: PublicFile, path: Path) -> str | None:
    """Like :func:`mismatch`, for a plain or compressed file on disk."""
    try:
        if file.packing is not None and path.suffix == file.packing.suffix:
            with path.open("rb") as stream:
                if packed_mismatch(file.packing, stream.read(file.packing.limit + 1)) is None:
                    return None
        return mismatch(file, read_plain(path, file.size + 1))
    except DAMAGED as error:
        return f"cannot be read ({error or type(error).__name__}), expected SHA-256 {file.sha256}"


def read_plain(path: Path, limit: int = -1) -> bytes:
    """Read a file's uncompressed content, at most `limit` bytes of it."""
    with open_plain(path) as stream:
        return stream.read(limit)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that others see all of it or none: two processes may fill one cache."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
            os.replace(partial, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(partial)
            raise
    except OSError as error:
        if reason := no_room(error):
            raise ResourceError(f"cannot write {path}: {reason}. Make room, or choose another folder") from error
        raise FetchError(
            f"cannot write {path}: {error.strerror or error}; "
            "choose a writable cache folder with cache= or the variable EVENHAND_CACHE"
        ) from error
