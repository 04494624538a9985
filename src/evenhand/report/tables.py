"""Tables for people: runs side by side, and bytes per link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.filesize import decimal
from rich.table import Table

from evenhand.privacy.transcript import Transcript

QUALITY = ("accuracy", "DEO", "DFP", "DFN", "FR", "HM")


def compare(results: Mapping[str, Mapping[str, Any]], rows: str = "test", title: str | None = None) -> Table:
    """Runs as rows; quality on the given part of the data, then the price in communication."""
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in (*QUALITY, "rounds", "bytes"):
        table.add_column(name, justify="right")
    for name, result in results.items():
        quality = result["quality"][rows]
        cells = [f"{quality[key]:.3f}" if key in quality else "" for key in QUALITY]
        table.add_row(name, *cells, str(result["certificate"]["rounds"]), decimal(result["bytes"]))
    return table


def certificate_table(certificate: Mapping[str, Any]) -> Table:
    table = Table(title="certificate", title_justify="left", show_header=False)
    for name, value in certificate.items():
        table.add_row(name, f"{value:.3e}" if isinstance(value, float) else str(value))
    return table


def links_table(transcript: Transcript) -> Table:
    table = Table("from", "to", "messages", "bytes", title="communication", title_justify="left")
    for sender, receiver, messages, nbytes in transcript.by_link().reset_index().itertuples(index=False, name=None):
        table.add_row(sender, receiver, str(messages), decimal(int(nbytes)))
    return table
