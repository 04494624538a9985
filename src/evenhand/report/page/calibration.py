"""Draw calibration: the share of positives at each predicted probability, in squares of the same size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from evenhand.metrics.performance import wilson
from evenhand.report.page.charts import Axis, dot, figure, frame, number, whisker
from evenhand.report.page.markup import Markup, joined, tag, void

_LEFT, _TOP, _BOTTOM, _SIDE = 48, 30, 46, 240
MOST_GROUPS: Final = 12
"""Squares drawn; the table of counts has all groups."""


def calibration(groups: Sequence[Mapping[str, Any]], attribute: str) -> Markup:
    """Return a square for each group."""
    names = [f"{attribute} {one['group']}" for one in groups]
    return squares(names, [one["calibration"] for one in groups], f"Calibration by {attribute}")


def squares(
    names: Sequence[str], bins: Sequence[Sequence[Sequence[Any]]], title: str, what: str = "positives"
) -> Markup:
    """Return a square for each name: points with 95 % intervals, on the dotted line if probabilities are right."""
    drawn = [_square(name, one, place, what) for place, (name, one) in enumerate(zip(names, bins, strict=True))]
    more = len(drawn) - MOST_GROUPS
    return joined(
        [
            tag("h4", title),
            tag(
                "p",
                "Each point is a tenth of the probabilities. Its whisker is a 95 % interval; on the dotted line the "
                f"probabilities are right.{f' {more} more are not drawn.' if more > 0 else ''}",
                klass="soft",
            ),
            tag("div", *drawn[:MOST_GROUPS], klass="squares"),
        ]
    )


def _square(name: str, bins: Sequence[Sequence[Any]], place: int, what: str) -> Markup:
    x, y = Axis(0.0, 1.0, _LEFT, _LEFT + _SIDE), Axis(0.0, 1.0, _TOP + _SIDE, _TOP)
    drawn = [
        frame(x, y, "predicted probability", f"share of {what}"),
        void("polyline", klass="mark", points=f"{x.start},{y.start} {x.end},{y.end}"),
    ]
    for rows, positives, mean in bins:
        share, low, high = wilson(positives, rows)
        if share is None or low is None or high is None or mean is None:
            continue
        at = x.at(mean)
        tip = f"{name}: {positives:,} of {rows:,} are {what} at {number(mean)} ({number(low)} to {number(high)})"
        drawn += [whisker((at, at), (y.at(low), y.at(high)), place), dot(at, y.at(share), place, tip, size=4)]
    return figure(name, drawn, (_LEFT + _SIDE + 16, _TOP + _SIDE + _BOTTOM))
