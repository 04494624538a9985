"""Assemble sections into one HTML page with inline style and script: no other file, no network."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from evenhand.errors import InputError
from evenhand.report.page.answers import answer, under_way
from evenhand.report.page.comparison import comparison
from evenhand.report.page.markup import Markup, joined, section, tag, void
from evenhand.report.page.sections import RUNNING, SECTIONS
from evenhand.report.page.summary import summary
from evenhand.report.record import RunRecord
from evenhand.runtime.files import write_bytes

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""The browser fetches nothing, even if a name on the page contains markup."""


def make_page(records: Sequence[RunRecord], *, refresh_seconds: int | None = None) -> str:
    """Return the page about these runs as HTML; `refresh_seconds` makes the browser reload it.

    Several runs are sections one after another; the script makes tabs of them.
    """
    if not records:
        raise InputError("no run to report on; give at least one run folder")
    names = ", ".join(record.name for record in records)
    several, finished = len(records) > 1, [one for one in records if one.finished]
    title = names if not several else f"{len(records)} runs: {names}" if len(records) < 4 else f"{len(records)} runs"
    links = {f"run-{place}": record.name for place, record in enumerate(records)}
    parts = [_run(record, place, several) for place, record in enumerate(records)]
    if len(finished) > 1:
        links = {"runs": "Comparison", **links}
        parts.insert(0, comparison(finished, "runs"))
    entries = (tag("li", tag("a", name, href=f"#{to}")) for to, name in links.items())
    head = tag(
        "head",
        void("meta", charset="utf-8"),
        void("meta", name="viewport", content="width=device-width, initial-scale=1"),
        void("meta", http_equiv="Content-Security-Policy", content=POLICY),
        "" if refresh_seconds is None else void("meta", http_equiv="refresh", content=str(refresh_seconds)),
        tag("title", f"evenhand: {title}"),
        tag("style", Markup(_own("style.css"))),
    )
    body = tag(
        "body",
        tag("a", "Skip to content", href="#content", klass="skip"),
        tag(
            "header",
            tag("h1", title),
            tag("p", "A model trained across parties that do not pool their data.", klass="soft"),
            tag("nav", tag("ul", *entries), aria_label="Runs") if several else "",
        ),
        tag("main", *parts, id="content"),
        tag("footer", tag("p", f"Written by evenhand {version('evenhand')} from the run's own records.")),
        tag("script", Markup(_own("behaviour.js"))),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def write_page(records: Sequence[RunRecord], path: Path) -> None:
    write_bytes(path, make_page(records).encode())


def _run(record: RunRecord, place: int, several: bool) -> Markup:
    if record.finished:
        own, first, title = SECTIONS[record.target], joined([answer(record), summary(record)]), "Result"
    else:
        own, first, title = RUNNING, under_way(record), "Running"
    parts = [part(record, f"{part.__name__}-{place}") for part in own]
    return section(f"run-{place}", record.name if several else title, first, joined(parts))


def _own(name: str) -> str:
    return files("evenhand.report.page").joinpath(name).read_text(encoding="utf-8")
