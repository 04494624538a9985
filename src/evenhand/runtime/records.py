"""Append-only files of lines: history and transcript.

A record knows its length and the digest of its content so far. A checkpoint has both. A resumed run checks that the
file begins with the same content, and truncates what was written after the checkpoint.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evenhand.errors import RunError
from evenhand.runtime.files import disk_error, open_private, sync_folder
from evenhand.runtime.manifest import OF_RUN, FileEntry, entry, parse_json, read_bytes


class Record:
    """An append-only file. A new record is empty, whatever the file holds; `go_on` continues an existing one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._bytes = 0
        self._digest = hashlib.sha256()

    @property
    def entry(self) -> FileEntry:
        """Owner, size and digest of what was written so far."""
        return FileEntry(OF_RUN, self._bytes, self._digest.hexdigest())

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write lines and wait until they are on disk; if that fails, none is written."""
        content = "".join(map(_line, rows)).encode()
        new = not self.path.exists()
        try:
            with open_private(self.path, "ab") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if new:
                sync_folder(self.path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.truncate(self.path, self._bytes)
            raise disk_error(self.path, error) from error
        self._bytes += len(content)
        self._digest.update(content)

    def first(self, known: FileEntry) -> list[dict[str, Any]]:
        """Return the rows that a checkpoint has; raise an error if the file does not begin with them."""
        content = read_bytes(self.path) if known.bytes else b""
        if len(content) < known.bytes:
            raise RunError(
                f"{self.path} has {len(content):,} bytes, the checkpoint needs {known.bytes:,}; the folder was changed"
            )
        if entry(OF_RUN, content[: known.bytes]) != known:
            raise RunError(f"{self.path} does not begin as the checkpoint found it; the folder was changed")
        return rows(self.path, content[: known.bytes])

    def go_on(self, size: int) -> None:
        """Truncate the file to the size at a checkpoint, after `first` has checked its content."""
        content = b""
        if self.path.exists():
            content = read_bytes(self.path)[:size]
            try:
                # Truncated, not written again: a full disk has no room for a second copy.
                os.truncate(self.path, size)
            except OSError as error:
                raise disk_error(self.path, error) from error
        self._bytes, self._digest = len(content), hashlib.sha256(content)


def rows(path: Path, content: bytes) -> list[dict[str, Any]]:
    return [_with_nan(parse_json(path, line)) for line in content.splitlines()]


def _line(row: Mapping[str, Any]) -> str:
    """Write one line of JSON, which has no NaN: a missing value is null."""
    plain = {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in row.items()}
    return json.dumps(plain, ensure_ascii=False) + "\n"


def _with_nan(row: dict[str, Any]) -> dict[str, Any]:
    return {key: math.nan if value is None else value for key, value in row.items()}
