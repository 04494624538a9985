"""What a run folder tells, read once for a page or a table: nothing is trained or scored again.

A run that goes on has a record too: of the rounds that are written down by now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pandas as pd

from evenhand.data.tables.encoding import PartyEncoder
from evenhand.errors import MissingExtraError
from evenhand.models.saved import from_state, state_is_of_trees
from evenhand.models.trees import TreesModel
from evenhand.protocol.transcript import Entry
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.manifest import FileEntry, parse_json, read_bytes

AUDIT: Final = "audit.json"
"""Written into the run folder by whoever audits the run."""


@dataclass(frozen=True, eq=False)
class RunRecord:
    """One run.

    Attributes
    ----------
    name
        Of its folder.
    description
        The job as it was asked for, with versions and the run's id.
    result
        Certificate, quality, constraints, counts by group; empty while the run goes on.
    history
        One row a round.
    traffic
        Messages and bytes of each sender, receiver and kind.
    weights
        Each owner's weights by the name of the column, where the model has one for each.
    files
        Digest and owner of each file.
    importances
        Each owner's columns by what splits on them gained, where the model is trees and LightGBM is there to read them.
    audit
        What an audit of the run found, if there was one.
    """

    name: str
    description: Mapping[str, Any]
    result: Mapping[str, Any]
    history: pd.DataFrame
    traffic: pd.DataFrame
    weights: Mapping[str, pd.Series[float]]
    files: Mapping[str, FileEntry]
    importances: Mapping[str, pd.Series[float]] = field(default_factory=dict)
    audit: Mapping[str, Any] | None = None

    @classmethod
    def read(cls, path: Path) -> RunRecord:
        folder = RunFolder.open(path)
        finished = folder.finished
        result = folder.result if finished else {}
        sent = pd.DataFrame(folder.read_lines("transcript.jsonl"), columns=list(Entry._fields))
        traffic = sent.groupby(["sender", "receiver", "kind"], sort=False)[["messages", "nbytes"]].sum().reset_index()
        history = pd.DataFrame(folder.read_lines("metrics.jsonl"))
        audit = parse_json(path / AUDIT, read_bytes(path / AUDIT)) if (path / AUDIT).exists() else None
        return cls(
            path.resolve().name,
            folder.description,
            result,
            history,
            traffic,
            _weights(folder) if finished else {},
            folder.files,
            _importances(folder) if finished else {},
            audit,
        )

    @property
    def finished(self) -> bool:
        return bool(self.result)

    @property
    def constrained(self) -> bool:
        return bool(self.job.get("constraint"))

    @property
    def job(self) -> Mapping[str, Any]:
        found = self.description.get("job", {})
        return found if isinstance(found, Mapping) else {}

    @property
    def parts(self) -> list[str]:
        """``"train"``, and ``"test"`` where rows were held out."""
        return list(self.result["quality"])

    def rows(self, part: str) -> int | None:
        """How many rows of data a part has, if its groups were counted."""
        groups = self.result.get("groups", {}).get(part, [])
        first = [one for one in groups if one["attribute"] == groups[0]["attribute"]]
        names = ("true_positives", "false_positives", "false_negatives", "true_negatives")
        return sum(one[name] for one in first for name in names) if first else None


def _weights(folder: RunFolder) -> dict[str, pd.Series[float]]:
    """Of linear models, everybody's weights by the names of their encoded columns."""
    found = {}
    for owner, read in folder.owners.items():
        state = read("weights")
        if state.get("model") == "linear":
            names = PartyEncoder.from_state(read("encoder")).feature_names_out
            found[owner] = pd.Series(state["weights"][: len(names)], index=names, dtype=float)
    return found


def _importances(folder: RunFolder) -> dict[str, pd.Series[float]]:
    """Of trees, everybody's columns by the gain of the splits on them."""
    found = {}
    for owner, read in folder.owners.items():
        state = read("weights")
        if state_is_of_trees(state) and folder.split != "horizontal":
            splits = folder.read_trees(owner, "splits") if state.get("splits") else ""
            try:
                model = from_state(state, folder.read_trees(owner, "trees"), splits)
                assert isinstance(model, TreesModel)
                gains = model.importances()
            except MissingExtraError:
                return {}
            found[owner] = pd.Series(gains, index=PartyEncoder.from_state(read("encoder")).columns_in, dtype=float)
    return found
