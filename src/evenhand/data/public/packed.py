"""Files that may be compressed: plain, gzip, bzip2 or xz, told by the last ending of the name."""

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


def open_for_writing(path: Path) -> IO[bytes]:
    """Open a file for writing, compressed if its name ends so."""
    opener = _OPENERS.get(path.suffix.lower())
    return path.open("wb") if opener is None else opener(path, "wb")


def plain_suffix(path: Path) -> str:
    """The ending that tells the format: ``.csv`` of ``table.csv.gz``."""
    name = Path(path.stem) if path.suffix.lower() in SUFFIXES else path
    return name.suffix.lower()
