"""`evenhand watch`: follow a run in the terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

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

    At each side of a federated run it shows what this side knows: the server counts rounds, a party messages.

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
        seen, messages = 0, 0
        for record in _looks(run, every):
            if len(record.history) > seen:
                last, seen = record.history.iloc[-1], len(record.history)
                told = [f"{name} {float(last[name]):{form}}" for name, form in _SHOWN.items() if name in last.index]
                say(" ".join([f"round {last['round']:.0f}", *told]))
            elif not seen and record.messages > messages:
                messages = record.messages
                say(f"{messages:,} messages sent and received")
    if not record.finished:
        raise RunError(f"no process works on the run in {run}; {_advice(record, run)}")
    if not record.measured:
        say(f"finished; this is the side of {record.side}, and only the server's side has metrics of the model")
        return
    console.print(quality_table(record.result, record.parts[-1]))
    say(in_short(record.result, record.constrained))


_SHOWN: Final = {"objective": ".6g", "violation": ".2e"}


def _advice(record: RunRecord, run: Path) -> str:
    if not record.side:
        return f"resume with: evenhand train JOB --out {run} --resume"
    name = record.name.removesuffix("-server")
    return f"its submitter can resume it with: evenhand federation submit JOB --kit kits/admin --resume {name}"


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
