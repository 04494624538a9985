"""Show what each party's data is worth, if `evenhand value` has measured it."""

from __future__ import annotations

from evenhand.metrics.regression import Z
from evenhand.report.page.charts import Interval, interval_chart
from evenhand.report.page.markup import Markup, section, table, tag
from evenhand.report.record import RunRecord


def values(record: RunRecord, identifier: str) -> Markup:
    """Return the section; empty if values were not measured."""
    found = record.values
    if found is None:
        return Markup("")
    gained = found["label holder alone"] - found["all parties"]
    drawn = interval_chart(
        f"How much each party lowers the mean {found['loss']} loss on held-out rows, with 95 % intervals",
        [
            Interval(
                one["party"],
                one["value"],
                one["value"] - Z * one["standard_error"],
                one["value"] + Z * one["standard_error"],
            )
            for one in found["parties"]
        ],
        x_label="lower loss",
    )
    how = "all coalitions" if found["orders"] is None else f"{found['orders']} random orders"
    rows = [
        [
            one["party"],
            (f"{one['value']:+.5f}", one["value"]),
            (f"{one['standard_error']:.5f}", one["standard_error"]),
            (f"{one['value'] / gained:.0%}", one["value"] / gained) if gained > 0 else "",
        ]
        for one in found["parties"]
    ]
    return section(
        identifier,
        "What each party's data is worth",
        tag(
            "p",
            f"The loss on {found['rows']:,} held-out rows is {found['label holder alone']:.4f} with {found['holder']} "
            f"alone, which holds the labels, and {found['all parties']:.4f} with all parties. Shapley values share the "
            f"difference between the others, over {how} ({found['trainings']} trainings).",
        ),
        drawn,
        table(["party", "value", "standard error", "share"], rows, caption="Shapley values", numbers=range(1, 4)),
        level=3,
    )
