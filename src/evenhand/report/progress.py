"""Show training progress: rounds, objective, worst violation and distance from the optimum."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from evenhand.protocol.roles import Report


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
