"""The run folder: all files of a run. A kill at any point loses nothing that was complete.

run.toml              the job, versions and the run's id
metrics.jsonl         one line for each round
transcript.jsonl      one line for each message
parties/<name>/       the party's model: weights.safetensors, encoder.json; for trees, trees.txt and splits.txt in
                      LightGBM's format; standard errors of its curves in bands.json
server/<name>/        between organisations, if weights stay in shares: the server's share of a party's weights
model/                horizontal runs: the model that all clients share, in the same two files
checkpoints/          state to resume from, until the run has finished
result.json           certificate and measured quality, once the run has finished
manifest.json         whether the run has finished, and the owner, size and digest of every file
lock                  the process that is writing here
"""

from __future__ import annotations

import json
import secrets
import shutil
import tomllib
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import tomli_w

from evenhand.errors import RunError
from evenhand.protocol.roles import Report
from evenhand.protocol.state import State
from evenhand.protocol.transcript import Entry
from evenhand.runtime.checkpointfiles import Checkpoint, CheckpointFolder, Mark, state_bytes, state_from
from evenhand.runtime.files import LOCK, PARTIAL, make_folder, write_bytes
from evenhand.runtime.manifest import (
    FORMAT,
    MANIFEST,
    OF_RUN,
    RESTORE,
    FileEntry,
    Manifest,
    Record,
    entry,
    parse_json,
    read_bytes,
    rows,
)

DESCRIPTION: Final = "run.toml"
_RESULT: Final = "result.json"
_ARRAYS: Final = ("weights", "rows", "share")
"""Parts of a model that are states with arrays."""
_METRICS, TRANSCRIPT = "metrics.jsonl", "transcript.jsonl"
_NOT_OF_THE_JOB: Final = {"evenhand", "base", "format", "run"}
_LEFT_BY_A_KILL_AT_THE_START: Final = {LOCK, MANIFEST, MANIFEST + PARTIAL, DESCRIPTION + PARTIAL}


class RunFolder:
    """Read and write one run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records = {name: Record(path / name) for name in (_METRICS, TRANSCRIPT)}
        self._known: Manifest | None = None

    @classmethod
    def create(cls, path: Path, description: Mapping[str, Any]) -> RunFolder:
        """Create a folder with its description; never overwrite an existing one."""
        check_free(path, "resume it (--resume), or choose another folder")
        make_folder(path, private=True)
        folder = cls(path)
        run, evenhand = secrets.token_hex(16), version("evenhand")
        content = tomli_w.dumps({"format": FORMAT, "run": run, "evenhand": evenhand, **description}).encode()
        folder._known = Manifest(
            run, evenhand, "running", {DESCRIPTION: entry(OF_RUN, content)}, started=f"{datetime.now():%Y-%m-%d}"
        )
        # Write the description last: it makes the folder a run folder.
        folder._known.write(path)
        write_bytes(path / DESCRIPTION, content, private=True)
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        if not is_run(path):
            missing = f"it has no {DESCRIPTION}" if path.exists() else "it does not exist"
            raise RunError(f"{path} is not a run folder: {missing}")
        return cls(path)

    # -- description and manifest

    @property
    def _manifest(self) -> Manifest:
        """Return the manifest; read it on first use."""
        if self._known is None:
            self._known = Manifest.read(self.path)
        return self._known

    def _content(self, name: str) -> bytes:
        return self._manifest.content(self.path, name)

    @property
    def started(self) -> str:
        """The day the run began."""
        return self._manifest.started

    @property
    def description(self) -> dict[str, Any]:
        return self._parsed(self._content(DESCRIPTION))

    def _parsed(self, content: bytes) -> dict[str, Any]:
        path = self.path / DESCRIPTION
        try:
            return tomllib.loads(content.decode())
        except (ValueError, RecursionError) as error:
            raise RunError(f"{path} cannot be read: {error}; {RESTORE}") from error

    def describes(self, content: Mapping[str, Any]) -> bool:
        """Return whether the description has this content, after a round trip through TOML."""
        found = self.description
        return {key: value for key, value in found.items() if key not in _NOT_OF_THE_JOB} == dict(content)

    @property
    def version(self) -> str:
        """The version of evenhand that wrote the folder."""
        return _text(self.description, "evenhand", self.path / DESCRIPTION)

    @property
    def split(self) -> str | None:
        """The split that the run's job states, if it does."""
        job = self.description.get("job", {})
        return job.get("split") if isinstance(job, dict) else None

    @property
    def files(self) -> dict[str, FileEntry]:
        """Owner, size and digest of each file."""
        return dict(self._manifest.files)

    @property
    def base(self) -> Path:
        """Folder that relative paths in the run's job start from."""
        return Path(_text(self.description, "base", self.path / DESCRIPTION))

    @property
    def finished(self) -> bool:
        return self._manifest.status == "finished"

    def check(self) -> None:
        """Read every file of the run and compare it with its digest in the manifest."""
        for name in self._manifest.files:
            self._content(name)

    # -- during the run

    @property
    def _checkpoints(self) -> CheckpointFolder:
        return CheckpointFolder(self.path / "checkpoints", self._manifest.run, self._manifest.evenhand)

    def append(self, history: Iterable[Report], transcript: Iterable[Entry]) -> None:
        self._records[_METRICS].append(history)
        self._records[TRANSCRIPT].append(sent._asdict() for sent in transcript)

    def checkpoint(self, states: Mapping[str, State], number: int | None = None) -> None:
        self._checkpoints.save(states, {name: record.entry for name, record in self._records.items()}, number)

    def last_checkpoint(self) -> Checkpoint | None:
        return self._checkpoints.load(self._records)

    def whole_checkpoints(self) -> dict[int, Checkpoint]:
        """Numbers of the usable checkpoints; in a federation all participants must have the same one."""
        return self._checkpoints.whole(self._records)

    def resume_from(self, checkpoint: Checkpoint | None) -> tuple[list[Report], list[Entry]]:
        """Remove what was written after a checkpoint (everything if there is none), and return the rest."""
        found = {name: [] for name in self._records} if checkpoint is None else checkpoint.rows
        try:
            sent = [Entry(**row) for row in found[TRANSCRIPT]]
        except TypeError as error:
            raise RunError(f"{self.path / TRANSCRIPT} does not hold messages: {error}; {RESTORE}") from error
        for name, record in self._records.items():
            record.resume_from(0 if checkpoint is None else checkpoint.records[name].bytes)
        self._checkpoints.clean(0 if checkpoint is None else checkpoint.number)
        return found[_METRICS], sent

    @property
    def written(self) -> dict[str, int]:
        """The size of each record so far, in bytes."""
        return {name: record.entry.bytes for name, record in self._records.items()}

    def go_on_at(self, written: Mapping[str, int]) -> None:
        """Continue the records from these sizes, and truncate what came later."""
        for name, record in self._records.items():
            record.resume_from(written[name])

    @property
    def recorded(self) -> bool:
        """Whether a round has been recorded."""
        path = self.path / _METRICS
        return path.exists() and path.stat().st_size > 0

    def read_lines(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a record; for an unfinished run, those written so far."""
        path = self.path / name
        if self.finished:
            return rows(path, self._content(name))
        content = read_bytes(path) if path.exists() else b""
        # The last line may be incomplete while the run writes it.
        return rows(path, content[: content.rfind(b"\n") + 1])

    # -- models and encoders

    def write_party(self, name: str, what: str, content: State | Mapping[str, Any]) -> None:
        """`what` is ``"weights"`` or ``"rows"`` (states with arrays), or the name of plain JSON: ``"encoder"``, ..."""
        self._write_part(f"parties/{name}", f"party {name}", what, content)

    def write_trees(self, name: str, what: str, text: str) -> None:
        """Write a party's ``"trees"`` or ``"splits"`` in LightGBM's format, after its other files."""
        self._write(f"parties/{name}/{what}.txt", f"party {name}", text.encode())

    def read_trees(self, name: str, what: str) -> str:
        try:
            return self._content(f"parties/{name}/{what}.txt").decode()
        except UnicodeDecodeError as error:
            raise RunError(f"{self.path / 'parties' / name / what}.txt is not text; {RESTORE}") from error

    def read_party(self, name: str, what: str) -> dict[str, Any]:
        return self._read_part(f"parties/{name}", f"party {name}", what)

    def write_share(self, name: str, content: State) -> None:
        """Write the server's share of a party's weights."""
        self._write_part(f"server/{name}", "server", "share", content)

    def read_share(self, name: str) -> dict[str, Any]:
        return self._read_part(f"server/{name}", "server", "share")

    @property
    def owners(self) -> dict[str, Callable[[str], dict[str, Any]]]:
        """Return a reader for each model, by owner: each party's, or the one that all clients share."""
        parties = sorted(found.name for found in self.path.glob("parties/*") if found.is_dir())
        readers = {name: partial(self.read_party, name) for name in parties}
        return readers | ({"all clients": self.read_model} if (self.path / "model").is_dir() else {})

    def write_client(self, name: str, what: str, content: Mapping[str, Any]) -> None:
        """Write what a client keeps of its own rows: ``"reference"``."""
        self._write_part(f"clients/{name}", f"client {name}", what, content)

    def read_client(self, name: str, what: str) -> dict[str, Any] | None:
        """Return what a client keeps of its own rows; None if this folder is not of that client."""
        there = f"clients/{name}/{what}.json" in self.files
        return self._read_part(f"clients/{name}", f"client {name}", what) if there else None

    def write_model(self, what: str, content: State | Mapping[str, Any]) -> None:
        self._write_part("model", "all clients", what, content)

    def read_model(self, what: str) -> dict[str, Any]:
        return self._read_part("model", "all clients", what)

    def _write_part(self, place: str, owner: str, what: str, content: State | Mapping[str, Any]) -> None:
        folder = self.path
        for part in place.split("/"):
            folder /= part
            make_folder(folder, private=True)
        if what in _ARRAYS:
            self._write(f"{place}/{what}.safetensors", owner, state_bytes(dict(content), self._mark(owner)))
        else:
            text = json.dumps(content, ensure_ascii=False, indent=1)
            self._write(f"{place}/{what}.json", owner, text.encode())

    def _read_part(self, place: str, owner: str, what: str) -> dict[str, Any]:
        name = f"{place}/{what}.safetensors" if what in _ARRAYS else f"{place}/{what}.json"
        content, path = self._content(name), self.path / name
        return state_from(content, path, self._mark(owner)) if what in _ARRAYS else parse_json(path, content)

    def _mark(self, owner: str) -> Mark:
        return Mark(self._manifest.run, owner)

    def _write(self, name: str, owner: str, content: bytes) -> None:
        write_bytes(self.path / name, content, private=True)
        self._manifest.files[name] = entry(owner, content)

    # -- the end

    def finish(self, result: Mapping[str, Any]) -> None:
        manifest = self._manifest
        self._write(_RESULT, OF_RUN, json.dumps(result, indent=1).encode())
        manifest.files |= {name: record.entry for name, record in self._records.items() if record.path.exists()}
        # This write finishes the run: all files it lists are on disk.
        manifest.status = "finished"
        manifest.write(self.path)
        self._checkpoints.remove()

    def begin_again(self) -> None:
        """Mark the run as unfinished: other participants did not finish, and all repeat the end."""
        manifest = self._manifest
        manifest.files = {name: known for name, known in manifest.files.items() if name == DESCRIPTION}
        manifest.status = "running"
        manifest.write(self.path)

    @property
    def result(self) -> dict[str, Any]:
        if not self.finished:
            raise RunError(f"{self.path} holds an unfinished run; resume it with: evenhand train --resume")
        return parse_json(self.path / _RESULT, self._content(_RESULT))

    @property
    def labels(self) -> dict[str, Any]:
        """Names of two labels by ``"negative"`` and ``"positive"``; of more by ``"classes"``; the loss of numbers."""
        labels = self.result.get("labels")
        known = ({"negative", "positive"}, {"classes"}, {"loss", "power"})
        if not isinstance(labels, dict) or labels.keys() not in known:
            raise RunError(f"{self.path / _RESULT} does not name the labels; {RESTORE}")
        return labels

    @property
    def cut(self) -> float:
        """The score above which a row is decided positive."""
        cut = self.result.get("cut", {"score": 0.0})
        if not isinstance(cut, dict) or not isinstance(cut.get("score"), (int, float)):
            raise RunError(f"{self.path / _RESULT} does not name the cut; {RESTORE}")
        return float(cut["score"])

    def clean(self) -> None:
        """Remove leftovers of killed processes: partial files and, if the run has finished, its checkpoints."""
        if self.finished:
            self._checkpoints.remove()
        else:
            self._checkpoints.clean()
        for path in self.path.rglob(f"*{PARTIAL}"):
            if path.is_file():
                path.unlink(missing_ok=True)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def is_run(path: Path) -> bool:
    try:
        return (path / DESCRIPTION).is_file()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error


def check_free(path: Path, advice: str) -> None:
    """Refuse a folder that is not empty, except for leftovers of a run that was killed at its start."""
    try:
        taken = path.exists() and any(found.name not in _LEFT_BY_A_KILL_AT_THE_START for found in path.iterdir())
    except OSError as error:
        raise RunError(f"{path} cannot be used as run folder: {error.strerror}; choose another") from error
    if taken:
        raise RunError(f"{path} exists and is not empty; {advice}")


def _text(content: Mapping[str, Any], key: str, path: Path) -> str:
    value = content.get(key)
    if not isinstance(value, str):
        raise RunError(f"{path} has no valid {key!r}; {RESTORE}")
    return value
