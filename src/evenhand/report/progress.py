"""A progress display for training: rounds done, the objective and the worst violation."""

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
            TimeElapsedColumn(),
        )
        self._bar = Bar(*columns, console=Console(stderr=True), disable=not enabled)
        self._task = self._bar.add_task(title, total=max_rounds, objective=float("nan"), violation=float("nan"))
        self._enabled = enabled

    def round(self, report: Report) -> None:
        if self._enabled:
            objective, violation = report["objective"], report["violation"]
            self._bar.update(self._task, completed=report["round"], objective=objective, violation=violation)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
