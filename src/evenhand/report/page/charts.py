"""Draw SVG charts: lines over rounds, and intervals. Text keeps a readable size on a phone: charts are narrow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evenhand.report.page.markup import Markup, joined, tag, void

WIDTH, HEIGHT = 420, 260
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 30, 46
MOST_POINTS = 300
"""Points in one line; more are thinned out evenly, keeping the first and the last."""
LONGEST_BESIDE = 20
"""Letters of a name beside a whisker; longer ones stand above it."""
COLOURS = 6
"""Colours and dash patterns in the style sheet; lines differ without colour too."""


class Axis(NamedTuple):
    """A range of numbers mapped to a range of pixels."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(cls, values: Any, start: float, end: float, *, include: Sequence[float] = (), least: float = 0.0) -> Axis:
        """Return an axis that fits all finite values with a margin; `least` is the smallest range shown."""
        found = np.concatenate([np.ravel(np.asarray(values, dtype=float)), np.asarray(include, dtype=float)])
        found = found[np.isfinite(found)]
        low, high = (float(found.min()), float(found.max())) if len(found) else (0.0, 1.0)
        room = max(0.05 * (high - low) or 0.05 * abs(high) or 0.5, (least - (high - low)) / 2)
        return cls(low - room, high + room, start, end)

    def at(self, value: float) -> float:
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 1)

    def ticks(self, most: int = 6) -> list[float]:
        """Return round numbers within the range."""
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1.0, 2.0, 5.0, 10.0) if power * factor >= rough)
        first = math.ceil(self.low / step)
        return [place * step for place in range(first, math.floor(self.high / step) + 1)]


def number(value: float | None, digits: int = 3) -> str:
    """Format a number for reading: 0.0123, 1.2e-07, 1,234; a dash for a missing value."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.{digits}g}" if abs(value) < 1 else f"{value:,.{max(digits, 4)}g}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.2e}"


def line_chart(
    title: str,
    rounds: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    *,
    x_label: str = "round",
    y_label: str,
    marks: Sequence[float] = (),
) -> Markup:
    """Plot lines over rounds; `marks` are dotted horizontal lines, which the title explains."""
    x = Axis.over(rounds, LEFT, WIDTH - RIGHT)
    values = [value for line in lines.values() for value in line]
    y = Axis.over(values, HEIGHT - BOTTOM, TOP, include=marks)
    drawn = [frame(x, y, x_label, y_label)]
    for level in marks:
        drawn.append(void("line", klass="mark", x1=x.start, x2=x.end, y1=y.at(level), y2=y.at(level)))
    for place, (name, line) in enumerate(lines.items()):
        kept = [(at, value) for at, value in zip(rounds, line, strict=True) if math.isfinite(value)]
        kept = [kept[i] for i in np.unique(np.linspace(0, len(kept) - 1, MOST_POINTS).astype(int))] if kept else []
        points = " ".join(f"{x.at(at)},{y.at(value)}" for at, value in kept)
        drawn.append(void("polyline", klass=f"line c{place % COLOURS}", points=points))
        drawn += [
            dot(x.at(at), y.at(value), place, f"{name}: {number(value, 4)} at {x_label} {number(at)}")
            for at, value in (kept if len(kept) <= 60 else kept[-1:])
        ]
    return figure(title, drawn, (WIDTH, HEIGHT), lines)


class Interval(NamedTuple):
    """A value with its lower and upper end."""

    name: str
    value: float | None
    low: float
    high: float
    group: int = 0


def interval_chart(title: str, rows: Sequence[Interval], *, x_label: str) -> Markup:
    """Plot each value with a whisker from low to high. Long names stand above their whiskers."""
    longest = max((len(row.name) for row in rows), default=0)
    above = longest > LONGEST_BESIDE
    step, left = (40, 16) if above else (26, max(90, 20 + 7 * longest))
    top = 8
    height = top + step * len(rows) + BOTTOM
    x = Axis.over([[row.low, row.high] for row in rows], left, WIDTH - RIGHT, include=[0.0])
    drawn = [grid(x, top, height - BOTTOM, x_label, most=4)]
    for place, row in enumerate(rows):
        y = top + step * place + (28 if above else step / 2)
        at = {"x": left, "y": y - 12} if above else {"x": left - 10, "y": y + 4, "text_anchor": "end"}
        drawn.append(tag("text", row.name, klass="name", **at))
        if row.value is None:
            drawn.append(tag("text", "no rows", klass="name", x=left + 4, y=y + 4))
            continue
        drawn.append(whisker((x.at(row.low), x.at(row.high)), (y, y), row.group))
        tip = f"{row.name}: {number(row.value)} ({number(row.low)} to {number(row.high)})"
        drawn.append(dot(x.at(row.value), y, row.group, tip, size=5))
    return figure(title, drawn, (WIDTH, height))


def dot(x: float, y: float, place: int, tip: str, size: float = 3.5) -> Markup:
    return tag("circle", tag("title", tip), klass=f"dot f{place % COLOURS}", cx=x, cy=y, r=size, data_tip=tip)


def whisker(x: tuple[float, float], y: tuple[float, float], place: int) -> Markup:
    """Return a line from one end of an interval to the other."""
    return void("line", klass=f"whisker s{place % COLOURS}", x1=x[0], x2=x[1], y1=y[0], y2=y[1])


def frame(x: Axis, y: Axis, x_label: str, y_label: str) -> Markup:
    """Draw the grid, the ticks and the names of two axes; `y` starts at the bottom."""
    drawn = [grid(x, y.end, y.start, x_label)]
    for tick in y.ticks():
        at = y.at(tick)
        drawn += [
            void("line", klass="grid", x1=x.start, x2=x.end, y1=at, y2=at),
            tag("text", number(tick), klass="tick", x=x.start - 6, y=at + 4, text_anchor="end"),
        ]
    drawn.append(tag("text", y_label, klass="axis", x=0, y=y.end - 16))
    return joined(drawn)


def grid(x: Axis, top: float, bottom: float, x_label: str, most: int = 5) -> Markup:
    drawn = []
    for tick in x.ticks(most):
        drawn += [
            void("line", klass="grid", x1=x.at(tick), x2=x.at(tick), y1=top, y2=bottom),
            tag("text", number(tick), klass="tick", x=x.at(tick), y=bottom + 16, text_anchor="middle"),
        ]
    middle = (x.start + x.end) / 2
    drawn.append(tag("text", x_label, klass="axis", x=middle, y=bottom + 38, text_anchor="middle"))
    return joined(drawn)


def figure(title: str, drawn: Sequence[Markup], size: tuple[float, float], names: Iterable[str] = ()) -> Markup:
    """Return an SVG with its title, and a legend of the names of several lines."""
    svg = tag(
        "svg",
        *drawn,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {size[0]} {size[1]}",
        role="img",
        aria_label=title,
        klass="chart",
    )
    entries = [tag("li", _swatch(place), name) for place, name in enumerate(names)]
    return tag("figure", tag("figcaption", title), svg, tag("ul", *entries, klass="legend") if entries[1:] else "")


def _swatch(place: int) -> Markup:
    line = void("line", klass=f"line c{place % COLOURS}", x1=1, y1=6, x2=25, y2=6)
    mark = void("circle", klass=f"dot f{place % COLOURS}", cx=13, cy=6, r=3.5)
    return tag("svg", line, mark, viewBox="0 0 26 12", width=26, height=12, aria_hidden="true")
