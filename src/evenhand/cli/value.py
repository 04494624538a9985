"""`evenhand value`: what each party's data is worth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from evenhand.printing import printable, say


def value(
    run: Annotated[
        list[Path],
        typer.Argument(
            help="Run folder of a finished vertical run with held-out rows; between organisations, the server's "
            "folders of one job for each set of parties."
        ),
    ],
    orders: Annotated[int, typer.Option(min=2, help="Number of random orders, with more than six parties.")] = 20,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but the file.")] = False,
) -> None:
    """Measure how much each party lowers the loss on held-out rows (Shapley values), with standard errors.

    Coalitions of parties are trained: all of them with up to six parties, otherwise those of random orders. The
    tables must not have moved. Writes values.json to the run folder; the report page shows it.

    \b
    Examples:
      evenhand value runs/monday
      evenhand value runs/monday --orders 50
      evenhand value runs/all-server runs/shop-server runs/phone-server runs/bank-server
    """
    # Imported here: loading the solvers takes seconds, and --help should not wait for it.
    from evenhand.jobs.vertical.values import largest, value_run, value_runs
    from evenhand.report.record import VALUES
    from evenhand.runtime.folder import RunFolder

    console = Console(quiet=quiet, markup=False, emoji=False)
    with console.status("reading tables") as status:
        folders = [RunFolder.open(one) for one in run]
        several = len(folders) > 1
        found = value_runs(folders, orders) if several else value_run(folders[0], status.update, orders)
    table = Table("party", "value", "standard error", title=f"what a party lowers the {found['loss']} loss by")
    for one in found["parties"]:
        table.add_row(printable(one["party"]), f"{one['value']:+.5f}", f"{one['standard_error']:.5f}")
    console.print(table)
    console.print(
        printable(
            f"{found['rows']:,} held-out rows: {found['label holder alone']:.5f} with {found['holder']} alone, "
            f"{found['all parties']:.5f} with all; {found['trainings']} trainings, {found['rounds']} rounds"
        )
    )
    say(str(largest(folders).path / VALUES))
