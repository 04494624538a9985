"""One side's run folder: what is its own and no more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evenhand.jobs.federation.files import FederationJob, PartyFile
from evenhand.jobs.federation.sites import PartyEnd
from evenhand.models.saved import to_state
from evenhand.models.trees import TreesModel
from evenhand.protocol.roles import Report
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.folder import RunFolder


class SideFolder:
    """Where one participant keeps its side of a run."""

    def __init__(self, folder: RunFolder, name: str) -> None:
        self.folder = folder
        self.name = name
        self._history: list[Report] = []

    @classmethod
    def create(cls, runs: Path, job_id: str, name: str, job: FederationJob, own: PartyFile | None = None) -> SideFolder:
        description: dict[str, Any] = {"side": name, **job.model_dump(exclude_none=True, mode="json")}
        if own is not None:
            description["own"] = own.model_dump(exclude_none=True, mode="json")
        return cls(RunFolder.create(runs / job_id, description), name)

    def report(self, row: Report) -> None:
        self._history.append(row)

    @contextmanager
    def recorded(self, transcript: Transcript) -> Iterator[None]:
        """Whatever comes of the run, what left this site is written down."""
        self._transcript = transcript
        try:
            yield
        finally:
            if not self.folder.finished:
                self._write_record()

    def _write_record(self) -> None:
        self.folder.append(self._history, self._transcript)
        self._history = []

    def finish(self, result: dict[str, Any]) -> None:
        self._write_record()
        self.folder.finish(result)

    def finish_party(self, end: PartyEnd) -> None:
        self.folder.write_party(self.name, "encoder", end.encoder.to_state())
        self.folder.write_party(self.name, "weights", to_state(end.model))
        if isinstance(end.model, TreesModel):
            self.folder.write_trees(self.name, "trees", end.model.text)
        # A party is told no result; what it was told is in its transcript.
        self.finish({"terms": end.terms.digest})
