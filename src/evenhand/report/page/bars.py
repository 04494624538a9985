"""Draw amounts as bars: names wrap, and all bars of a page's section can share one scale."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from evenhand.report.page.markup import Markup, tag


class Bar(NamedTuple):
    """A named amount, and how it is written."""

    name: str
    value: float
    shown: str


def bar_chart(title: str, rows: Iterable[Bar], most: float, *, signed: bool = False) -> Markup:
    """Draw a bar for each amount; `most` is the amount of the longest, so that charts with the same can be compared.

    Signed amounts start in the middle: positive bars go right, negative ones left.
    """
    drawn = [tag("li", tag("span", row.name), _bar(row, most, signed), tag("span", row.shown)) for row in rows]
    return tag("figure", tag("figcaption", title), tag("ul", *drawn, klass="bars"))


def _bar(row: Bar, most: float, signed: bool) -> Markup:
    share = 100 * abs(row.value) / (most or 1.0) / (2 if signed else 1)
    start = 0.0 if not signed else 50.0 if row.value >= 0 else 50.0 - share
    style = f"left: {start:.2f}%; width: {share:.2f}%"
    filled = tag("span", klass="bar" if row.value >= 0 else "bar below", style=style)
    return tag("span", filled, klass="track signed" if signed else "track", aria_hidden="true")
