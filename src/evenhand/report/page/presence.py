"""Show gaps by pattern of presence, and how far presence tells the group: for runs in which parties lack rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from evenhand.metrics.regression import Z
from evenhand.report.page.answers import PARTS, part_shown
from evenhand.report.page.markup import Markup, section, table, tag
from evenhand.report.record import RunRecord

WEAK: Final = 0.1
"""Cramér's V below which an association is usually called weak."""


def presence(record: RunRecord, identifier: str) -> Markup:
    """Return the section; empty if all parties have all rows by the job's own rule."""
    part = part_shown(record)
    found = record.result.get("presence", {}).get(part)
    if not found:
        return Markup("")
    return section(
        identifier,
        f"Rows that parties lack, on {PARTS[part]} rows",
        tag(
            "p",
            "A pattern is the set of other parties that have a person's row. A model that is fair on average can be "
            "unfair among people whom a party does not know.",
            klass="soft",
        ),
        _patterns(found["patterns"]),
        _tells(found["tells"]),
        level=3,
    )


def _patterns(patterns: Sequence[Mapping[str, Any]]) -> Markup:
    gaps = [(gap["attribute"], gap["rate"]) for one in patterns for gap in one["gaps"]]
    columns = list(dict.fromkeys(gaps))
    rows = []
    # With three classes or more nobody is positive.
    shares = {"positives": "positive", "selected": "selected", "accuracy": "accuracy"}
    shares = {name: head for name, head in shares.items() if name in patterns[0]}
    for one in patterns:
        known = {(gap["attribute"], gap["rate"]): gap for gap in one["gaps"]}
        rows.append(
            [
                one["pattern"],
                (f"{one['rows']:,}", one["rows"]),
                *((f"{one[name]:.3f}", one[name]) for name in shares),
                *(_gap(known.get(column)) for column in columns),
            ]
        )
    heads = ["also at", "rows", *shares.values(), *(f"gap of {rate}, {by}" for by, rate in columns)]
    caption = "Rates by pattern; gaps are the widest between two groups, give or take a 95 % margin"
    return table(heads, rows, caption=caption, numbers=range(1, len(heads)))


def _gap(gap: Mapping[str, Any] | None) -> tuple[str, float] | str:
    if gap is None:
        return ""
    return f"{abs(gap['gap']):.3f} ± {Z * gap['standard_error']:.3f}", abs(gap["gap"])


def _tells(columns: Sequence[Mapping[str, Any]]) -> Markup:
    rows = []
    for one in columns:
        strength = one["cramers_v"]
        for value, shares in one["shares"].items():
            rows.append(
                [
                    f"{one['of']} {value}",
                    *((f"{share:.0%}", share) for share in shares.values()),
                    "" if strength is None else (f"{strength:.2f}, {_words(one)}", strength),
                ]
            )
    parties = list(next(iter(columns[0]["shares"].values())))
    heads = ["", *(f"rows at {name}" for name in parties), "Cramér's V of presence and this column"]
    return table(heads, rows, caption="Does presence tell the group?", numbers=range(1, len(heads)))


def _words(one: Mapping[str, Any]) -> str:
    if one["p_value"] >= 0.05:
        return "no association shown"
    return "weak" if one["cramers_v"] < WEAK else "presence is a proxy"
