"""Start a job from an earlier run: a party joins, or leaves, and the others go on from their weights (`extends`).

Each participant reads only its own part of that run's folder. Encoders stay as they are, so that weights fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from evenhand.arrays import Array
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.errors import JobError
from evenhand.jobs.party_parts import party_encoder, party_model
from evenhand.jobs.tables import tell
from evenhand.jobs.vertical.file import PartySection, VerticalJobFile, VerticalJobSection, parse_vertical
from evenhand.models.linear import LinearModel
from evenhand.protocol.job import Job
from evenhand.runtime.folder import RunFolder

_SIDES: Final = ("upper multiplier", "lower multiplier")
_OF_PARTY: Final = ("types", "missing", "max_levels", "numbers", "monotone")
_OF_JOB: Final = ("scale", "numbers")
"""Keys that say how columns are encoded. An encoder that stays as it is cannot follow others."""


class EarlierPart(NamedTuple):
    """A party's encoder and weights in an earlier run."""

    encoder: PartyEncoder
    weights: Array

    def marking_absence(self) -> EarlierPart:
        """Return the part with a weight of zero for rows that the party lacks, if it had all rows in that run."""
        if self.encoder.marks_absence:
            return self
        outputs = len(self.weights) // self.encoder.width_out
        table = self.weights.reshape(outputs, -1)
        weights = np.concatenate([table, np.zeros((outputs, 1))], axis=1).ravel()
        return EarlierPart(self.encoder.marking_absence(), weights)

    def check_columns(self, features: Sequence[str], owner: str) -> None:
        """Refuse a table in which a column of that run is no feature; remark on columns that the run did not have."""
        had = [str(name) for name in self.encoder.columns_in]
        if gone := [name for name in had if name not in features]:
            raise JobError(
                f"the run that the job extends was trained on columns {', '.join(gone)}, which are no features now; "
                "train anew, without extends"
            )
        if new := [name for name in features if name not in had]:
            told = f"columns {', '.join(new)} were no features in the run that the job extends, and are not used"
            tell(owner, [f"{told}; train anew to use them"])


def earlier_part(folder: RunFolder, party: PartySection, section: VerticalJobSection, job: Job) -> EarlierPart | None:
    """Return a party's part of an earlier run; None if it was not in it. Refuse a job of other columns or labels."""
    name = party.name
    if f"parties/{name}/encoder.json" not in folder.files:
        return None
    _check_encoding(folder, party, section)
    encoder = party_encoder(folder, name)
    model = party_model(folder, name, encoder)
    if not isinstance(model, LinearModel):
        raise JobError(
            f"{folder.path}: {name} does not have the weights of a linear model there, so none can start from it"
        )
    if (scores := max(1, len(job.classes))) != model.outputs:
        raise JobError(
            f"{folder.path} has {_labels(model.outputs)}, and this job has {_labels(scores)}, so {name}'s "
            "weights do not fit; use the same label with the same classes, or train anew, without extends"
        )
    return EarlierPart(encoder, model.weights)


def _labels(scores: int) -> str:
    return "two labels" if scores == 1 else f"{scores} classes"


def _check_encoding(folder: RunFolder, party: PartySection, section: VerticalJobSection) -> None:
    """Refuse other keys of encoding than those of the earlier run."""
    described = folder.description
    every = [described.get("own", {}).get("party", {}), *described.get("party", [])]
    own: Mapping[str, Any] = next((one for one in every if one.get("name") == party.name), {})
    for where, now, before, keys in (
        (f"party {party.name!r}", party, own, _OF_PARTY),
        ("[job]", section, described.get("job", {}), _OF_JOB),
    ):
        values, fields = now.model_dump(mode="json"), type(now).model_fields
        for key in keys:
            if values[key] != before.get(key, fields[key].get_default(call_default_factory=True)):
                raise JobError(
                    f"key {key} of {where} is not that of {folder.path}, whose encoder a job that extends it keeps; "
                    "give the same, or train anew"
                )


def check_extended(folder: RunFolder, names: Sequence[str]) -> None:
    """Refuse a run that has not finished, or that shares no party with the job."""
    if not folder.finished:
        raise JobError(f"{folder.path}: this run has not finished, so no job can extend it; resume it first")
    if all(f"parties/{name}/encoder.json" not in folder.files for name in names):
        raise JobError(f"{folder.path}: none of the job's parties ({', '.join(names)}) is in this run")


def earlier_multipliers(folder: RunFolder) -> Array:
    """Return the multipliers (2, R) at the end of an earlier run, in the order of its inequalities."""
    rows: list[dict[str, Any]] = folder.read_lines("metrics.jsonl")
    last = rows[-1] if rows else {}
    return np.array([[float(value) for name, value in last.items() if name.startswith(f"{side}[")] for side in _SIDES])


def without_parties(job: VerticalJobFile, names: Sequence[str]) -> VerticalJobFile:
    """Return the job without some parties; the label holder must stay."""
    known = [party.name for party in job.party]
    for name in names:
        if name not in known:
            raise JobError(f"no party is called {name!r}; the job's parties are {', '.join(known)}")
        if name == job.label_party.name:
            raise JobError(f"{name} holds the label, so there is no job without it")
    content = job.model_dump(exclude_unset=True)
    content["party"] = [party for party in content["party"] if party["name"] not in names]
    return parse_vertical(content, f"the job without {', '.join(names)}")


def extending(job: VerticalJobFile, run: Path) -> VerticalJobFile:
    """Return the job with a run to start from."""
    content = job.model_dump(exclude_unset=True)
    content.setdefault("job", {})["extends"] = str(run.absolute())
    return parse_vertical(content, f"the job that extends {run}")
