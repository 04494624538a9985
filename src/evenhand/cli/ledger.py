"""`evenhand ledger`: what jobs have spent of a party's privacy."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from evenhand.printing import say


def ledger(
    place: Annotated[Path, typer.Argument(help="The party's own file, or the folder that it is in.")],
) -> None:
    """Show what jobs have spent of a party's privacy, by table.

    Randomised responses are drawn once for each question, and noisy updates count once for each run. The ε of a table
    is at most the sum of its lines. Rounds of training are counted over all runs and attempts.

    \b
    Examples:
      evenhand ledger party.toml
    """
    # Imported here: loading takes a second, and --help should not wait for it.
    from evenhand.jobs.ledger import Ledger
    from evenhand.report.tables import BareTable, as_text

    found = Ledger(place if place.is_dir() else place.absolute().parent)
    if not (entries := found.entries()):
        say(f"{found.path} does not exist: no job has spent anything")
        return
    for data in sorted({one.data for one in entries}):
        said = f"{data}: ε at most {found.spent(data):.4g}, {found.rounds(data)} rounds"
        table = BareTable(said, "kind", "what", "ε", "δ", "time")
        of_data = [one for one in entries if one.data == data]
        taken = Counter(one.run for one in of_data if one.kind == "rounds")
        for one in of_data:
            if one.kind == "rounds":
                # A run has one line, at its first round.
                if one.run in taken:
                    table.add_row(one.kind, f"{taken.pop(one.run)} of run {one.run}", "", "", one.time)
            else:
                numbers = f"{one.epsilon:g}", f"{one.delta:g}" if one.delta else ""
                table.add_row(one.kind, as_text(one.what), *numbers, one.time)
        Console().print(table)
