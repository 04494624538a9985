"""Quality of a model's scores, the table of scores, and remarks on bounds; the same for both splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, softmax

from evenhand.arrays import Array, Booleans
from evenhand.constraints.kinds import Constraint
from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.constraints.proving import Proof, rate_variance
from evenhand.errors import ConstraintError, DataError
from evenhand.jobs.folder import JobFile
from evenhand.jobs.tables import Classes, Labels, labels_of
from evenhand.metrics import constraint_gaps, decision_intervals, group_counts, intervals, summary
from evenhand.protocol.job import Job
from evenhand.protocol.solver import Certificate
from evenhand.protocol.terms import plain
from evenhand.protocol.transcript import Transcript
from evenhand.training.run import shortfalls


@dataclass(frozen=True, eq=False)
class QualityRows(LabelledRows):
    """Labelled rows that quality is measured on, with the names of their labels.

    Without groups only accuracy is measured. Sample weights are for training; quality counts rows.
    """

    names: Labels | Classes = field(kw_only=True)

    def some(self, rows: Booleans) -> QualityRows:
        """Return these rows."""
        if rows.all():
            return self
        groups = None if self.groups is None else self.groups[rows]
        sample_weight = None if self.sample_weight is None else self.sample_weight[rows]
        return QualityRows(self.labels[rows], groups, sample_weight=sample_weight, names=self.names)

    @property
    def named_labels(self) -> list[Any]:
        return self.names.named(self.labels)

    @property
    def keywords(self) -> dict[str, Any]:
        """Keyword arguments of `evenhand.metrics`."""
        return {"sensitive_features": self.groups, "pos_label": getattr(self.names, "positive", None)}


def check_measurable(parts: Mapping[str, QualityRows]) -> None:
    """Refuse, before training, rows on which the quality would be undefined."""
    for name, rows in parts.items():
        try:
            _quality(rows, rows.labels if isinstance(rows.names, Classes) else np.zeros(len(rows.labels)))
        except DataError as error:
            raise DataError(f"{name} rows: {error}") from error


def run_result(
    job: Job,
    certificate: Certificate,
    proofs: Sequence[Proof],
    labels: Labels | Classes,
    scores: Array,
    transcript: Transcript,
) -> dict[str, Any]:
    """Return the server's part of `result.json`, without quality; scores belong to the training rows."""
    # JSON has no NaN: values that were not measured become null.
    measured = {
        name: None if isinstance(value, float) and np.isnan(value) else value
        for name, value in certificate.as_dict().items()
    }
    return {
        "certificate": measured,
        "proofs": [{**asdict(proof), "holds": proof.holds} for proof in proofs],
        "shortfalls": shortfalls(certificate, job.tol, job.max_rounds, labels.named(scores)),
        "bytes": transcript.total_bytes,
        "messages": transcript.total_messages,
        "labels": labels._asdict(),
    }


def quality(
    parts: Mapping[str, QualityRows],
    scores: Mapping[str, Array],
    *,
    constraints: Sequence[Constraint] = (),
) -> dict[str, Any]:
    """Return metrics of each part of the rows, their uncertainty, and how well constraints hold there.

    ``intervals`` are 95 % bootstrap intervals, low and high; ``standard_errors`` belong to the metrics; ``bounds`` are
    upper 95 % confidence bounds of gaps in the population. A value that these rows cannot give (one row in a slice) is
    None.

    Parameters
    ----------
    constraints
        Constraints over all rows together.
    """
    said = {name: _population(rows, scores[name]) for name, rows in parts.items()}
    return {
        "quality": {name: _quality(rows, scores[name]) for name, rows in parts.items()},
        **{
            kind: {name: one[kind] for name, one in said.items()} for kind in ("intervals", "standard_errors", "bounds")
        },
        "constraints": {name: _held(constraints, rows, scores[name]) for name, rows in parts.items()},
        "groups": {name: _counts(rows, scores[name]) for name, rows in parts.items()},
    }


def _counts(rows: QualityRows, scores: Array) -> list[dict[str, Any]]:
    if rows.groups is None or isinstance(rows.names, Classes):
        return []
    return group_counts(rows.named_labels, scores, **rows.keywords)


def right_decisions(rows: QualityRows, scores: Array) -> Booleans:
    """Return whether each row's label equals the decision."""
    if isinstance(rows.names, Classes):
        return (scores.argmax(axis=1) if scores.ndim == 2 else scores) == rows.labels
    return (scores > 0) == (rows.labels > 0)


def _quality(rows: QualityRows, scores: Array) -> dict[str, float]:
    if rows.groups is None:
        return {"accuracy": float(np.mean(right_decisions(rows, scores)))}
    if isinstance(rows.names, Classes):
        return {str(name): float(value) for name, value in _of_classes(rows, scores)["estimate"].items()}
    # Pass labels by their own names, so that error messages use them.
    return summary(rows.named_labels, scores, **rows.keywords)


def _of_classes(rows: QualityRows, scores: Array) -> pd.DataFrame:
    """Return the metrics of three classes or more: each class against the rest, and the worst of them."""
    told, decided = rows.named_labels, rows.names.named(scores)
    found = decision_intervals(told, decided, sensitive_features=rows.groups, skip_unmeasurable=True)
    return found.rename(index={"demographic_parity": "DP", "equal_opportunity": "DFN"}).loc[["accuracy", "DP", "DFN"]]


def _population(rows: QualityRows, scores: Array) -> dict[str, dict[str, Any]]:
    """Return what these rows imply for the population: intervals, standard errors and bounds of metrics."""
    if rows.groups is None:
        right = float(np.sum(right_decisions(rows, scores)))
        error = float(np.sqrt(rate_variance(right, len(scores))))
        return {"intervals": {}, "standard_errors": {"accuracy": error}, "bounds": {}}
    if isinstance(rows.names, Classes):
        found = _of_classes(rows, scores)
    else:
        found = intervals(rows.named_labels, scores, **rows.keywords)
    return {
        "intervals": {str(name): [float(low), float(high)] for name, low, high in found[["low", "high"]].itertuples()},
        "standard_errors": {str(name): _number(error) for name, error in found["standard_error"].items()},
        "bounds": {str(name): _number(bound) for name, bound in found["bound"].items() if not np.isnan(bound)},
    }


def _held(constraints: Sequence[Constraint], rows: QualityRows, scores: Array) -> list[dict[str, Any]]:
    """Return how well each constraint holds on these rows, and in the population."""
    if isinstance(rows.names, Classes) or (rows.groups is None and any(one.compares_groups for one in constraints)):
        return []
    names = rows.named_labels
    found = []
    for constraint in constraints:
        try:
            table = constraint_gaps(constraint, names, scores, **rows.keywords)
        except (ConstraintError, DataError):
            # With few test rows a slice may be empty, and its constraint has no value.
            continue
        line = {str(name): plain(value) for name, value in table.reset_index().iloc[0].items()}
        found.append({name: _number(value) if isinstance(value, float) else value for name, value in line.items()})
    return found


def _number(value: float) -> float | None:
    """Return None for infinity, which JSON does not have."""
    return float(value) if np.isfinite(value) else None


def scored(scores: Array, labels: Mapping[str, Any], index: pd.Index) -> pd.DataFrame:
    """Return scores of new rows with probabilities and predictions; `labels` are those of a run's result.

    With more than two classes, return the probability of each class and the most probable class.
    """
    known = labels_of(labels)
    predicted = known.named(scores)
    if isinstance(known, Classes):
        shares = softmax(scores, axis=1)
        each = {f"probability {name}": shares[:, place] for place, name in enumerate(known.classes)}
        return pd.DataFrame({"score": scores.max(axis=1), **each, "prediction": predicted}, index=index)
    return pd.DataFrame({"score": scores, "probability": expit(scores), "prediction": predicted}, index=index)


def default_bounds(job: JobFile) -> list[str]:
    """Return a remark for each bound that the job file leaves at its default."""
    said = []
    for given, constraint in zip(job.job.constraint, job.to_job().constraints, strict=True):
        for name in ("epsilon", "limit"):
            if name not in given and (value := getattr(constraint, name, None)) is not None:
                said.append(f"constraint {constraint.kind}: {name} is {value:g}, its default")
    return said


def beyond_bounds(result: Mapping[str, Any]) -> list[str]:
    """Return a remark for each bound that the test rows exceed, and whether this may be chance."""
    said = []
    for one in result.get("constraints", {}).get("test", ()):
        value, error = one["estimate"], one["standard_error"]
        if value is None or value <= one["asked"]:
            continue
        line = f"{one['row']}: {value:.3f} on the test rows, above the bound of {one['asked']:g} ({one['constraint']})"
        if error is not None:
            chance = "this may be chance" if value - one["asked"] <= 2 * error else "this is unlikely to be chance"
            line += f"; the standard error is {error:.3f}, so {chance}"
        said.append(line)
    return said
