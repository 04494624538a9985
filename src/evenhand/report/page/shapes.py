"""Show what each number adds to the score: its curve, the share of rows below it, and missing values beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from evenhand.data.tables.columns import Shape
from evenhand.report.page.charts import COLOURS, LEFT, RIGHT, TOP, WIDTH, Axis, dot, figure, number, whisker
from evenhand.report.page.markup import Markup, details, joined, section, table, tag, void
from evenhand.report.record import RunRecord

MOST_SHAPES: Final = 12
"""Curves drawn for each owner, those that rise or fall most; the table has all of them."""
_CURVE, _ROWS, _LABELS = 170, 40, 42
"""Heights of the curve, of the bars below it, and of the labels."""
_MISSING: Final = 54
"""Room for missing values, beside the curve."""
Z: Final = 1.96
"""Standard errors on each side of a 95 % interval."""
_BANDS: Final = (
    " The band is a 95 % interval at each value, from the rows this model was trained on. It takes the other "
    "participants' parts of the score as given: where their columns are correlated with these, the true band is wider."
)
_SCALE: Final[Mapping[str, str]] = {"binary": "the log odds of the positive label", "numbers": "the score"}


def shapes(record: RunRecord, identifier: str) -> Markup:
    if not record.shapes:
        return Markup("")
    drawn = [one for owner in record.shapes.values() for one in owner.values()]
    every = [value for one in drawn for value in _contributions(one)]
    # Wide bands of rare values are cut off rather than flatten all curves.
    room = max(every) - min(every)
    reached = [min(max(end, min(every) - room), max(every) + room) for one in drawn for end in _band_ends(one)]
    y = Axis.over([*every, *reached], TOP + _CURVE, TOP, include=[0.0])
    several = record.target == "classes"
    names = [str(one) for one in record.result["labels"]["classes"]] if several else [""]
    added = "the score of each class" if several else _SCALE[record.target]
    words = (
        f"What each number adds to {added}, on one scale for all. Zero is the mean of the training rows, or no bin. "
        "Bars are shares of the training rows. Beyond the ends a curve is constant."
    )
    if reached:
        words += _BANDS
    parts = [
        joined([tag("h4", owner), _drawn(found, y, names), _all(owner, found, names)])
        for owner, found in record.shapes.items()
    ]
    return section(identifier, "Curves", tag("p", words), *parts, level=3)


def _band_ends(shapes: Sequence[Shape]) -> list[float]:
    return [
        value + side * Z * error
        for one in shapes
        for pair, errors in zip(one.ends, one.errors or (), strict=one.errors is not None)
        for value, error in zip(pair, errors, strict=True)
        for side in (-1.0, 1.0)
    ]


def _contributions(shapes: Sequence[Shape]) -> list[float]:
    found = [value for one in shapes for pair in one.ends for value in pair]
    return found + [one.missing for one in shapes if one.missing is not None]


def _drawn(found: Mapping[str, Sequence[Shape]], y: Axis, names: Sequence[str]) -> Markup:
    def height(name: str) -> float:
        values = _contributions(found[name])
        return max(values) - min(values)

    largest = sorted(found, key=height, reverse=True)[:MOST_SHAPES]
    return tag("div", *(_chart(name, found[name], y, names) for name in largest), klass="pair")


def _chart(name: str, shapes: Sequence[Shape], y: Axis, names: Sequence[str]) -> Markup:
    """Draw a column's curve, or one for each class; segments and shares are the same for all."""
    first = shapes[0]
    right = WIDTH - RIGHT - (0 if first.missing is None else _MISSING)
    width = (right - LEFT) / len(first.ends)
    places = [LEFT + width * knot for knot in range(len(first.values))]
    base = TOP + _CURVE + 8 + _ROWS
    drawn = [tag("text", "score", klass="axis", x=0, y=TOP - 16)]
    for tick in y.ticks(5):
        drawn += [
            void("line", klass="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=y.at(tick), y2=y.at(tick)),
            tag("text", number(tick), klass="tick", x=LEFT - 6, y=y.at(tick) + 4, text_anchor="end"),
        ]
    drawn.append(void("line", klass="mark", x1=LEFT, x2=WIDTH - RIGHT, y1=y.at(0.0), y2=y.at(0.0)))
    for (start, end), share in zip(pairwise(places), first.shares, strict=True):
        tall = round(_ROWS * share / max(first.shares), 1)
        drawn += [
            void("rect", klass="rows", x=round(start + 2), y=base - tall, width=round(end - start - 4), height=tall),
            tag("text", f"{share:.0%}", klass="tick", x=(start + end) / 2, y=base - 4, text_anchor="middle"),
        ]
    drawn += [
        _label(number(one), round(at, 1), base, place)
        for place, (at, one) in enumerate(zip(places, first.values, strict=True))
    ]
    for place, (own, shape) in enumerate(zip(names, shapes, strict=True)):
        drawn += _curve(f"{name} {own}".rstrip(), shape, places, y, place)
    if first.missing is not None:
        drawn.append(_label("missing", WIDTH - RIGHT - _MISSING / 3, base, len(places)))
    return figure(name, drawn, (WIDTH, base + _LABELS), names)


def _curve(name: str, shape: Shape, places: Sequence[float], y: Axis, place: int) -> list[Markup]:
    """Draw one curve, its values at the ends of segments, and that of missing values."""
    drawn = _band(shape, places, y, place)
    drawn += [
        void("line", klass=f"line c{place % COLOURS}", x1=start, x2=end, y1=y.at(low), y2=y.at(high))
        for (start, end), (low, high) in zip(pairwise(places), shape.ends, strict=True)
    ]
    for knot, (at, value) in enumerate(zip(places, shape.values, strict=True)):
        sides = {high for _, high in shape.ends[:knot][-1:]} | {low for low, _ in shape.ends[knot:][:1]}
        drawn += [
            dot(round(at, 1), y.at(one), place, f"{name} {number(value)}: {number(one)}") for one in sorted(sides)
        ]
    if shape.missing is not None:
        at = WIDTH - RIGHT - _MISSING / 3
        if shape.missing_error is not None:
            ends = [_inside(y, shape.missing + side * Z * shape.missing_error) for side in (-1.0, 1.0)]
            drawn.append(whisker((at, at), (ends[0], ends[1]), place))
        drawn.append(dot(at, y.at(shape.missing), place, f"{name} missing: {number(shape.missing)}"))
    return drawn


def _band(shape: Shape, places: Sequence[float], y: Axis, place: int) -> list[Markup]:
    """Draw the 95 % band of each segment, if standard errors were estimated."""
    found = []
    for (start, end), (low, high), (at_low, at_high) in zip(
        pairwise(places), shape.ends, shape.errors or (), strict=shape.errors is not None
    ):
        corners = [
            (start, low - Z * at_low),
            (end, high - Z * at_high),
            (end, high + Z * at_high),
            (start, low + Z * at_low),
        ]
        points = " ".join(f"{round(x, 1)},{_inside(y, value)}" for x, value in corners)
        found.append(void("polygon", klass=f"band f{place % COLOURS}", points=points))
    return found


def _inside(y: Axis, value: float) -> float:
    return y.at(min(max(value, y.low), y.high))


def _label(words: str, at: float, base: float, place: int) -> Markup:
    """Write a label below its place; neighbours are on two lines, so that long numbers do not touch."""
    return tag("text", words, klass="tick", x=at, y=base + 16 + 15 * (place % 2), text_anchor="middle")


def _all(owner: str, found: Mapping[str, Sequence[Shape]], names: Sequence[str]) -> Markup:
    rows = []
    for name, shapes in found.items():
        for own, shape in zip(names, shapes, strict=True):
            head = [name, own] if len(names) > 1 else [name]
            errors = shape.errors or ((None, None),) * len(shape.ends)
            for (low, high), ends, spread, share in zip(
                pairwise(shape.values), shape.ends, errors, shape.shares, strict=True
            ):
                added = [_with_error(*one) for one in zip(ends, spread, strict=True)]
                rows.append([*head, _exact(low), _exact(high), *added, (f"{share:.1%}", share)])
            if shape.missing is not None:
                rows.append([*head, "missing", "", *[_with_error(shape.missing, shape.missing_error)] * 2, ""])
    heads = ["column", *(["class"] if len(names) > 1 else [])]
    columns = [*heads, "from", "to", "adds at from", "adds at to", "training rows"]
    numbers = range(len(heads), len(columns))
    return details(f"All {len(found)}", table(columns, rows, caption=f"{owner}: curves, ± s.e.", numbers=numbers))


def _exact(value: float) -> tuple[str, float]:
    return number(value, 4), value


def _with_error(value: float, error: float | None) -> tuple[str, float]:
    return number(value, 4) + ("" if error is None else f" ± {number(error, 2)}"), value
