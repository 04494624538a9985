"""Show metrics by group: rates with intervals, confusion counts and calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from evenhand.metrics.performance import PERFORMANCE, wilson
from evenhand.report.page.answers import PARTS, part_shown
from evenhand.report.page.calibration import calibration
from evenhand.report.page.charts import Interval, interval_chart
from evenhand.report.page.markup import Markup, definitions, details, joined, section, table, tag
from evenhand.report.record import RunRecord

Counts = Mapping[str, Any]
RATES: Final[dict[str, tuple[str, Callable[[Counts], tuple[int, int]]]]] = {
    "selection rate": (
        "among all rows of the group",
        lambda one: (one["true_positives"] + one["false_positives"], _rows(one)),
    ),
    "false-positive rate": (
        "among negatives",
        lambda one: (one["false_positives"], one["false_positives"] + one["true_negatives"]),
    ),
    "false-negative rate": (
        "among positives",
        lambda one: (one["false_negatives"], one["false_negatives"] + one["true_positives"]),
    ),
    "error rate": (
        "among all rows of the group",
        lambda one: (one["false_positives"] + one["false_negatives"], _rows(one)),
    ),
}
"""Name, population, and (count, total) from a group's counts."""


def _rows(one: Counts) -> int:
    names = ("true_positives", "false_positives", "false_negatives", "true_negatives")
    return sum(int(one[name]) for name in names)


def performance(record: RunRecord, identifier: str) -> Markup:
    """Return the section about ranking and decisions: for everybody, and for each group."""
    part = part_shown(record)
    found = record.result.get("performance", {}).get(part, [])
    if not found:
        return Markup("")
    names = ["everybody", *(f"{one['attribute']} {one['group']}" for one in found[1:])]
    columns = ["metric", *(f"{name} ({one['rows']:,})" for name, one in zip(names, found, strict=True))]
    rows = [[name, *(estimate(one["metrics"][name]) for one in found)] for name in PERFORMANCE]
    return section(
        identifier,
        f"Ranking and decisions on {PARTS[part]} rows",
        tag("p", cut_sentence(record.result)),
        table(columns, rows, caption="Values with 95 % intervals", numbers=range(1, len(columns))),
        details("What these mean", definitions(PERFORMANCE)),
        level=3,
    )


def estimate(one: Sequence[float | None]) -> tuple[str, float] | str:
    """Return a table's cell with a value and its interval; empty without a value."""
    value, low, high = one
    if value is None:
        return ""
    return (f"{value:.3f}" if low is None or high is None else f"{value:.3f} ({low:.3f} to {high:.3f})"), value


def cut_sentence(result: Mapping[str, Any]) -> str:
    """Say where decisions are cut, by which rule, and whether probabilities are recalibrated."""
    words = []
    if cut := result.get("cut"):
        by = f"probability {cut['rule']}" if cut["chosen_on"] is None else f"rule {cut['rule']} on {cut['chosen_on']}"
        if cut.get("by") is None:
            words.append(
                f"Rows with a score above {cut['score']:.3f} are selected ({by}); rates are those at this cut."
            )
        else:
            cuts = ", ".join(f"{group} above {score:.3f}" for group, score in cut["groups"].items())
            words.append(
                f"Each group of {cut['by']} has a cut of its own: {cuts} ({by}); rates are those there. "
                "Decisions use the sensitive attribute."
            )
    if given := result.get("probability"):
        words.append(
            f"Probabilities are recalibrated on {given['fitted_on']}: log-odds {given['slope']:.3f} · score "
            f"{given['intercept']:+.3f}. Decisions do not depend on it."
        )
    return " ".join(words)


def _interval(count: int, out_of: int) -> tuple[float | None, float, float]:
    share, low, high = wilson(count, out_of)
    return share, low or 0.0, high or 0.0


def people(record: RunRecord, identifier: str) -> Markup:
    """Return the section about groups; empty if the job names no sensitive attribute."""
    part = part_shown(record)
    groups = record.result.get("groups", {}).get(part, [])
    if not groups:
        return Markup("")
    attributes = list(dict.fromkeys(one["attribute"] for one in groups))
    drawn = [
        interval_chart(
            f"{name.capitalize()}, {among}, by {attribute}",
            [
                Interval(f"{one['group']} ({_rows(one):,})", *_interval(*rate(one)), group=place)
                for place, one in enumerate(_of(groups, attribute))
            ],
            x_label="share",
        )
        for attribute in attributes
        for name, (among, rate) in RATES.items()
    ]
    return section(
        identifier,
        f"Group metrics on {PARTS[part]} rows",
        tag("p", "Rates with 95 % intervals. The number of rows of each group is in brackets.", klass="soft"),
        tag("div", *drawn, klass="pair"),
        _confusion(groups, record.result.get("labels", {})),
        joined(
            calibration(_of(groups, attribute), attribute)
            for attribute in attributes
            # Between organisations the score distribution is not shared.
            if all("calibration" in one for one in _of(groups, attribute))
        ),
        level=3,
    )


def _of(groups: list[Counts], attribute: str) -> list[Counts]:
    return [one for one in groups if one["attribute"] == attribute]


def _confusion(groups: list[Counts], labels: Mapping[str, Any]) -> Markup:
    positive, negative = labels.get("positive", "positive"), labels.get("negative", "negative")
    names = ("true_positives", "false_negatives", "false_positives", "true_negatives")
    columns = [
        "group",
        "rows",
        f"{positive}, predicted {positive}",
        f"{positive}, predicted {negative}",
        f"{negative}, predicted {positive}",
        f"{negative}, predicted {negative}",
    ]
    rows = [
        [
            f"{one['attribute']} {one['group']}",
            (f"{_rows(one):,}", _rows(one)),
            *((f"{one[name]:,}", one[name]) for name in names),
        ]
        for one in groups
    ]
    return table(columns, rows, caption="Confusion matrix by group", numbers=range(1, 6))
