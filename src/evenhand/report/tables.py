"""Tables for people: runs side by side, and bytes per link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from evenhand.printing import printable
from evenhand.protocol.transcript import Transcript

QUALITY = {"accuracy": "ACC", "DEO": "DEO", "DFP": "DFP", "DFN": "DFN", "FR": "FR", "HM": "HM"}


def compare(results: Mapping[str, Mapping[str, Any]], rows: str = "test", title: str | None = None) -> Table:
    """Runs as rows; quality on the given part of the data, then the price in communication."""
    table = _table(title)
    table.add_column("")
    for name in (*QUALITY.values(), "rounds", "bytes"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, result in results.items():
        quality = result["quality"][rows]
        cells = [f"{quality[key]:.3f}" if key in quality else "" for key in QUALITY]
        table.add_row(_plain(name), *cells, str(result["certificate"]["rounds"]), decimal(result["bytes"]))
    return table


def quality_table(result: Mapping[str, Any], rows: str) -> Table:
    """Every metric of one run with its 95 % bootstrap interval."""
    table = _table(f"quality on {rows} rows", "metric", "value", "95 % interval")
    for name, value in result["quality"][rows].items():
        low_high = result["intervals"][rows].get(name)
        table.add_row(
            _plain(name), f"{value:.4f}", "" if low_high is None else f"{low_high[0]:.4f} to {low_high[1]:.4f}"
        )
    return table


def _table(title: str | None, *columns: str, show_header: bool = True) -> Table:
    return Table(*columns, title=title, title_justify="left", show_header=show_header, box=SIMPLE_HEAD, pad_edge=False)


def _plain(name: str) -> Text:
    """A name that is no markup and moves no cursor."""
    return Text(printable(name))


def certificate_table(certificate: Mapping[str, Any]) -> Table:
    table = _table("certificate", show_header=False)
    for name, value in certificate.items():
        table.add_row(_plain(name), f"{value:.3e}" if isinstance(value, float) else str(value))
    return table


def links_table(transcript: Transcript) -> Table:
    table = _table("communication", "from", "to", "messages", "bytes")
    for sender, receiver, messages, nbytes in transcript.by_link().reset_index().itertuples(index=False, name=None):
        table.add_row(_plain(sender), _plain(receiver), str(messages), decimal(int(nbytes)))
    return table
