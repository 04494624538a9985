"""Show a run in the terminal: a progress bar while it trains, and its state for `evenhand watch`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from evenhand.printing import printable
from evenhand.protocol.roles import Report
from evenhand.report.record import RunRecord


class Progress:
    """Show a progress bar; the solver may stop long before the round limit."""

    def __init__(self, max_rounds: int, *, title: str = "training", enabled: bool = True) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("objective {task.fields[objective]:.5f}  violation {task.fields[violation]:.1e}"),
            TextColumn("{task.fields[distance]}"),
            TimeElapsedColumn(),
        )
        self._bar = Bar(*columns, console=Console(stderr=True), disable=not enabled)
        nothing = float("nan")
        self._task = self._bar.add_task(title, total=max_rounds, objective=nothing, violation=nothing, distance="")
        self._enabled = enabled

    def round(self, report: Report) -> None:
        if self._enabled:
            # Messages between machines carry finite numbers only, so a value may be missing.
            objective, violation = (report.get(name, float("nan")) for name in ("objective", "violation"))
            distance = _distance(report)
            done = report["round"]
            self._bar.update(self._task, completed=done, objective=objective, violation=violation, distance=distance)

    def __enter__(self) -> Self:
        # Older versions of rich print a line end even without a bar.
        if self._enabled:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._enabled:
            self._bar.stop()


def _distance(report: Report) -> str:
    """Return the distance from the optimum as text, if it is known."""
    if "bound" in report:
        return f"distance ≤ {report['bound']:.1e}"
    return f"distance ≈ {report['estimate']:.1e}" if "estimate" in report else ""


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
