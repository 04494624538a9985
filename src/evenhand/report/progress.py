"""A progress display for training: rounds done, the objective, the worst violation, the distance from the optimum."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from evenhand.protocol.roles import Report


class Progress:
    """Shows a bar that ends when the solver stops, which may be long before the cap on rounds."""

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
            # Between machines, what is not a number is not told.
            objective, violation = (report.get(name, float("nan")) for name in ("objective", "violation"))
            distance = _distance(report)
            done = report["round"]
            self._bar.update(self._task, completed=done, objective=objective, violation=violation, distance=distance)

    def __enter__(self) -> Self:
        # Older versions of rich end a line even where there is no bar.
        if self._enabled:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._enabled:
            self._bar.stop()


def _distance(report: Report) -> str:
    """How far the round's model is from the optimum, if that can be said."""
    if "bound" in report:
        return f"from the optimum ≤ {report['bound']:.1e}"
    return f"from the optimum ≈ {report['estimate']:.1e}" if "estimate" in report else ""
