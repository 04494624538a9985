"""Write checkpoints to disk: numbered folders with a state file for each role and a manifest, complete or absent.

The last two are kept. If the newest is damaged, the run resumes from the one before it, with a warning.

A state file holds arrays as safetensors and everything else as JSON in the header. There is no pickle.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from evenhand.errors import EvenhandWarning, RunError
from evenhand.protocol.state import State
from evenhand.runtime.files import PARTIAL, PRIVATE_FOLDER, disk_error, make_folder, sync_folder, write_new
from evenhand.runtime.manifest import MANIFEST, FileEntry, Manifest, Record, entry


class Mark(NamedTuple):
    """The id of the run, and the party or role that owns a state."""

    run: str
    owner: str


def state_bytes(state: State, mark: Mark | None = None) -> bytes:
    arrays = {name: np.asarray(value, order="C") for name, value in state.items() if isinstance(value, np.ndarray)}
    others = {name: _plain(value) for name, value in state.items() if not isinstance(value, np.ndarray)}
    text = json.dumps(others if mark is None else [mark, others])
    # One metadata entry: safetensors writes several in any order, and equal states should give equal files.
    content: bytes = save(arrays, metadata={"state": _sum(text, arrays) + text})
    return content


def state_from(content: bytes, path: Path, mark: Mark | None = None) -> State:
    """Read a state; `path` names its file in messages."""
    try:
        head = _metadata(content)["state"]
        arrays = load(content)
        total, text = head[:_DIGITS], head[_DIGITS:]
        if total != _sum(text, arrays):
            raise RunError(f"{path} was damaged: its content does not match its checksum")
        found = json.loads(text)
        others: State
        written, others = (Mark(*found[0]), found[1]) if isinstance(found, list) else (None, found)
        state: State = {**others, **arrays}
    except (SafetensorError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise RunError(f"{path} is not a readable state file ({error})") from error
    if written != mark:
        raise RunError(f"{path} belongs to {_words(written)}, not to {_words(mark)}; the folder was changed")
    return state


_DIGITS = 32


def _metadata(content: bytes) -> dict[str, Any]:
    """Read a safetensors header: its length in eight bytes, then JSON."""
    header: dict[str, Any] = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    metadata: dict[str, Any] = header["__metadata__"]
    return metadata


def _sum(text: str, arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """Return a checksum, so that a flipped bit is detected."""
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    for name in sorted(arrays):
        digest.update(name.encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


def _words(mark: Mark | None) -> str:
    return "a run that does not say which" if mark is None else f"{mark.owner} of run {mark.run}"


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


_RUNTIME: Final = "runtime.safetensors"
_KEPT: Final = 2


class Checkpoint(NamedTuple):
    """State to resume a run from: states by role (key ``""`` is the runtime's) and the rows recorded until then."""

    number: int
    states: dict[str, State]
    records: dict[str, FileEntry]
    rows: dict[str, list[dict[str, Any]]]


class CheckpointFolder:
    """Checkpoints of one run."""

    def __init__(self, path: Path, run: str, evenhand: str) -> None:
        self.path = path
        self._run = run
        self._evenhand = evenhand

    def save(self, states: Mapping[str, State], records: Mapping[str, FileEntry], number: int | None = None) -> None:
        """Write a new checkpoint, complete or not at all, and remove all but the one before it.

        `number` is the number that all participants have agreed on; by default it is the next one.
        """
        older = self._complete()
        name = f"{1 + (int(older[-1].name) if older else 0) if number is None else number:08d}"
        partial = self.path / (name + PARTIAL)
        manifest = Manifest(self._run, self._evenhand, "checkpoint", records=dict(records))
        shutil.rmtree(partial, ignore_errors=True)
        try:
            make_folder(self.path, private=True)
            partial.mkdir(mode=PRIVATE_FOLDER)
            partial.chmod(PRIVATE_FOLDER)
            for role, state in states.items():
                content = state_bytes(state, self._mark(role))
                manifest.files[_file(role)] = entry(_owner(role), content)
                write_new(partial / _file(role), content)
            write_new(partial / MANIFEST, manifest.to_bytes())
            sync_folder(partial)
            os.replace(partial, self.path / name)
            sync_folder(self.path)
        except OSError as error:
            shutil.rmtree(partial, ignore_errors=True)
            raise disk_error(partial, error) from error
        self._remove(older[: -_KEPT + 1])

    def load(self, records: Mapping[str, Record]) -> Checkpoint | None:
        """Return the newest complete checkpoint with its records, or None if there is no checkpoint."""
        damage: list[str] = []
        for path in reversed(self._complete()):
            try:
                found = self._read(path, records)
            except RunError as error:
                damage.append(str(error))
                continue
            if damage:
                warnings.warn(
                    f"the newest checkpoint cannot be used, training goes on from the one before it: {damage[0]}",
                    EvenhandWarning,
                    stacklevel=2,
                )
            return found
        if damage:
            raise RunError(
                f"no checkpoint can be resumed from: {'; '.join(damage)}. Restore the folder from a copy, or remove "
                f"{self.path} to start this run again"
            )
        return None

    def whole(self, records: Mapping[str, Record]) -> dict[int, Checkpoint]:
        """Return all checkpoints from which a run can resume, by number."""
        found = {}
        for path in self._complete():
            with contextlib.suppress(RunError):
                found[int(path.name)] = self._read(path, records)
        return found

    def clean(self, newest: int | None = None) -> None:
        """Remove partial files of killed processes and, if a number is given, newer incomplete checkpoints."""
        for path in self.path.glob(f"*{PARTIAL}"):
            shutil.rmtree(path, ignore_errors=True)
        later = [path for path in self._complete() if newest is not None and int(path.name) > newest]
        self._remove([*later, *self._complete()[:-_KEPT]])

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def _read(self, path: Path, records: Mapping[str, Record]) -> Checkpoint:
        manifest = Manifest.read(path)
        if manifest.run != self._run or manifest.status != "checkpoint":
            raise RunError(f"{path} is a checkpoint of run {manifest.run}, not of run {self._run}")
        if manifest.records.keys() != records.keys():
            raise RunError(f"{path / MANIFEST} is not a valid checkpoint manifest")
        states = {
            role: state_from(manifest.content(path, name), path / name, self._mark(role))
            for name, role in ((name, _role(name)) for name in manifest.files)
        }
        rows = {name: record.first(manifest.records[name]) for name, record in records.items()}
        return Checkpoint(int(path.name), states, manifest.records, rows)

    def _mark(self, role: str) -> Mark:
        return Mark(self._run, _owner(role))

    def _complete(self) -> list[Path]:
        return sorted(_numbered(self.path))

    def _remove(self, paths: list[Path]) -> None:
        for path in paths:
            # Renamed first, so that a killed process leaves nothing that looks complete.
            doomed = path.with_name(path.name + PARTIAL)
            with contextlib.suppress(OSError):
                os.replace(path, doomed)
            shutil.rmtree(doomed, ignore_errors=True)


def _numbered(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (path for path in folder.iterdir() if path.name.isdecimal())


def _file(role: str) -> str:
    return f"role {role}.safetensors" if role else _RUNTIME


def _role(file: str) -> str:
    return file.removeprefix("role ").removesuffix(".safetensors") if file != _RUNTIME else ""


def _owner(role: str) -> str:
    return f"role {role}" if role else "the runtime"
