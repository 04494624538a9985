"""`python -m evenhand_reproductions benchmark`: run a grid, merge its records, and write the leaderboard."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from evenhand.cli.app import check_address_space
from evenhand.printing import say
from evenhand_reproductions.settings import FIRST_SEED

OUT = Path("runs/benchmark")
SECONDS = 10.0
"""Records are written so often: a grid that is killed loses no more."""
app = typer.Typer(name="evenhand-reproductions benchmark", pretty_exceptions_enable=False)


@app.command()
def benchmark(
    methods: Annotated[list[str] | None, typer.Option("--method", help="A solver; repeatable. Default: all.")] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", help="A table; repeatable. Default: compas.")] = None,
    splits: Annotated[
        list[str] | None,
        typer.Option("--split", help="iid, label, sensitive, both, conflicting or place; repeatable. Default: three."),
    ] = None,
    constraint: Annotated[str, typer.Option(help="Kind of constraint.")] = "equalized-odds",
    epsilon: Annotated[float, typer.Option(min=0.0, help="Its bound.")] = 0.05,
    measure: Annotated[str, typer.Option(help="Its measure: loss, error or positive.")] = "error",
    clients: Annotated[int, typer.Option(min=2, help="Number of clients.")] = 5,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of methods with a fixed number.")] = 30,
    rows: Annotated[int | None, typer.Option(min=100, help="Most training rows, drawn anew for each seed.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Seeds of each cell.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = FIRST_SEED,
    source: Annotated[Path | None, typer.Option(help="Local folder with the data sets.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the records and the page.")] = OUT,
    merge: Annotated[list[Path] | None, typer.Option(help="Records of another run to merge; repeatable.")] = None,
    rewrite: Annotated[bool, typer.Option("--rewrite", help="Merge and write the page, do not train.")] = False,
) -> None:
    """Run a grid of methods, tables, splits and seeds, and write a leaderboard of held-out rows.

    Records in the folder are kept: a grid that was stopped goes on, and a larger one runs what is missing.
    """
    check_address_space()
    # Imported here: what trains takes seconds to load, and --help should not wait for it.
    from evenhand_reproductions.benchmark.grid import Grid, merged
    from evenhand_reproductions.benchmark.leaderboard import keep, read, write

    records = merged(*(read(path) for path in merge or ()), read(out / "benchmark.json"))
    if not rewrite:
        grid = Grid(
            tuple(methods or ()),
            tuple(sets or Grid.sets),
            tuple(splits or Grid.splits),
            constraint,
            epsilon,
            measure,
            clients,
            rounds,
            tuple(range(seed, seed + runs)),
            rows,
            source,
        )
        done, kept = list(records), time.monotonic()
        for record in grid.run(records):
            done.append(record)
            if time.monotonic() > kept + SECONDS:
                keep(done, out)
                kept = time.monotonic()
        records = merged(done)
    for path in write(records, out):
        say(str(path))
