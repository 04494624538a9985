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
import shutil
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from evenhand.errors import RunError
from evenhand.privacy.transcript import Entry
from evenhand.roles import Report, State
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
        if path.exists() and any(path.iterdir()):
            raise RunError(f"{path} exists and is not empty; resume it, or choose another folder")
        path.mkdir(parents=True, exist_ok=True)
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
        return tomllib.loads((self.path / "run.toml").read_text(encoding="utf-8"))

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
        history = self._truncate("metrics.jsonl", rows)
        return history, [Entry(**entry) for entry in self._truncate("transcript.jsonl", entries)]

    def _truncate(self, name: str, count: int) -> list[dict[str, Any]]:
        path = self.path / name
        lines = path.read_bytes().splitlines(keepends=True)[:count] if path.exists() else []
        if len(lines) < count:
            raise RunError(f"{path} has {len(lines)} lines, the checkpoint needs {count}; the folder was changed")
        write_bytes(path, b"".join(lines))
        return [json.loads(line) for line in lines]

    def read_lines(self, name: str) -> list[dict[str, Any]]:
        path = self.path / name
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

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
        path = folder / f"{what}.json"
        if not path.is_file():
            raise RunError(f"{path} is missing; the run is not complete")
        content: dict[str, Any] = json.loads(path.read_bytes())
        return content

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
        content: dict[str, Any] = json.loads(path.read_bytes())
        return content


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"
