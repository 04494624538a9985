"""The run folder: what a run leaves behind, written so that a kill at any point loses nothing that was complete.

run.toml              the job, versions, and whether the run finished
metrics.jsonl         one line a round
transcript.jsonl      one line a message
parties/<name>/       what the party owns: weights.safetensors, encoder.json
checkpoints/          where to go on from, while the run is not finished
result.json           certificate and measured quality, once it is
"""

from __future__ import annotations

import json
import math
import shutil
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from evenhand.errors import RunError
from evenhand.protocol.roles import Report, State
from evenhand.protocol.transcript import Entry
from evenhand.runtime import checkpoints
from evenhand.runtime.statefiles import read_state, write_bytes, write_state


class RunFolder:
    """Reads and writes one run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._checkpoints = path / "checkpoints"

    @classmethod
    def create(cls, path: Path, description: Mapping[str, Any]) -> RunFolder:
        """A new folder with its description. An existing one is never written over."""
        check_free(path, "resume it, or choose another folder")
        make_folder(path)
        folder = cls(path)
        folder.describe({"status": "running", **description})
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        if not (path / "run.toml").is_file():
            raise RunError(f"{path} is not a run folder: it has no run.toml")
        return cls(path)

    def describe(self, description: Mapping[str, Any]) -> None:
        write_bytes(self.path / "run.toml", tomli_w.dumps(dict(description)).encode())

    @property
    def description(self) -> dict[str, Any]:
        path = self.path / "run.toml"
        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"{path} cannot be read: {error}") from error

    def describes(self, content: Mapping[str, Any]) -> bool:
        """Whether the description holds this content, as TOML would give it back."""
        description = self.description
        known = {"status", "evenhand", "base"}
        return {key: value for key, value in description.items() if key not in known} == dict(content)

    @property
    def finished(self) -> bool:
        return bool(self.description["status"] == "finished")

    # -- while the run goes on

    def append(self, history: Iterable[Report], transcript: Iterable[Entry]) -> None:
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(_line(row) for row in history)
        with (self.path / "transcript.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(_line(entry._asdict()) for entry in transcript)

    def checkpoint(self, states: dict[str, State]) -> None:
        checkpoints.save(states, self._checkpoints)

    def last_checkpoint(self) -> dict[str, State] | None:
        return checkpoints.load(self._checkpoints)

    def rewind(self, rows: int, entries: int) -> tuple[list[Report], list[Entry]]:
        """Drop what was written after the last checkpoint and return what is left."""
        counts = {"metrics.jsonl": rows, "transcript.jsonl": entries}
        # Both are read before either is cut: a folder that cannot be resumed stays as it was.
        kept = {name: self._first_lines(name, count) for name, count in counts.items()}
        history, sent = (self._parsed(name, lines) for name, lines in kept.items())
        for name, lines in kept.items():
            write_bytes(self.path / name, b"".join(lines))
        return history, [Entry(**entry) for entry in sent]

    def _first_lines(self, name: str, count: int) -> list[bytes]:
        path = self.path / name
        lines = path.read_bytes().splitlines(keepends=True)[:count] if path.exists() else []
        if len(lines) < count:
            raise RunError(f"{path} has {len(lines)} lines, the checkpoint needs {count}; the folder was changed")
        return lines

    def read_lines(self, name: str) -> list[dict[str, Any]]:
        path = self.path / name
        return self._parsed(name, path.read_bytes().splitlines() if path.exists() else [])

    def _parsed(self, name: str, lines: Iterable[bytes]) -> list[dict[str, Any]]:
        try:
            return [_with_nan(json.loads(line)) for line in lines]
        except ValueError as error:
            raise RunError(f"{self.path / name} holds a line that is not JSON: {error}") from error

    # -- what parties own

    def write_party(self, name: str, what: str, content: State | Mapping[str, Any]) -> None:
        """`what` is ``"weights"`` (a state with arrays) or ``"encoder"`` (plain JSON)."""
        folder = self.path / "parties" / name
        folder.mkdir(parents=True, exist_ok=True)
        if what == "weights":
            write_state(folder / "weights.safetensors", dict(content))
        else:
            write_bytes(folder / f"{what}.json", json.dumps(content, ensure_ascii=False, indent=1).encode())

    def read_party(self, name: str, what: str) -> dict[str, Any]:
        folder = self.path / "parties" / name
        if what == "weights":
            return read_state(folder / "weights.safetensors")
        return _read_json(folder / f"{what}.json")

    # -- the end

    def finish(self, result: Mapping[str, Any]) -> None:
        write_bytes(self.path / "result.json", json.dumps(result, indent=1).encode())
        self.describe(self.description | {"status": "finished"})
        shutil.rmtree(self._checkpoints, ignore_errors=True)

    @property
    def result(self) -> dict[str, Any]:
        path = self.path / "result.json"
        if not path.is_file():
            raise RunError(f"{self.path} holds a run that has not finished; go on with: evenhand train --resume")
        return _read_json(path)

    def remove(self) -> None:
        shutil.rmtree(self.path)


def check_free(path: Path, advice: str) -> None:
    """Refuse a folder with anything in it but what a kill at the very start leaves."""
    try:
        taken = path.exists() and any(entry.name != "run.toml.partial" for entry in path.iterdir())
    except OSError as error:
        raise RunError(f"{path} cannot be the run's folder: {error.strerror}; choose another") from error
    if taken:
        raise RunError(f"{path} exists and is not empty; {advice}")


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make the folder {path}: {error.strerror}; choose another") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise RunError(f"{path} does not hold what a run writes there")
    return content


def _line(row: Mapping[str, Any]) -> str:
    """One line of JSON, which has no NaN: a value that is not there yet is null."""
    plain = {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in row.items()}
    return json.dumps(plain, ensure_ascii=False) + "\n"


def _with_nan(row: dict[str, Any]) -> dict[str, Any]:
    return {key: math.nan if value is None else value for key, value in row.items()}
