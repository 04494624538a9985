"""The manifest of a run: its id, and the owner, size and SHA-256 digest of every file.

A manifest is written atomically after the files it lists, and has a digest of itself. Reading a file through it gives
the bytes that the run wrote, or an error that names the file.

History and transcript are append-only files of lines. The manifest covers the lines that were complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from evenhand.errors import RunError
from evenhand.runtime.files import disk_error, open_private, sync_folder, write_bytes

FORMAT: Final = 2
"""Format of run folders."""
MANIFEST: Final = "manifest.json"
OF_RUN: Final = "the run"
"""The owner of files that belong to no participant."""
Status = Literal["running", "finished", "checkpoint"]


class FileEntry(NamedTuple):
    """Owner, size and digest of a file."""

    owner: str
    bytes: int
    sha256: str


def entry(owner: str, content: bytes) -> FileEntry:
    return FileEntry(owner, len(content), hashlib.sha256(content).hexdigest())


@dataclass
class Manifest:
    """The files of a run or of a checkpoint, by their path inside the folder.

    `started` is the day a run began, as in 2026-01-31; checkpoints have none.
    `records` are files outside a checkpoint's folder of which it needs the beginning; an entry has its size.
    """

    run: str
    evenhand: str
    status: Status
    files: dict[str, FileEntry] = field(default_factory=dict)
    records: dict[str, FileEntry] = field(default_factory=dict)
    started: str = ""

    def to_bytes(self) -> bytes:
        content: dict[str, Any] = {"format": FORMAT, **asdict(self)}
        for kind in ("files", "records"):
            content[kind] = {name: value._asdict() for name, value in getattr(self, kind).items()}
        return json.dumps(content | {"digest": _digest(content)}, indent=1).encode()

    def write(self, folder: Path) -> None:
        write_bytes(folder / MANIFEST, self.to_bytes(), private=True)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        path = folder / MANIFEST
        content = read_json(path)
        if content.pop("digest", None) != _digest(content):
            raise RunError(f"{path} was changed: it does not match its own digest; {RESTORE}")
        if (found := content.pop("format", None)) != FORMAT:
            raise RunError(
                f"{path} has format {found!r}; this evenhand reads format {FORMAT}: use the one that wrote the folder"
            )
        try:
            for kind in ("files", "records"):
                content[kind] = {name: _checked(FileEntry(**value)) for name, value in content[kind].items()}
            return cls(**content)
        except (AttributeError, KeyError, TypeError) as error:
            raise RunError(f"{path} is not a valid file of a run ({error!r}); {RESTORE}") from error

    def content(self, folder: Path, name: str) -> bytes:
        """Read a file; raise an error if its bytes are not those that the run wrote."""
        path = folder / name
        if name not in self.files:
            raise RunError(f"{path} is not among the files of this run ({folder / MANIFEST}); {RESTORE}")
        found, known = read_bytes(path), self.files[name]
        if entry(known.owner, found) == known:
            return found
        holds = [other for other, its in self.files.items() if entry(its.owner, found) == its]
        what = f"it holds {holds[0]}" if holds else f"{len(found):,} bytes, {known.bytes:,} were written"
        raise RunError(f"{path} differs from what the run wrote for {known.owner} ({what}); {RESTORE}")


def _checked(value: FileEntry) -> FileEntry:
    if not (isinstance(value.owner, str) and type(value.bytes) is int and isinstance(value.sha256, str)):
        raise TypeError(f"{value} is no entry")
    return value


RESTORE: Final = "put it back from a copy of this folder, or train again in another"


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise RunError(f"{path} is missing; {RESTORE}") from error
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error


def read_json(path: Path) -> dict[str, Any]:
    return parse_json(path, read_bytes(path))


def parse_json(path: Path, text: bytes) -> dict[str, Any]:
    """Parse a JSON object; deeply nested brackets raise a RecursionError, which is handled."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is not valid JSON ({error}); {RESTORE}") from error
    if not isinstance(content, dict):
        raise RunError(f"{path} is not a valid file of a run; {RESTORE}")
    return content


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Record:
    """An append-only file. A new record ignores old content; `resume_from` continues an existing one."""

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
                f"{self.path} has {len(content):,} bytes, but the checkpoint needs {known.bytes:,}; the "
                "folder was changed"
            )
        if entry(OF_RUN, content[: known.bytes]) != known:
            raise RunError(f"{self.path} has changed since the checkpoint")
        return rows(self.path, content[: known.bytes])

    def resume_from(self, size: int) -> None:
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
