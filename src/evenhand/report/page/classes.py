"""Show how a model of three classes or more decides: each class against the rest, confusion matrices, groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from evenhand.metrics.classes import CLASSES
from evenhand.metrics.performance import wilson
from evenhand.report.page.answers import PARTS, part_shown
from evenhand.report.page.calibration import squares
from evenhand.report.page.charts import Interval, interval_chart, number
from evenhand.report.page.markup import Markup, definitions, details, joined, section, table, tag
from evenhand.report.page.people import estimate
from evenhand.report.record import RunRecord

MOST_CLASSES: Final = 8
"""Classes with charts of rates by group; the table has all of them."""


def classes(record: RunRecord, identifier: str) -> Markup:
    """Return the section about each class: metrics, the confusion matrix and calibration."""
    part = part_shown(record)
    found = record.result.get("classes", {}).get(part)
    if found is None:
        return Markup("")
    names = [one["label"] for one in found["metrics"]]
    columns = ["metric", *(f"{one['label']} ({one['positives']:,})" for one in found["metrics"])]
    rows = [[name, *(estimate(one["metrics"][name]) for one in found["metrics"])] for name in CLASSES]
    loss, low, high = found["log_loss"]
    spread = "" if low is None else f" ({number(low)} to {number(high)})"
    return section(
        identifier,
        f"Classes on {PARTS[part]} rows",
        tag(
            "p",
            "The class with the highest score is predicted. Each class is measured against all others; the number of "
            f"its rows is in brackets. Mean log loss: {number(loss)}{spread}.",
        ),
        table(columns, rows, caption="Values with 95 % intervals", numbers=range(1, len(columns))),
        details("What these mean", definitions(CLASSES)),
        _matrix(found["confusion"], names, "Confusion matrix: rows by true class and predicted class"),
        squares(names, found["calibration"], "Calibration by class", "the class"),
        level=3,
    )


def _matrix(counts: Sequence[Sequence[int]], names: Sequence[str], caption: str) -> Markup:
    columns = ["true class", *(f"predicted {name}" for name in names), "rows"]
    rows = [
        [name, *((f"{count:,}", count) for count in [*line, sum(line)])]
        for name, line in zip(names, counts, strict=True)
    ]
    return table(columns, rows, caption=caption, numbers=range(1, len(columns)))


def class_groups(record: RunRecord, identifier: str) -> Markup:
    """Return the section about groups; empty if the job names no sensitive attribute."""
    part = part_shown(record)
    groups = record.result.get("groups", {}).get(part, [])
    if not groups:
        return Markup("")
    names = [str(one) for one in record.result["labels"]["classes"]]
    attributes = list(dict.fromkeys(one["attribute"] for one in groups))
    charts = [
        interval_chart(
            f"{title} {name}, {among}, by {attribute}",
            [_whisker(one, place, hits, number) for number, one in enumerate(_of(groups, attribute))],
            x_label="share",
        )
        for attribute in attributes
        for place, name in enumerate(names[:MOST_CLASSES])
        for title, among, hits in (
            ("Predicted", "among all rows of the group", False),
            ("Right decisions for", "among its rows in the group", True),
        )
    ]
    left = len(names) - MOST_CLASSES
    return section(
        identifier,
        f"Group metrics on {PARTS[part]} rows",
        tag(
            "p",
            "Rates with 95 % intervals. The number of rows that a rate is among is in brackets."
            + (f" {left} more classes are in the table only." if left > 0 else ""),
            klass="soft",
        ),
        tag("div", *charts, klass="pair"),
        _rates(groups, names),
        joined(
            details(
                f"Confusion matrix of {one['attribute']} {one['group']}",
                _matrix(one["confusion"], names, f"Confusion matrix of {one['attribute']} {one['group']}"),
            )
            for one in groups
        ),
        level=3,
    )


def _of(groups: Sequence[Mapping[str, Any]], attribute: str) -> list[Mapping[str, Any]]:
    return [one for one in groups if one["attribute"] == attribute]


def _counts(one: Mapping[str, Any], place: int, hits: bool) -> tuple[int, int]:
    """Return how often a class is predicted among all rows of a group, or among its own rows."""
    counts = np.array(one["confusion"])
    if hits:
        return int(counts[place, place]), int(counts[place].sum())
    return int(counts[:, place].sum()), int(counts.sum())


def _whisker(one: Mapping[str, Any], place: int, hits: bool, group: int) -> Interval:
    count, out_of = _counts(one, place, hits)
    share, low, high = wilson(count, out_of)
    return Interval(f"{one['group']} ({out_of:,})", share, low or 0.0, high or 0.0, group=group)


def _rates(groups: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Markup:
    """Return a line for each group and class: rows, and both rates."""
    rows = []
    for one in groups:
        for place, name in enumerate(names):
            predicted, right = _counts(one, place, hits=False), _counts(one, place, hits=True)
            rows.append(
                [
                    f"{one['attribute']} {one['group']}",
                    name,
                    (f"{right[1]:,}", right[1]),
                    estimate(wilson(*predicted)),
                    estimate(wilson(*right)),
                ]
            )
    columns = ["group", "class", "rows", "predicted, among all rows of the group", "right decisions, among its rows"]
    return table(columns, rows, caption="Rates by group and class", numbers=(2, 3, 4))
