"""Build HTML with small functions. Text is escaped here and nowhere else; pass `Markup` for markup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from evenhand.printing import printable


class Markup(str):
    """Text that is already HTML."""


def text(value: Any) -> Markup:
    """Return any value as escaped text."""
    return value if isinstance(value, Markup) else Markup(escape(printable(str(value))))


def tag(name: str, /, *content: Any, **attributes: Any) -> Markup:
    """Return an element; `klass` means class, `_` in names means `-`, and attributes that are None are left out."""
    return Markup(f"{_opening(name, attributes)}{''.join(map(text, content))}</{name}>")


def void(name: str, /, **attributes: Any) -> Markup:
    """Return an element without content."""
    return Markup(_opening(name, attributes)[:-1] + "/>")


def _opening(name: str, attributes: Mapping[str, Any]) -> str:
    words = [name]
    for key, value in attributes.items():
        if value is not None:
            words.append(f'{"class" if key == "klass" else key.replace("_", "-")}="{text(value)}"')
    return f"<{' '.join(words)}>"


def joined(parts: Iterable[Any]) -> Markup:
    return Markup("".join(map(text, parts)))


def section(identifier: str, title: str, *content: Any, level: int = 2) -> Markup:
    """Return a heading with its content; level 2 is a landmark and needs a unique name."""
    heading = tag(f"h{level}", title, id=identifier)
    if level > 2:
        return tag("div", heading, *content)
    return tag("section", heading, *content, aria_labelledby=identifier)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, caption: str, numbers: Sequence[int] = ()
) -> Markup:
    """Return a table that can be sorted by its headings; columns in `numbers` are right-aligned.

    A cell is a value, or a pair (shown text, sort key).
    """
    kinds = ["number" if place in numbers else None for place in range(len(columns))]
    head = tag("tr", *(tag("th", name, scope="col", klass=kind) for name, kind in zip(columns, kinds, strict=True)))
    body = joined(tag("tr", *(_cell(cell, kinds[place], place) for place, cell in enumerate(row))) for row in rows)
    return tag(
        "div",
        tag("table", tag("caption", caption), tag("thead", head), tag("tbody", body), klass="sortable"),
        klass="scroll",
        tabindex=0,
        role="group",
        aria_label=caption,
    )


def _cell(cell: Any, kind: str | None, place: int) -> Markup:
    shown, key = cell if isinstance(cell, tuple) else (cell, None)
    if place == 0:
        return tag("th", shown, scope="row", klass=kind, data_sort=key)
    return tag("td", shown, klass=kind, data_sort=key)


def definitions(entries: Mapping[str, Any]) -> Markup:
    """Return names with what they mean or hold."""
    return tag("dl", joined(joined([tag("dt", name), tag("dd", words)]) for name, words in entries.items()))


def details(summary: str, *content: Any) -> Markup:
    return tag("details", tag("summary", summary), *content)
