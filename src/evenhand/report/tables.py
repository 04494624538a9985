"""Terminal tables: compare runs, show metrics, constraints, certificate and bytes per link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from evenhand.metrics.names import METRICS
from evenhand.printing import printable
from evenhand.protocol.transcript import Transcript

QUALITY = ("accuracy", "DFP", "DFN", "DEO", "HM")


def compare(results: Mapping[str, Mapping[str, Any]], rows: str = "test", title: str | None = None) -> Table:
    """Return one line for each run: metrics on the given rows, then rounds and bytes.

    Below the values stand their standard errors and the 95 % upper confidence bounds of gaps for new people.
    """
    table = bare_table(title)
    table.add_column("", no_wrap=True)
    for name in (*QUALITY, "rounds", "bytes"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, result in results.items():
        price = (str(result["certificate"]["rounds"]), decimal(result["bytes"]))
        table.add_row(as_text(name), *_cells(result["quality"][rows], 3), *price)
        for words, kind in {"  ± s.e.": "standard_errors", "  ≤ 95 %": "bounds"}.items():
            if found := result.get(kind, {}).get(rows):
                table.add_row(words, *_cells(found, 3), style="dim")
    return table


def _cells(found: Mapping[str, float | None], digits: int) -> list[str]:
    return [_cell(found.get(key), digits) for key in QUALITY]


def _cell(value: float | None, digits: int = 4) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def quality_table(result: Mapping[str, Any], rows: str) -> Table:
    """Return every metric of a run with its standard error, 95 % interval and, for a gap, its upper bound."""
    table = bare_table(f"quality on {rows} rows")
    for column in ("metric", "value", "std. error", "95 % interval", "95 % bound"):
        table.add_column(column, no_wrap=True)
    table.add_column("meaning")
    errors, bounds = (result.get(kind, {}).get(rows, {}) for kind in ("standard_errors", "bounds"))
    for name, value in result["quality"][rows].items():
        low_high = result["intervals"][rows].get(name)
        interval = "" if low_high is None else f"{low_high[0]:.4f} to {low_high[1]:.4f}"
        numbers = _cell(value), _cell(errors.get(name)), interval, _cell(bounds.get(name))
        table.add_row(as_text(name), *numbers, METRICS[name].meaning if name in METRICS else "")
    return table


def constraints_table(result: Mapping[str, Any]) -> Table | None:
    """Return how far the constraints hold on training and held-out rows; None if nothing was measured."""
    found = [(part, one) for part, held in result.get("constraints", {}).items() for one in held]
    if not found:
        return None
    table = bare_table("constraints")
    for name in ("rows", "asked", "value", "std. error", "95 % bound"):
        table.add_column(name, no_wrap=True)
    # The longest column comes last, where it can wrap.
    table.add_column("constraint, and where it is tightest")
    for part, one in found:
        numbers = [_cell(one[name]) for name in ("estimate", "standard_error", "bound")]
        table.add_row(part, f"{one['asked']:g}", *numbers, as_text(f"{one['constraint']}: {one['row']}"))
    return table


def proofs_table(result: Mapping[str, Any]) -> Table | None:
    """Return what the training rows prove for new people; None if no constraint asks for confidence."""
    if not (found := result.get("proofs")):
        return None
    table = bare_table("proven for new people, from the training rows")
    for name in ("asked", "proven", ""):
        table.add_column(name, no_wrap=True)
    table.add_column("constraint that needs it")
    for one in found:
        verdict = "holds" if one["holds"] else "not proven"
        table.add_row(f"{one['asked']:g}", _cell(one["bound"]), verdict, as_text(one["row"]))
    return table


def bare_table(title: str | None, *columns: str, show_header: bool = True) -> Table:
    return Table(*columns, title=title, title_justify="left", show_header=show_header, box=SIMPLE_HEAD, pad_edge=False)


def as_text(name: str) -> Text:
    """Return a name as plain text, without markup or control characters."""
    return Text(printable(name))


DISTANCES = {"bound": "distance from optimum, at most", "estimate": "distance from optimum, estimated"}


def certificate_table(certificate: Mapping[str, Any]) -> Table:
    """Return the certificate as a table, without what was not measured."""
    table = bare_table("certificate", show_header=False)
    for name, value in certificate.items():
        if value is not None:
            shown = f"{value:.3e}" if isinstance(value, float) else str(value)
            table.add_row(as_text(DISTANCES.get(name, name)), shown)
    return table


def links_table(transcript: Transcript) -> Table:
    table = bare_table("communication", "from", "to", "messages", "bytes")
    for sender, receiver, messages, nbytes in transcript.by_link().reset_index().itertuples(index=False, name=None):
        table.add_row(as_text(sender), as_text(receiver), str(messages), decimal(int(nbytes)))
    return table
