"""Show how predictions of numbers fit: against the targets by tenths, and residuals by group."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.metrics.regression import MEANINGS
from evenhand.report.page.answers import PARTS, part_shown
from evenhand.report.page.charts import Interval, interval_chart, number
from evenhand.report.page.markup import Markup, definitions, details, section, table, tag
from evenhand.report.record import RunRecord


def fit(record: RunRecord, identifier: str) -> Markup:
    """Return the section about metrics, and predicted against observed means by tenths of the rows."""
    part = part_shown(record)
    found = record.result["quality"][part]
    errors = record.result.get("standard_errors", {}).get(part, {})
    metrics = [[name, _cell(value), _cell(errors.get(name)), MEANINGS[name]] for name, value in found.items()]
    tenths = record.result.get("deciles", {}).get(part, [])
    lines = [
        [str(place), (f"{one['rows']:,}", one["rows"]), _cell(one["prediction"][0]), _span(one["target"])]
        for place, one in enumerate(tenths, 1)
    ]
    drawn = [_whisker(f"{place}: predicted {number(one['prediction'][0])}", one["target"], 0)
             for place, one in enumerate(tenths, 1)]  # fmt: skip
    return section(
        identifier,
        f"Predictions on {PARTS[part]} rows",
        table(["metric", "value", "± s.e.", "meaning"], metrics, caption="Metrics", numbers=(1, 2)),
        tag("p", "Rows in ten parts of equal size, from the lowest to the highest prediction.", klass="soft"),
        interval_chart("Mean target with its 95 % interval, by tenths of the predictions", drawn, x_label="target"),
        details(
            "The same as a table",
            table(["part", "rows", "mean prediction", "mean target"], lines, caption="By tenths", numbers=(1, 2, 3)),
        ),
        details("What these mean", definitions({name: MEANINGS[name] for name in found})),
        level=3,
    )


def residuals(record: RunRecord, identifier: str) -> Markup:
    """Return the section about groups; empty if the job names no sensitive attribute."""
    part = part_shown(record)
    groups = record.result.get("groups", {}).get(part, [])
    if not groups:
        return Markup("")
    charts = [
        interval_chart(
            f"{title}, by {attribute}",
            [_whisker(f"{one['group']} ({one['rows']:,})", one[key], place) for place, one in enumerate(own)],
            x_label=label,
        )
        for attribute in dict.fromkeys(one["attribute"] for one in groups)
        for own in [[one for one in groups if one["attribute"] == attribute]]
        for key, title, label in (
            ("prediction", "Mean prediction", "prediction"),
            ("residual", "Mean residual, target minus prediction", "residual"),
            ("loss", "Mean loss", "half deviance"),
        )
    ]
    rows = [
        [
            f"{one['attribute']} {one['group']}",
            (f"{one['rows']:,}", one["rows"]),
            *(_span(one[key]) for key in ("target", "prediction", "residual", "loss")),
        ]
        for one in groups
    ]
    columns = ["group", "rows", "mean target", "mean prediction", "mean residual", "mean loss"]
    return section(
        identifier,
        f"Groups on {PARTS[part]} rows",
        tag("p", "Means with 95 % intervals. The number of rows of each group is in brackets.", klass="soft"),
        tag("div", *charts, klass="pair"),
        table(columns, rows, caption="Means by group", numbers=range(1, 6)),
        level=3,
    )


def _whisker(name: str, one: Sequence[float | None], place: int) -> Interval:
    value, low, high = one
    middle = 0.0 if value is None else value
    return Interval(name, value, middle if low is None else low, middle if high is None else high, group=place)


def _span(one: Sequence[float | None]) -> tuple[str, float] | str:
    value, low, high = one
    if value is None:
        return ""
    words = number(value) if low is None or high is None else f"{number(value)} ({number(low)} to {number(high)})"
    return words, value


def _cell(value: float | None) -> tuple[str, float] | str:
    return "" if value is None else (number(value), value)
