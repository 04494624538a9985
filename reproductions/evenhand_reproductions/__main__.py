"""`python -m evenhand_reproductions NAME`: reproduce tables and figures of the papers."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from evenhand.cli.app import check_address_space, run_command
from evenhand.errors import InputError
from evenhand.printing import say
from evenhand_reproductions.registry import REPRODUCTIONS, find

WHOLE = Path("reproductions/results")
PARTS = Path("runs/reproductions")
COMMAND = ("python", "-m", "evenhand_reproductions")
_NAMES = "\n".join(f"  {entry.name:<29}{entry.title}" for entry in REPRODUCTIONS.values())
HELP = f"""Run a table or figure of the papers again, and write the paper's numbers beside ours.

\b
Names:
{_NAMES}

A part (--set, --runs, --rounds, --seed) is written beside the whole page. With --out FOLDER it takes its place among
the records that FOLDER holds of other sets and seeds, if those were made with the same rounds and settings; --set
without --runs and --seed is all of a set anew.

`benchmark` runs a grid of methods across clients instead: see `python -m evenhand_reproductions benchmark --help`.

\b
Examples:
  python -m evenhand_reproductions fairvfl-v1-table1
  python -m evenhand_reproductions fairvfl-table1 --runs 2 --rounds 200 --set compas
  python -m evenhand_reproductions fairvfl-fig1 --set compas --out reproductions/results
  python -m evenhand_reproductions fairvfl-fig1 --rewrite
"""


def reproduce(
    name: Annotated[str, typer.Argument(help="One of the names above.")],
    runs: Annotated[
        int | None, typer.Option(min=1, help="Random runs; default 5 for tables, fewer for figures.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of the papers' method; default as stated.")] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="A data set; repeatable. Default: all it is about.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the first run; the others follow.")] = None,
    source: Annotated[Path | None, typer.Option(help="Local folder with the data sets.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help=f"Folder for the result files; default {WHOLE}, or {PARTS} where options ask for a part."),
    ] = None,
    rewrite: Annotated[bool, typer.Option("--rewrite", help="Write the page from its records, do not train.")] = False,
) -> None:
    entry = find(name)
    for one in sets or ():
        if one not in (known := (*entry.sets, *entry.more_sets)):
            raise InputError(f"{name} is about {', '.join(known)}, not {one!r}")
    check_address_space()
    # Imported here: what trains takes seconds to load, and --help should not wait for it.
    from evenhand_reproductions.running import reproduce as run
    from evenhand_reproductions.settings import FIRST_SEED, Settings

    first = FIRST_SEED if seed is None else seed
    part = not (runs is None and rounds is None and seed is None and not sets)
    settings = Settings(runs, rounds, source, tuple(sets or entry.sets), first, part)
    folder = (PARTS if part else WHOLE) if out is None else out
    words = [*COMMAND, name]
    for option, value in (("--runs", runs), ("--rounds", rounds), ("--seed", seed)):
        words += [] if value is None else [option, str(value)]
    for one in sets or ():
        words += ["--set", one]
    for path in run(name, settings, folder, command=shlex.join(words), rewrite=rewrite):
        say(str(path))


reproduce.__doc__ = HELP
app = typer.Typer(name="evenhand-reproductions", pretty_exceptions_enable=False)
app.command()(reproduce)


def main() -> None:
    if sys.argv[1:2] == ["benchmark"]:
        from evenhand_reproductions.benchmark.command import app as benchmark

        sys.argv = sys.argv[:1] + sys.argv[2:]
        run_command(benchmark)
    else:
        run_command(app)


if __name__ == "__main__":
    main()
