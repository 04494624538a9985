"""Quality of a model from clients' counts and sums of losses, without their rows.

Every metric is a function of three sums over each combination of label and groups: rows, rows decided positively, and
loss. So the server's metrics are exact. It does not learn how losses vary within a combination, so metrics of the
loss have no intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from evenhand.arrays import Array
from evenhand.constraints.thresholds import Cut
from evenhand.errors import DataError
from evenhand.jobs.horizontal.file import HorizontalJobFile
from evenhand.jobs.horizontal.rows import EncodedRows
from evenhand.jobs.horizontal.runs import constraints_over_all
from evenhand.jobs.quality import QualityRows, measurable, quality
from evenhand.jobs.tables import Labels
from evenhand.protocol.agree import Summary
from evenhand.protocol.terms import plain

_OF_LOSS: Final = ("DEO", "FR", "HM", "log_loss")


def count_decisions(rows: EncodedRows, scores: Array, cut: float | Array = 0.0) -> Summary:
    """Return a client's counts for its training and test rows: sign, groups, decision, rows, sum of losses."""
    frame = pd.DataFrame({"sign": rows.labels, "positive": scores > cut})
    groups: list[str] = []
    for name, column in () if rows.groups is None else rows.groups.items():
        frame[f"group {name}"] = [plain(value) for value in column]
        groups.append(str(name))
    frame["loss"] = np.logaddexp(0.0, -rows.labels * scores)
    keys = ["sign", *(f"group {name}" for name in groups), "positive"]
    found = {}
    for part, inside in (("train", ~rows.test), ("test", rows.test)):
        summed = frame[inside].groupby(keys, sort=True)["loss"].agg(["size", "sum"])
        found[part] = [[*map(plain, stratum), int(n), float(loss)] for stratum, n, loss in summed.itertuples()]
    return {"groups": groups, **found}


def measured_quality(job: HorizontalJobFile, labels: Labels, counts: Mapping[str, Summary], cut: Cut) -> dict[str, Any]:
    """Return the quality entries of `result.json`, from all clients' counts."""
    try:
        parts = {part: _rows(job, counts, part, cut) for part in ("train", "test")}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"a client sent counts that cannot be read: {error!r}") from error
    parts = {part: one for part, one in parts.items() if len(one)}
    rows = {part: _quality_rows(job, labels, one) for part, one in parts.items()}
    rows = measurable(rows, job.job.asks_for_test_rows)
    scores = {part: one["score"].to_numpy() for part, one in parts.items()}
    constraints = constraints_over_all(job)
    found = quality(rows, scores, constraints=constraints, cut=cut)
    for kind in ("intervals", "standard_errors", "bounds"):
        for one in found[kind].values():
            for name in _OF_LOSS:
                one.pop(name, None)
    # The spread of the scores is unknown.
    del found["performance"]
    for groups in found["groups"].values():
        for one in groups:
            del one["calibration"]
    of_loss = {one.kind for one in constraints if getattr(one, "measure", "loss") == "loss"}
    for lines in found["constraints"].values():
        for line in lines:
            if line["constraint"] in of_loss:
                line["standard_error"] = line["bound"] = None
    return {**found, "clients": {name: _of_client(job, counts, name, cut) for name in counts}}


def scores_of(counts: Mapping[str, Summary], job: HorizontalJobFile, cut: Cut) -> tuple[Array, pd.DataFrame]:
    """Return stand-in scores of the training rows, with the same decisions as the true scores, and their groups."""
    found = _rows(job, counts, "train", cut)
    return found["score"].to_numpy(), found[job.data.sensitive]


def no_groups(job: HorizontalJobFile) -> pd.DataFrame:
    """Return the groups of no rows."""
    return pd.DataFrame({name: [] for name in job.data.sensitive})


def _rows(job: HorizontalJobFile, counts: Mapping[str, Summary], part: str, cut: Cut) -> pd.DataFrame:
    """Return one stand-in row for each counted row, with its combination's mean loss and the same decision."""
    names = job.data.sensitive
    columns = ["sign", *names, "positive", "rows", "loss"]
    listed = []
    for name, one in counts.items():
        if list(one["groups"]) != names:
            raise ValueError(f"{name} counts by {one['groups']}")
        listed += [dict(zip(columns, stratum, strict=True)) for stratum in one[part]]
    frame = pd.DataFrame(listed, columns=columns)
    if not len(frame):
        return frame.assign(score=[])
    signs, n, losses = (frame[name].to_numpy(dtype=np.float64) for name in ("sign", "rows", "loss"))
    score: Array = -signs * np.log(np.maximum(np.expm1(losses / n), 1e-300))
    # Losses with the same decision lie on one side of that at the cut. So does their mean, except for rounding.
    at = np.broadcast_to(cut.of_rows(frame), len(frame))
    above = np.where(at == 0.0, np.finfo(np.float64).tiny, np.nextafter(at, np.inf))
    positive = frame["positive"].to_numpy(dtype=bool)
    frame = frame.assign(score=np.where(positive, np.maximum(score, above), np.minimum(score, at)))
    return frame.iloc[np.repeat(np.arange(len(frame)), n.astype(int))].reset_index(drop=True)


def _quality_rows(job: HorizontalJobFile, labels: Labels, rows: pd.DataFrame) -> QualityRows:
    names = job.data.sensitive
    return QualityRows(rows["sign"].to_numpy(dtype=np.float64), rows[names] if names else None, names=labels)


def _of_client(job: HorizontalJobFile, counts: Mapping[str, Summary], name: str, cut: Cut) -> dict[str, Any]:
    """Return a client's number of rows, and the model's accuracy on them."""
    found = {}
    for part in ("train", "test"):
        rows = _rows(job, {name: counts[name]}, part, cut)
        if len(rows):
            right = (rows["score"] > cut.of_rows(rows)) == (rows["sign"] > 0)
            found[part] = {"rows": len(rows), "accuracy": float(right.mean())}
    return found
