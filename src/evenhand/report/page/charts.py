"""Draw SVG charts: lines over rounds, intervals, and points in a plane."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evenhand.report.page.markup import Markup, joined, tag, void

WIDTH, HEIGHT = 540, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 68, 16, 12, 46
MOST_POINTS = 300
"""Points in one line; more are thinned out evenly, keeping the first and the last."""
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
    marks: Mapping[str, float] | None = None,
    diagonal: bool = False,
) -> Markup:
    """Plot lines over rounds; `marks` are named horizontal lines such as a bound, `diagonal` draws y = x."""
    marks = marks or {}
    x = Axis.over(rounds, _LEFT, WIDTH - _RIGHT)
    values = [value for line in lines.values() for value in line]
    y = Axis.over(values, HEIGHT - _BOTTOM, _TOP, include=list(marks.values()))
    drawn = [_frame(x, y, x_label, y_label)]
    for name, level in marks.items():
        drawn += [
            void("line", klass="mark", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y.at(level), y2=y.at(level)),
            tag("text", name, klass="mark-name", x=WIDTH - _RIGHT - 4, y=y.at(level) - 4, text_anchor="end"),
        ]
    if diagonal:
        ends = (max(x.low, y.low), min(x.high, y.high))
        drawn.append(void("polyline", klass="mark", points=" ".join(f"{x.at(at)},{y.at(at)}" for at in ends)))
    for place, (name, line) in enumerate(lines.items()):
        kept = [(at, value) for at, value in zip(rounds, line, strict=True) if math.isfinite(value)]
        kept = [kept[i] for i in np.unique(np.linspace(0, len(kept) - 1, MOST_POINTS).astype(int))] if kept else []
        points = " ".join(f"{x.at(at)},{y.at(value)}" for at, value in kept)
        drawn.append(void("polyline", klass=f"line c{place % COLOURS}", points=points))
        drawn += [
            _dot(x.at(at), y.at(value), place, f"{name}: {number(value, 4)} at {x_label} {number(at)}")
            for at, value in (kept if len(kept) <= 60 else kept[-1:])
        ]
    return _figure(title, drawn, lines)


def plane_chart(
    title: str,
    points: Mapping[str, tuple[float, float]],
    *,
    x_label: str,
    y_label: str,
    y_least: float = 0.0,
    joined_names: Sequence[str] = (),
    chosen: str | None = None,
) -> Markup:
    """Plot named points, some joined by a line, one ringed."""
    x = Axis.over([at for at, _ in points.values()], _LEFT, WIDTH - _RIGHT, include=[0.0])
    y = Axis.over([at for _, at in points.values()], HEIGHT - _BOTTOM, _TOP, least=y_least)
    drawn = [_frame(x, y, x_label, y_label)]
    if joined_names:
        ends = " ".join(f"{x.at(points[name][0])},{y.at(points[name][1])}" for name in joined_names)
        drawn.append(void("polyline", klass="line c5", points=ends))
    if chosen is not None:
        across, up = points[chosen]
        drawn.append(void("circle", klass="ring", cx=x.at(across), cy=y.at(up), r=11))
    named: list[tuple[float, float]] = []
    for place, (name, (across, up)) in enumerate(points.items()):
        tip = f"{name}: {x_label} {number(across)}, {y_label} {number(up, 4)}"
        at, height = x.at(across), y.at(up)
        drawn.append(_dot(at, height, place, tip, size=6))
        while any(abs(at - other) < 120 and abs(height - taken) < 14 for other, taken in named):
            height += 14
        named.append((at, height))
        end = at > 0.7 * WIDTH
        side = {"x": at - 14, "text_anchor": "end"} if end else {"x": at + 14, "text_anchor": "start"}
        drawn.append(tag("text", name, klass="name", y=height + 4, **side))
    return _figure(title, drawn, {})


class Interval(NamedTuple):
    """A value with its lower and upper end."""

    name: str
    value: float | None
    low: float
    high: float
    group: int = 0


def interval_chart(title: str, rows: Sequence[Interval], *, x_label: str) -> Markup:
    """Plot each value with a whisker from low to high."""
    step, left = 26, max(150, 12 + 7 * max((len(row.name) for row in rows), default=0))
    right = left + 270
    height = _TOP + step * len(rows) + _BOTTOM
    x = Axis.over([[row.low, row.high] for row in rows], left, right - _RIGHT, include=[0.0])
    drawn = [_grid(x, _TOP, height - _BOTTOM, x_label, height, most=4)]
    for place, row in enumerate(rows):
        y = _TOP + step * place + step / 2
        drawn.append(tag("text", row.name, klass="name", x=left - 10, y=y + 4, text_anchor="end"))
        if row.value is None:
            drawn.append(tag("text", "no rows", klass="name", x=left + 4, y=y + 4))
            continue
        drawn.append(
            void("line", klass=f"whisker s{row.group % COLOURS}", x1=x.at(row.low), x2=x.at(row.high), y1=y, y2=y)
        )
        tip = f"{row.name}: {number(row.value)} ({number(row.low)} to {number(row.high)})"
        drawn.append(_dot(x.at(row.value), y, row.group, tip, size=5))
    return _figure(title, drawn, {}, (right, height))


def _dot(x: float, y: float, place: int, tip: str, size: float = 3.5) -> Markup:
    return tag("circle", tag("title", tip), klass=f"dot f{place % COLOURS}", cx=x, cy=y, r=size, data_tip=tip)


def _frame(x: Axis, y: Axis, x_label: str, y_label: str) -> Markup:
    drawn = [_grid(x, _TOP, HEIGHT - _BOTTOM, x_label, HEIGHT)]
    for tick in y.ticks():
        at = y.at(tick)
        drawn += [
            void("line", klass="grid", x1=_LEFT, x2=WIDTH - _RIGHT, y1=at, y2=at),
            tag("text", number(tick), klass="tick", x=_LEFT - 6, y=at + 4, text_anchor="end"),
        ]
    middle = (_TOP + HEIGHT - _BOTTOM) / 2
    drawn.append(
        tag("text", y_label, klass="axis", transform=f"translate(14 {middle}) rotate(-90)", text_anchor="middle")
    )
    return joined(drawn)


def _grid(x: Axis, top: float, bottom: float, x_label: str, height: float, most: int = 6) -> Markup:
    drawn = []
    for tick in x.ticks(most):
        drawn += [
            void("line", klass="grid", x1=x.at(tick), x2=x.at(tick), y1=top, y2=bottom),
            tag("text", number(tick), klass="tick", x=x.at(tick), y=bottom + 16, text_anchor="middle"),
        ]
    middle = (x.start + x.end) / 2
    drawn.append(tag("text", x_label, klass="axis", x=middle, y=height - 8, text_anchor="middle"))
    return joined(drawn)


def _figure(
    title: str, drawn: Sequence[Markup], names: Mapping[str, Any], size: tuple[float, float] = (WIDTH, HEIGHT)
) -> Markup:
    svg = tag(
        "svg",
        *drawn,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {size[0]} {size[1]}",
        role="img",
        aria_label=title,
        klass="chart",
    )
    legend = tag("ul", *(tag("li", _swatch(place), name) for place, name in enumerate(names)), klass="legend")
    return tag("figure", tag("figcaption", title), svg, legend if len(names) > 1 else "")


def _swatch(place: int) -> Markup:
    line = void("line", klass=f"line c{place % COLOURS}", x1=1, y1=6, x2=25, y2=6)
    dot = void("circle", klass=f"dot f{place % COLOURS}", cx=13, cy=6, r=3.5)
    return tag("svg", line, dot, viewBox="0 0 26 12", width=26, height=12, aria_hidden="true")
