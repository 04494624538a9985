"""Draw points in a plane with whiskers, such as accuracy against a gap, with names that never overlap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from evenhand.report.labels import spread
from evenhand.report.page.charts import BOTTOM, HEIGHT, LEFT, TOP, WIDTH, Axis, dot, figure, frame, number, whisker
from evenhand.report.page.markup import Markup, tag, void

_LETTER, _LINE, _LONGEST = 7.5, 17, 16


class PlanePoint(NamedTuple):
    """A point with the low and the high end of its intervals; None where there is none."""

    x: float
    y: float
    x_interval: tuple[float, float] | None = None
    y_interval: tuple[float, float] | None = None


def plane_chart(
    title: str,
    points: Mapping[str, PlanePoint],
    *,
    x_label: str,
    y_label: str,
    y_least: float = 0.0,
    joined_names: Sequence[str] = (),
    chosen: str | None = None,
) -> Markup:
    """Plot named points, some joined by a line, one ringed.

    Names stand in a column on the right, in the order of the points' heights, each with a line to its point.
    """
    shown = {name: name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…" for name in points}
    right = WIDTH - 12 - _LETTER * max(map(len, shown.values()))
    height = max(HEIGHT, TOP + BOTTOM + _LINE * len(points))
    x_ends = [end for point in points.values() for end in point.x_interval or (point.x,)]
    y_ends = [end for point in points.values() for end in point.y_interval or (point.y,)]
    x = Axis.over(x_ends, LEFT, right - 22, include=[0.0])
    y = Axis.over(y_ends, height - BOTTOM, TOP, least=y_least)
    drawn = [frame(x, y, x_label, y_label)]
    if joined_names:
        ends = " ".join(f"{x.at(points[name].x)},{y.at(points[name].y)}" for name in joined_names)
        drawn.append(void("polyline", klass="line c5", points=ends))
    if chosen is not None:
        drawn.append(void("circle", klass="ring", cx=x.at(points[chosen].x), cy=y.at(points[chosen].y), r=10))
    levels = dict(
        zip(points, spread([y.at(one.y) for one in points.values()], _LINE, TOP + 6, height - BOTTOM), strict=True)
    )
    for place, (name, point) in enumerate(points.items()):
        at, level = (x.at(point.x), y.at(point.y)), levels[name]
        if point.x_interval is not None:
            low, high = point.x_interval
            drawn.append(whisker((x.at(low), x.at(high)), (at[1], at[1]), place))
        if point.y_interval is not None:
            low, high = point.y_interval
            drawn.append(whisker((at[0], at[0]), (y.at(low), y.at(high)), place))
        tip = f"{name}: {x_label} {number(point.x)}, {y_label} {number(point.y, 4)}"
        drawn += [
            void("line", klass="leader", x1=at[0], y1=at[1], x2=right - 4, y2=level),
            dot(*at, place, tip, size=5),
            tag("text", shown[name], klass="name", x=right, y=level + 4),
        ]
    cut = {name for name, short in shown.items() if short != name}
    return figure(title, drawn, (WIDTH, height), points if cut else ())
