"""Quality of the scores of new rows, if the tables have labels, and remarks about the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from evenhand.data.tables.readers import TableSource, read_table
from evenhand.errors import DataError
from evenhand.jobs.quality import QualityRows, quality
from evenhand.jobs.tables import Classes, labels_of

SCORED = "scored"


class NewRows(NamedTuple):
    """Scores of new rows, remarks about the rows, and the quality of the scores if there are labels.

    `measured` has the form of a run's result, with the part ``"scored"``.
    """

    scores: pd.DataFrame
    remarks: list[str]
    measured: dict[str, Any] | None


def read_beside(source: TableSource, label: str, sensitive: list[str]) -> pd.DataFrame | None:
    """Return labels and groups of a table by id, if it has labels; groups only if all sensitive columns exist."""
    frame = read_table(replace(source, types={}))
    if label not in frame.columns:
        return None
    groups = sensitive if all(name in frame.columns for name in sensitive) else []
    return frame[[label, *groups]]


def measured(
    scored: pd.DataFrame, beside: pd.DataFrame | None, label: str, labels: Mapping[str, Any]
) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the quality of scores on the rows with a label, and remarks about it."""
    if beside is None:
        return None, []
    known = beside[beside[label].notna()]
    names = labels_of(labels)
    said = names.classes if isinstance(names, Classes) else names
    if strange := known[label][~known[label].isin(list(said))].unique().tolist():
        return None, [f"{label!r} has values that the model does not know, such as {strange[0]!r}: nothing is measured"]
    known = known.set_axis(known.index.map(str))
    # With three classes or more, only the predicted class counts.
    column = names.signs(scored["prediction"]) if isinstance(names, Classes) else scored["score"].to_numpy()
    scores = pd.Series(column, scored.index)
    there = scores.set_axis(scores.index.map(str))
    there = there[there.index.isin(known.index)]
    known = known.loc[there.index]
    groups = known.drop(columns=label)
    rows = QualityRows(names.signs(known[label]), groups if groups.shape[1] else None, names=names)
    try:
        found = quality({SCORED: rows}, {SCORED: there.to_numpy()})
    except DataError as error:
        return None, [f"the tables have labels, but nothing is measured: {error}"]
    return found, [] if len(there) == len(scores) else [f"{len(there):,} of {len(scores):,} rows scored have a label"]


def file_in_place(source: TableSource, table: Path | None) -> TableSource:
    """Return a table's source, or the given file in its place."""
    return source if table is None else replace(source, table=table.absolute(), database=None, sql=None)
