"""Read a run folder for a page or a table; nothing is trained or scored again.

A running job has a record too: of the rounds recorded so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pandas as pd

from evenhand.arrays import Array
from evenhand.data.tables.columns import Shape
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.unencoded import encoder_from_state
from evenhand.errors import MissingExtraError, RunError
from evenhand.models.saved import from_state, linear_parts, state_is_of_trees
from evenhand.models.trees import TreesModel
from evenhand.protocol.transcript import Entry
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.manifest import FileEntry, parse_json, read_bytes

Target: TypeAlias = Literal["binary", "classes", "numbers"]
"""What a model predicts: one of two labels, one of three and more, or numbers."""
AUDIT: Final = "audit.json"
"""File that `evenhand audit` writes to the run folder."""
VALUES: Final = "values.json"
"""File that `evenhand value` writes to the run folder."""
_VALUES: Final = frozenset(
    {"holder", "rows", "loss", "label holder alone", "all parties", "trainings", "orders", "parties"}
)


def target_of(result: Mapping[str, Any]) -> Target:
    """Return what the model of a run's result predicts."""
    labels = result.get("labels", {})
    return "classes" if "classes" in labels else "numbers" if "loss" in labels else "binary"


@dataclass(frozen=True, eq=False)
class RunRecord:
    """One run.

    Attributes
    ----------
    name
        Name of its folder.
    description
        The job, with versions and the run's id.
    result
        Certificate, quality, constraints, counts by group; empty while the run is running.
    history
        One row per round.
    traffic
        Messages and bytes of each sender, receiver and kind.
    weights
        Each owner's weights by feature name, for linear models: one column, or one for each of three classes and more.
    files
        Digest and owner of each file.
    importances
        Each owner's columns by the gain of their splits, for trees if LightGBM is installed.
    audit
        Findings of an audit, if the run was audited.
    columns
        Each owner's raw columns and their kinds, as its encoder knows them.
    started
        The day the run began.
    shapes
        Each owner's curves and bins by column, for linear models: one, or one for each of three classes and more.
    values
        What each party's data is worth, if that was measured.
    """

    name: str
    description: Mapping[str, Any]
    result: Mapping[str, Any]
    history: pd.DataFrame
    traffic: pd.DataFrame
    weights: Mapping[str, pd.DataFrame]
    files: Mapping[str, FileEntry]
    importances: Mapping[str, pd.Series[float]] = field(default_factory=dict)
    audit: Mapping[str, Any] | None = None
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    started: str = ""
    shapes: Mapping[str, Mapping[str, tuple[Shape, ...]]] = field(default_factory=dict)
    values: Mapping[str, Any] | None = None

    @classmethod
    def read(cls, path: Path) -> RunRecord:
        folder = RunFolder.open(path)
        finished = folder.finished
        result = folder.result if finished else {}
        sent = pd.DataFrame(folder.read_lines("transcript.jsonl"), columns=list(Entry._fields))
        traffic = sent.groupby(["sender", "receiver", "kind"], sort=False)[["messages", "nbytes"]].sum().reset_index()
        history = pd.DataFrame(folder.read_lines("metrics.jsonl"))
        audit, values = (
            parse_json(path / name, read_bytes(path / name)) if (path / name).exists() else None
            for name in (AUDIT, VALUES)
        )
        if values is not None and not (isinstance(values, dict) and values.keys() >= _VALUES):
            raise RunError(
                f"{path / VALUES} does not hold values of parties; measure them again: evenhand value {path}"
            )
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
            _columns(folder) if finished else {},
            folder.started,
            _shapes(folder) if finished else {},
            values,
        )

    @property
    def finished(self) -> bool:
        return bool(self.result)

    @property
    def side(self) -> str:
        """Whose side of a federated run the folder holds; empty for a run of one process."""
        return str(self.description.get("side", ""))

    @property
    def measured(self) -> bool:
        """Whether the folder has metrics of the model. A party's side of a federated run has none."""
        return bool(self.result.get("quality"))

    @property
    def messages(self) -> int:
        """Number of messages sent and received so far."""
        return int(self.traffic["messages"].sum())

    @property
    def constrained(self) -> bool:
        return bool(self.job.get("constraint"))

    @property
    def target(self) -> Target:
        """The kind of target; it decides which sections the page has."""
        return target_of(self.result)

    @property
    def job(self) -> Mapping[str, Any]:
        found = self.description.get("job", {})
        return found if isinstance(found, Mapping) else {}

    @property
    def horizontal(self) -> bool:
        return self.job.get("split") == "horizontal"

    @property
    def owners(self) -> list[Mapping[str, Any]]:
        """The job's sections of its participants."""
        given = (one for key in ("party", "client") for one in self.description.get(key, []))
        return [one for one in given if isinstance(one, Mapping)]

    @property
    def parts(self) -> list[str]:
        """``"train"``, and ``"test"`` if rows were held out."""
        return list(self.result["quality"])

    def rows(self, part: str) -> int | None:
        """Return the number of rows of a part, if its groups were counted."""
        if self.target == "numbers":
            return sum(one["rows"] for one in self.result.get("deciles", {}).get(part, [])) or None
        if (classes := self.result.get("classes", {}).get(part)) is not None:
            return int(np.sum(classes["confusion"]))
        groups = self.result.get("groups", {}).get(part, [])
        first = [one for one in groups if one["attribute"] == groups[0]["attribute"]]
        names = ("true_positives", "false_positives", "false_negatives", "true_negatives")
        return sum(one[name] for one in first for name in names) if first else None


def _slopes(folder: RunFolder) -> Iterator[tuple[str, PartyEncoder, Array]]:
    """Yield each owner's encoder and weights (outputs, features) without intercepts, for linear models."""
    for owner, read in folder.owners.items():
        state = read("weights")
        if state.get("model") == "linear":
            yield owner, encoder_from_state(read("encoder")), linear_parts(state)[0]


def _weights(folder: RunFolder) -> dict[str, pd.DataFrame]:
    """Return each owner's weights by feature name, for linear models."""
    # A party's own folder between organisations has no labels of the result, and the job names the classes.
    labels = folder.result.get("labels", {}).get("classes") or folder.description.get("job", {}).get("classes")
    found = {}
    for owner, encoder, slopes in _slopes(folder):
        names = ["weight"] if len(slopes) == 1 else list(map(str, labels or range(len(slopes))))
        found[owner] = pd.DataFrame(slopes.T, index=encoder.feature_names_out, columns=names)
    return found


def _shapes(folder: RunFolder) -> dict[str, dict[str, tuple[Shape, ...]]]:
    """Return each owner's curves and bins by column, for linear models."""
    found: dict[str, dict[str, tuple[Shape, ...]]] = {}
    for owner, encoder, slopes in _slopes(folder):
        each = [encoder.shapes(own) for own in slopes]
        known = f"parties/{owner}/bands.json" in folder.files
        bands = folder.read_party(owner, "bands")["columns"] if known and len(each) == 1 else {}
        if each[0]:
            found[owner] = {name: tuple(_banded(one[name], bands.get(name)) for one in each) for name in each[0]}
    return found


def _banded(shape: Shape, band: Mapping[str, Any] | None) -> Shape:
    """Return a shape with its standard errors, if they fit."""
    if band is None or len(band["ends"]) != len(shape.ends):
        return shape
    return shape._replace(errors=tuple((low, high) for low, high in band["ends"]), missing_error=band["missing"])


def _columns(folder: RunFolder) -> dict[str, dict[str, str]]:
    """Return the kinds of each owner's raw columns, by name."""
    found = {}
    for owner, read in folder.owners.items():
        # Pictures have no encoder.
        if not {f"parties/{owner}/encoder.json", "model/encoder.json"} & folder.files.keys():
            continue
        encoder = encoder_from_state(read("encoder"))
        found[owner] = {name: encoder.kinds.get(name, "number") for name in encoder.columns_in}
    return found


def _importances(folder: RunFolder) -> dict[str, pd.Series[float]]:
    """Return each owner's columns by the gain of their splits, for trees, or by permutation, for learners."""
    found = {}
    for owner, read in folder.owners.items():
        if f"parties/{owner}/importances.json" in folder.files:
            table = read("importances")
            known = {name: float(value) for name, value in table.items() if isinstance(value, (int, float))}
            found[owner] = pd.Series(known, dtype=float)
            continue
        state = read("weights")
        if state_is_of_trees(state) and folder.split != "horizontal":
            splits = folder.read_trees(owner, "splits") if state.get("splits") else ""
            try:
                model = from_state(state, folder.read_trees(owner, "trees"), splits)
                assert isinstance(model, TreesModel)
                gains = model.importances()
            except MissingExtraError:
                return {}
            # A date is several features.
            names = encoder_from_state(read("encoder")).feature_names_out
            found[owner] = pd.Series(gains, index=names, dtype=float)
    return found
