"""`evenhand watch`: follow a run in the terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from evenhand.errors import RunError
from evenhand.printing import say

if TYPE_CHECKING:
    from evenhand.report.record import RunRecord


def watch(
    run: Annotated[Path, typer.Argument(help="Run folder of a running or finished run.")],
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two updates.")] = 1.0,
) -> None:
    """Show the progress of a run until it has finished, then its result. Watching changes nothing.

    \b
    Examples:
      evenhand watch runs/monday
      evenhand watch runs/monday --every 5 | tee progress.txt

    In a pipe or file it prints a line for each update. Exits with code 4 if no process is working on the run.
    """
    # Imported here: loading takes a second, and --help should not wait for it.
    from rich.live import Live

    from evenhand.report.tables import quality_table, standing
    from evenhand.report.verdicts import in_short

    console = Console(markup=False, emoji=False)
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as shown:
            for record in _looks(run, every):
                shown.update(standing(record), refresh=True)
    else:
        seen = 0
        for record in _looks(run, every):
            if len(record.history) > seen:
                last, seen = record.history.iloc[-1], len(record.history)
                say(f"round {last['round']:.0f} objective {last['objective']:.6g} violation {last['violation']:.2e}")
    if not record.finished:
        raise RunError(f"no process works on the run in {run}; resume with: evenhand train JOB --out {run} --resume")
    console.print(quality_table(record.result, record.parts[-1]))
    say(in_short(record.result, record.constrained))


def _looks(run: Path, every: float) -> Iterator[RunRecord]:
    """Yield the run's record at each update, until it has finished or no process is working on it."""
    from evenhand.report.record import RunRecord
    from evenhand.runtime.files import is_held

    while True:
        # Checked first, so that a run that ends in between is read as finished.
        worked_on = is_held(run)
        record = RunRecord.read(run)
        yield record
        if record.finished or not worked_on:
            return
        time.sleep(every)
