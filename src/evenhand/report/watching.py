"""Show a running job in the terminal: round, objective, violation and bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from evenhand.printing import printable
from evenhand.report.record import RunRecord

_LEVELS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Return values as a sparkline of at most `width` characters; the last value is kept."""
    kept = np.asarray(values, dtype=float)[np.unique(np.linspace(0, len(values) - 1, width).astype(int))]
    finite = kept[np.isfinite(kept)]
    if not len(finite):
        return ""
    low, spread = float(finite.min()), float(np.ptp(finite)) or 1.0
    return "".join(
        _LEVELS[int((len(_LEVELS) - 1) * (value - low) / spread)] if math.isfinite(value) else " " for value in kept
    )


def standing(record: RunRecord) -> RenderableType:
    """Return the round, the objective and violation so far, and what each participant has sent."""
    if record.history.empty:
        return Text(f"{printable(record.name)}: no round has finished yet")
    last = record.history.iloc[-1]
    head = Text(f"{printable(record.name)}: round {last['round']:.0f}{'' if record.finished else ', running'}")
    lines = Table(box=None, show_header=False, pad_edge=False)
    for name in ("objective", "violation"):
        if name in record.history:
            line = record.history[name].astype(float).tolist()
            lines.add_row(name, f"{line[-1]:.5g}", Text(sparkline(line), style="cyan"))
    sent = Table("sent by", "messages", "bytes", box=SIMPLE_HEAD, pad_edge=False)
    for sender, found in record.traffic.groupby("sender", sort=False)[["messages", "nbytes"]].sum().iterrows():
        sent.add_row(Text(printable(str(sender))), f"{found['messages']:,.0f}", decimal(int(found["nbytes"])))
    return Group(head, lines, sent)
