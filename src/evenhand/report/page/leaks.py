"""Show the audit of a run: what each participant could infer from the messages it received."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenhand.report.page.charts import Interval, interval_chart, number
from evenhand.report.page.markup import Markup, details, joined, section, table, tag
from evenhand.report.record import RunRecord


def leaks(record: RunRecord, identifier: str) -> Markup:
    """Show the findings of the audit, or how to run one."""
    title = "Disclosure"
    stated = joined(tag("p", words) for words in _stated(record))
    if record.audit is None:
        numbers = "loss" in record.result["labels"]
        words = (
            "Not measured: the attacks of the audit are for classes."
            if numbers
            else f"Not measured yet. To measure it, run: evenhand audit {record.name}"
        )
        return section(identifier, title, stated, tag("p", words, klass="soft"), level=3)
    participants = record.audit["participants"]
    said = [
        joined([tag("h4", who), tag("ul", *(tag("li", words) for words in found["sentences"]))])
        for who, found in participants.items()
    ]
    rows = [(who, one) for who, found in participants.items() for one in found["findings"]]
    drawn = interval_chart(
        "What messages add to what each participant could guess without them; an interval above zero is a leak",
        [_lift(who, one) for who, one in rows],
        x_label="lift over the best guess without messages",
    )
    remarks = tag("ul", *(tag("li", words) for words in record.audit["remarks"])) if record.audit["remarks"] else ""
    return section(
        identifier, title, stated, *said, drawn if rows else "", details("The numbers", _table(rows)), remarks, level=3
    )


def _stated(record: RunRecord) -> list[str]:
    """Return the privacy statements of the run and the clients they hold for."""
    named: dict[str, list[str]] = {}
    for name, one in record.result.get("privacy", {}).items():
        named.setdefault(str(one["words"]), []).append(str(name))
    return [f"{', '.join(names)}: {words}" for words, names in named.items()]


def _lift(who: str, one: Mapping[str, Any]) -> Interval:
    lift = one["lift"]
    name = f"{who}: {one['attack']}, {one['sequence']} × {one['message']}"
    return Interval(name, lift["value"], lift["low"], lift["high"], group=int(one["real"]))


def _table(rows: list[tuple[str, Mapping[str, Any]]]) -> Markup:
    columns = ["who", "target", "attack", "message", "measure", "with messages", "without", "lift", "control"]
    cells = [
        [
            who,
            one["target"],
            one["attack"],
            f"{one['sequence']} × {one['message']}",
            one["measure"],
            _estimate(one["value"]),
            " / ".join(number(value) for value in one["floors"].values()),
            _estimate(one["lift"]),
            (number(one["control"]), one["control"]),
        ]
        for who, one in rows
    ]
    return table(columns, cells, caption="Every attack, with its floors and its control", numbers=(5, 6, 7, 8))


def _estimate(found: Mapping[str, float]) -> tuple[str, float]:
    return f"{number(found['value'])} ({number(found['low'])} to {number(found['high'])})", found["value"]
