"""`evenhand watch`: a run as it goes on, in the terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from evenhand.cli.saying import say
from evenhand.errors import RunError

if TYPE_CHECKING:
    from evenhand.report.record import RunRecord


def watch(
    run: Annotated[Path, typer.Argument(help="Run folder of a run that goes on, or has finished.")],
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
) -> None:
    """Show where a run stands, until it has finished; then what came of it. Watching changes nothing.

    \b
    Examples:
      evenhand watch runs/monday
      evenhand watch runs/monday --every 5 | tee progress.txt

    In a pipe or file it is a line for every look that has news. Where nobody works on the run any more it ends with
    exit code 4.
    """
    # Imported here: reading runs takes a second to load, and --help should not wait for it.
    from rich.live import Live

    from evenhand.report.page.answers import verdict
    from evenhand.report.tables import quality_table
    from evenhand.report.watching import standing

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
        raise RunError(f"nobody works on the run in {run} now; go on with: evenhand train JOB --out {run} --resume")
    console.print(quality_table(record.result, record.parts[-1]))
    say(verdict(record))


def _looks(run: Path, every: float) -> Iterator[RunRecord]:
    """The run's record every so often, until it has finished or nobody works on it."""
    from evenhand.report.record import RunRecord
    from evenhand.runtime.lock import is_held

    while True:
        # Asked first: a run that ends in between is then read as finished.
        worked_on = is_held(run)
        record = RunRecord.read(run)
        yield record
        if record.finished or not worked_on:
            return
        time.sleep(every)
