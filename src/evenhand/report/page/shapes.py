"""Show what each number adds to the score: its curve, the share of rows below it, and missing values beside it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from evenhand.data.tables.columns import Shape
from evenhand.report.page.charts import LEFT, RIGHT, TOP, WIDTH, Axis, dot, figure, number
from evenhand.report.page.markup import Markup, details, joined, section, table, tag, void
from evenhand.report.record import RunRecord

MOST_SHAPES: Final = 12
"""Curves drawn for each owner, those that rise or fall most; the table has all of them."""
_CURVE, _ROWS, _LABELS = 170, 40, 42
"""Heights of the curve, of the bars below it, and of the labels."""
_MISSING: Final = 54
"""Room for missing values, beside the curve."""


def shapes(record: RunRecord, identifier: str) -> Markup:
    if not record.shapes:
        return Markup("")
    every = [value for owner in record.shapes.values() for one in owner.values() for value in _contributions(one)]
    y = Axis.over(every, TOP + _CURVE, TOP, include=[0.0])
    words = (
        "What each number adds to the log odds of the positive label, on one scale for all. Zero is the mean of the "
        "training rows, or no bin. Bars are shares of the training rows. Beyond the ends a curve is constant."
    )
    parts = [joined([tag("h4", owner), _drawn(found, y), _all(owner, found)]) for owner, found in record.shapes.items()]
    return section(identifier, "Curves", tag("p", words), *parts, level=3)


def _contributions(shape: Shape) -> list[float]:
    ends = [value for pair in shape.ends for value in pair]
    return ends if shape.missing is None else [*ends, shape.missing]


def _drawn(found: Mapping[str, Shape], y: Axis) -> Markup:
    def height(name: str) -> float:
        values = _contributions(found[name])
        return max(values) - min(values)

    largest = sorted(found, key=height, reverse=True)[:MOST_SHAPES]
    return tag("div", *(_chart(name, found[name], y) for name in largest), klass="pair")


def _chart(name: str, shape: Shape, y: Axis) -> Markup:
    right = WIDTH - RIGHT - (0 if shape.missing is None else _MISSING)
    width = (right - LEFT) / len(shape.ends)
    places = [LEFT + width * knot for knot in range(len(shape.values))]
    bottom = TOP + _CURVE
    base = bottom + 8 + _ROWS
    drawn = [tag("text", "log odds", klass="axis", x=0, y=TOP - 16)]
    for tick in y.ticks(5):
        drawn += [
            void("line", klass="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=y.at(tick), y2=y.at(tick)),
            tag("text", number(tick), klass="tick", x=LEFT - 6, y=y.at(tick) + 4, text_anchor="end"),
        ]
    drawn.append(void("line", klass="mark", x1=LEFT, x2=WIDTH - RIGHT, y1=y.at(0.0), y2=y.at(0.0)))
    for (start, end), (low, high), share in zip(pairwise(places), shape.ends, shape.shares, strict=True):
        tall = round(_ROWS * share / max(shape.shares), 1)
        drawn += [
            void("rect", klass="rows", x=round(start + 2), y=base - tall, width=round(end - start - 4), height=tall),
            tag("text", f"{share:.0%}", klass="tick", x=(start + end) / 2, y=base - 4, text_anchor="middle"),
            void("line", klass="line c0", x1=start, x2=end, y1=y.at(low), y2=y.at(high)),
        ]
    for place, (at, value) in enumerate(zip(places, shape.values, strict=True)):
        drawn.append(_label(number(value), round(at, 1), base, place))
        sides = {high for _, high in shape.ends[:place][-1:]} | {low for low, _ in shape.ends[place:][:1]}
        drawn += [dot(round(at, 1), y.at(one), 0, f"{name} {number(value)}: {number(one)}") for one in sorted(sides)]
    if shape.missing is not None:
        at = WIDTH - RIGHT - _MISSING / 3
        drawn.append(dot(at, y.at(shape.missing), 1, f"{name} missing: {number(shape.missing)}"))
        drawn.append(_label("missing", at, base, len(places)))
    return figure(name, drawn, (WIDTH, base + _LABELS))


def _label(words: str, at: float, base: float, place: int) -> Markup:
    """Write a label below its place; neighbours are on two lines, so that long numbers do not touch."""
    return tag("text", words, klass="tick", x=at, y=base + 16 + 15 * (place % 2), text_anchor="middle")


def _all(owner: str, found: Mapping[str, Shape]) -> Markup:
    rows = []
    for name, shape in found.items():
        for (low, high), ends, share in zip(pairwise(shape.values), shape.ends, shape.shares, strict=True):
            parts = [(number(value, 4), value) for value in (low, high, *ends)]
            rows.append([name, *parts, (f"{share:.1%}", share)])
        if shape.missing is not None:
            rows.append([name, "missing", "", *[(number(shape.missing, 4), shape.missing)] * 2, ""])
    heads = ["column", "from", "to", "log odds at from", "log odds at to", "training rows"]
    return details(f"All {len(found)}", table(heads, rows, caption=f"{owner}: curves", numbers=(1, 2, 3, 4, 5)))
