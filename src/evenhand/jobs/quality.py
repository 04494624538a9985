"""Quality of a model's scores on labelled rows; the same for both splits."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Array, Booleans
from evenhand.constraints.groups import PATTERNS, groups_frame
from evenhand.constraints.kinds import Constraint
from evenhand.constraints.labelled_rows import LabelledRows
from evenhand.constraints.losses import SOFTMAX
from evenhand.constraints.presence import frequent, patterns_of
from evenhand.constraints.proving import rate_variance
from evenhand.constraints.thresholds import WITHOUT_RULE, Cut
from evenhand.errors import ConstraintError, DataError
from evenhand.jobs.tables import FEWEST_ROWS, Classes, Labels, NumericTargets
from evenhand.metrics import constraint_gaps, decision_intervals, group_counts, intervals, summary
from evenhand.metrics.classes import class_metrics, group_confusions
from evenhand.metrics.deviance import deviance_explained
from evenhand.metrics.gaps import read_attributes
from evenhand.metrics.held import held_constraints
from evenhand.metrics.performance import performance
from evenhand.metrics.presence import by_pattern, told_by_presence
from evenhand.metrics.regression import Z, by_decile, by_group, regression_metrics
from evenhand.protocol.terms import plain


@dataclass(frozen=True, eq=False)
class QualityRows(LabelledRows):
    """Labelled rows that quality is measured on, with the names of their labels.

    Without groups only accuracy is measured. Sample weights are for training; quality counts rows.

    Attributes
    ----------
    presence
        Which other parties have each row, a column for each; None if rows may not be absent, or nobody says.
    patterns
        Each row's pattern of presence, where constraints hold by pattern: rare patterns share one.
    """

    names: Labels | Classes | NumericTargets = field(kw_only=True)
    presence: pd.DataFrame | None = field(default=None, kw_only=True)
    patterns: pd.Series | None = field(default=None, kw_only=True)

    def some(self, rows: Booleans) -> QualityRows:
        """Return these rows."""
        if rows.all():
            return self
        parts = {
            name: None if given is None else given[rows]
            for name, given in vars(self).items()
            if name not in ("labels", "answers", "names")
        }
        return QualityRows(self.labels[rows], **parts, names=self.names)

    @property
    def compared(self) -> pd.DataFrame | None:
        """Groups and patterns, as constraints take them; None if there are neither."""
        if self.patterns is None:
            return self.groups
        return groups_frame(self.groups, self.n_rows).assign(**{PATTERNS: self.patterns.to_numpy()})

    @property
    def classes(self) -> Sequence[Hashable]:
        """The labels, if there are three or more."""
        return self.names.classes if isinstance(self.names, Classes) else ()

    @property
    def named_labels(self) -> list[Any]:
        return self.names.named(self.labels)

    @property
    def keywords(self) -> dict[str, Any]:
        """Keyword arguments of `evenhand.metrics`."""
        return {"sensitive_features": self.groups, "pos_label": getattr(self.names, "positive", None)}


def measurable(parts: Mapping[str, QualityRows], asked: bool) -> dict[str, QualityRows]:
    """Return the parts to measure quality on, without held-out rows that are too few for it.

    Parameters
    ----------
    asked
        Whether the job file asks for held-out rows; then too few are an error.
    """
    if not asked and "test" in parts:
        try:
            check_measurable({"test": parts["test"]})
        except DataError:
            return {name: rows for name, rows in parts.items() if name != "test"}
    return dict(parts)


def not_shown(sizes: Mapping[str, int], test: Booleans, measured: Mapping[str, QualityRows], asked: bool) -> list[str]:
    """Return a remark if nothing will be shown for new people although the job file does not ask for that.

    Parameters
    ----------
    sizes
        Number of rows by owner, where rows are held out by owner.
    test
        Which of all rows are held out.
    measured
        The parts that quality is measured on.
    """
    if asked or "test" in measured:
        return []
    advice = "Verdicts are about the training rows only; set test_fraction in [job] to ask for held-out rows"
    if not test.any():
        rows = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        return [f"no rows are held out: tables have fewer than {FEWEST_ROWS} rows ({rows}). {advice}"]
    return [f"the {int(test.sum()):,} held-out rows are too few to measure the model on. {advice}"]


def check_measurable(parts: Mapping[str, QualityRows]) -> None:
    """Refuse, before training, rows on which the quality would be undefined."""
    for name, rows in parts.items():
        if isinstance(rows.names, NumericTargets):
            continue
        if isinstance(rows.names, Classes) and len(present := np.unique(rows.labels)) == 1:
            only = rows.names.classes[int(present[0])]
            raise DataError(
                f"{name} rows: only the label {only!r} occurs; hold out more rows (test_fraction), or change the seed"
            )
        try:
            _quality(rows, rows.labels if isinstance(rows.names, Classes) else np.zeros(len(rows.labels)))
        except DataError as error:
            raise DataError(f"{name} rows: {error}") from error


def quality(
    parts: Mapping[str, QualityRows],
    scores: Mapping[str, Array],
    *,
    constraints: Sequence[Constraint] = (),
    cut: Cut = WITHOUT_RULE,
) -> dict[str, Any]:
    """Return metrics of each part of the rows, their uncertainty, and how well constraints hold there.

    ``intervals`` are 95 % bootstrap intervals, low and high; ``standard_errors`` belong to the metrics; ``bounds`` are
    upper 95 % confidence bounds of gaps in the population. A value that these rows cannot give (one row in a slice) is
    None.

    Parameters
    ----------
    constraints
        Constraints over all rows together.
    cut
        Score above which a row is decided positive, or one for each group.
    """
    if any(isinstance(rows.names, NumericTargets) for rows in parts.values()):
        return _of_numbers(parts, scores, constraints)
    cuts = {name: cut.of_rows(rows.groups) for name, rows in parts.items()}
    said = {name: _population(rows, scores[name], cuts[name]) for name, rows in parts.items()}
    return {
        "quality": {name: _quality(rows, scores[name], cuts[name]) for name, rows in parts.items()},
        **{
            kind: {name: one[kind] for name, one in said.items()} for kind in ("intervals", "standard_errors", "bounds")
        },
        "constraints": {name: _held(constraints, rows, scores[name], cuts[name]) for name, rows in parts.items()},
        "groups": {name: _counts(rows, scores[name], cuts[name]) for name, rows in parts.items()},
        "performance": {name: _performance(rows, scores[name], cuts[name]) for name, rows in parts.items()},
        **_by_class(parts, scores),
        **_by_presence(parts, scores, cuts),
    }


def explained(rows: QualityRows, scores: Array) -> float | None:
    """Return the share of the deviance of targets that the model explains; None if all targets are equal."""
    assert isinstance(rows.names, NumericTargets)
    return _number(deviance_explained(rows.names.function, rows.labels, scores, rows.sample_weight))


def _of_numbers(
    parts: Mapping[str, QualityRows], scores: Mapping[str, Array], constraints: Sequence[Constraint]
) -> dict[str, Any]:
    """Return what `quality` does, for targets that are numbers; sample weights are exposures and count here."""
    found: dict[str, Any] = {
        kind: {}
        for kind in (
            *("quality", "intervals", "standard_errors", "bounds", "constraints", "groups", "performance", "deciles"),
        )
    }
    for name, rows in parts.items():
        assert isinstance(rows.names, NumericTargets)
        loss, told, weights = rows.names.function, scores[name], rows.sample_weight
        metrics = regression_metrics(loss, rows.labels, told, rows.groups, weights)
        found["quality"][name] = {key: _number(value) for key, (value, _) in metrics.items()}
        found["standard_errors"][name] = {key: _number(error) for key, (_, error) in metrics.items()}
        found["intervals"][name] = {
            key: [value - Z * error, value + Z * error]
            for key, (value, error) in metrics.items()
            if np.isfinite(value + error) and not key.endswith("_gap")
        }
        found["bounds"][name] = {}
        found["constraints"][name] = (
            []
            if rows.groups is None and any(one.compares_groups for one in constraints)
            else held_constraints(constraints, loss, rows.labels, told, rows.compared, weights)
        )
        found["groups"][name] = by_group(loss, rows.labels, told, rows.groups, weights)
        found["performance"][name] = []
        found["deciles"][name] = by_decile(loss, rows.labels, told, weights)
    return found


def _by_class(parts: Mapping[str, QualityRows], scores: Mapping[str, Array]) -> dict[str, Any]:
    """Return the metrics of each class, if there are three or more."""
    found = {
        name: class_metrics(rows.labels.astype(np.int64), scores[name], rows.names.classes)
        for name, rows in parts.items()
        if isinstance(rows.names, Classes)
    }
    return {"classes": found} if found else {}


def _by_presence(
    parts: Mapping[str, QualityRows], scores: Mapping[str, Array], cuts: Mapping[str, float | Array]
) -> dict[str, Any]:
    """Return metrics of each pattern of presence, and what presence tells of groups and labels."""
    found = {}
    for name, rows in parts.items():
        if rows.presence is None:
            continue
        given = {str(party): held.to_numpy() for party, held in rows.presence.items()}
        patterns = frequent(patterns_of(given)) if rows.patterns is None else rows.patterns.to_numpy()
        told: dict[str, Any] = {"label": rows.named_labels}
        if rows.groups is not None:
            told |= {str(attribute): column for attribute, column in rows.groups.items()}
        found[name] = {
            "patterns": by_pattern(*_decisions(rows, scores[name], cuts[name]), rows.groups, patterns, rows.classes),
            "tells": told_by_presence(rows.presence, told, patterns),
        }
    return {"presence": found} if found else {}


def _decisions(rows: QualityRows, scores: Array, cut: float | Array) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return labels and decisions: whether positive, or the places of classes."""
    if rows.classes:
        return rows.labels.astype(np.int64), scores.argmax(axis=1)
    return rows.labels > 0, scores > cut


def _performance(rows: QualityRows, scores: Array, cut: float | Array) -> list[dict[str, Any]]:
    if isinstance(rows.names, Classes):
        return []
    return performance(rows.labels, scores, [] if rows.groups is None else read_attributes(rows.groups), cut=cut)


def _counts(rows: QualityRows, scores: Array, cut: float | Array) -> list[dict[str, Any]]:
    if rows.groups is None:
        return []
    if isinstance(rows.names, Classes):
        truth, count = rows.labels.astype(np.int64), len(rows.names.classes)
        return group_confusions(truth, scores.argmax(axis=1), count, rows.groups)
    return group_counts(rows.named_labels, scores, **rows.keywords, cut=cut)


def right_decisions(rows: QualityRows, scores: Array, cut: float | Array = 0.0) -> Booleans:
    """Return whether each row's label equals the decision."""
    if isinstance(rows.names, Classes):
        return (scores.argmax(axis=1) if scores.ndim == 2 else scores) == rows.labels
    return (scores > cut) == (rows.labels > 0)


def _quality(rows: QualityRows, scores: Array, cut: float | Array = 0.0) -> dict[str, float]:
    if rows.groups is None:
        return {"accuracy": float(np.mean(right_decisions(rows, scores, cut)))}
    if isinstance(rows.names, Classes):
        return {str(name): float(value) for name, value in _of_classes(rows, scores)["estimate"].items()}
    # Pass labels by their own names, so that error messages use them.
    return summary(rows.named_labels, scores, **rows.keywords, cut=cut)


def _of_classes(rows: QualityRows, scores: Array) -> pd.DataFrame:
    """Return the metrics of three classes or more: each class against the rest, and the worst of them."""
    told, decided = rows.named_labels, rows.names.named(scores)
    found = decision_intervals(told, decided, sensitive_features=rows.groups, skip_unmeasurable=True)
    return found.rename(index={"demographic_parity": "DP", "equal_opportunity": "DFN"}).loc[["accuracy", "DP", "DFN"]]


def _population(rows: QualityRows, scores: Array, cut: float | Array) -> dict[str, dict[str, Any]]:
    """Return what these rows imply for the population: intervals, standard errors and bounds of metrics."""
    if rows.groups is None:
        right = float(np.sum(right_decisions(rows, scores, cut)))
        error = float(np.sqrt(rate_variance(right, len(scores))))
        return {"intervals": {}, "standard_errors": {"accuracy": error}, "bounds": {}}
    if isinstance(rows.names, Classes):
        found = _of_classes(rows, scores)
    else:
        found = intervals(rows.named_labels, scores, **rows.keywords, cut=cut)
    return {
        "intervals": {str(name): [float(low), float(high)] for name, low, high in found[["low", "high"]].itertuples()},
        "standard_errors": {str(name): _number(error) for name, error in found["standard_error"].items()},
        "bounds": {str(name): _number(bound) for name, bound in found["bound"].items() if not np.isnan(bound)},
    }


def _held(
    constraints: Sequence[Constraint], rows: QualityRows, scores: Array, cut: float | Array
) -> list[dict[str, Any]]:
    """Return how well each constraint holds on these rows, and in the population."""
    if rows.groups is None and any(one.compares_groups for one in constraints):
        return []
    if isinstance(rows.names, Classes):
        return held_constraints(constraints, SOFTMAX, rows.labels, scores.T, rows.compared)
    names, keywords = rows.named_labels, {**rows.keywords, "sensitive_features": rows.compared}
    found = []
    for constraint in constraints:
        own, at = scores, cut
        if isinstance(at, np.ndarray):
            own, at = (scores if getattr(constraint, "measure", "loss") == "loss" else scores - at), 0.0
        try:
            table = constraint_gaps(constraint, names, own, **keywords, cut=at)
        except (ConstraintError, DataError):
            # With few test rows a slice may be empty, and its constraint has no value.
            continue
        line = {str(name): plain(value) for name, value in table.reset_index().iloc[0].items()}
        found.append({name: _number(value) if isinstance(value, float) else value for name, value in line.items()})
    return found


def _number(value: float) -> float | None:
    """Return None for infinity, which JSON does not have."""
    return float(value) if np.isfinite(value) else None
