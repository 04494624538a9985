"""Open files by the endings of their names: plain, gzip, bzip2 or xz."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from pathlib import Path
from typing import IO, Any, Final

SUFFIXES: Final = (".gz", ".bz2", ".xz")
# What reading a damaged file of any of these kinds may raise.
DAMAGED: Final = (OSError, EOFError, zlib.error, lzma.LZMAError)

_OPENERS: Final[dict[str, Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def open_plain(path: Path) -> IO[bytes]:
    """Open a file for reading its uncompressed content."""
    opener = _OPENERS.get(path.suffix.lower())
    return path.open("rb") if opener is None else opener(path, "rb")


def read_plain(path: Path, limit: int = -1) -> bytes:
    """Read a file's uncompressed content, at most `limit` bytes of it."""
    with open_plain(path) as stream:
        return stream.read(limit)


def open_for_writing(path: Path) -> IO[bytes]:
    """Open a file for writing, compressed if its name has a suffix of compressed files."""
    opener = _OPENERS.get(path.suffix.lower())
    return path.open("wb") if opener is None else opener(path, "wb")
