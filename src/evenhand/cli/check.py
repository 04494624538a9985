"""`evenhand check`: what a job's tables hold, and all that is wrong, before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from evenhand.cli.memory import check_address_space
from evenhand.cli.saying import say
from evenhand.errors import InputError


def check(
    job: Annotated[Path, typer.Argument(help="Job file (TOML).")],
) -> None:
    """Read everything a job needs, train nothing, and say all that is wrong at once.

    Shows the tables' rows and how many of them match, what every column is taken for and how many features are made
    of it, how many training rows of each group have which label, and the smallest gap between groups that so many
    rows can prove of new people: at best, where nobody is decided wrongly, and at worst, where half are.

    \b
    Example:
      evenhand check job.toml

    Ends with exit code 2 where something is wrong. Nothing is written.
    """
    check_address_space()
    # Imported here: what reads tables takes seconds to load, and --help should not wait for it.
    from evenhand.jobs.checking import check_job_file
    from evenhand.jobs.file import read_job

    found = check_job_file(read_job(job), job.parent)
    console = Console(markup=False, emoji=False)
    for table in found.shown():
        console.print(table)
    if found.problems:
        raise InputError("\n".join([_counted(len(found.problems)), *found.problems]))
    say(f"nothing is wrong; train with: evenhand train {job}")


def _counted(problems: int) -> str:
    return "there is one problem:" if problems == 1 else f"there are {problems} problems:"
