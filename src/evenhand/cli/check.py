"""`evenhand check`: validate a job file and its tables before training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from evenhand.errors import InputError
from evenhand.printing import say


def check(
    job: Annotated[Path, typer.Argument(help="Job file (TOML).")],
) -> None:
    """Read everything a job needs, train nothing, and list all problems at once.

    Shows how many rows each table has and how many match, the type and number of features of every column, and how
    many training rows each group and label has. Also shows the smallest gap between groups that so many rows can
    prove for new people: at best (no errors) and at worst (half of the decisions wrong). If the bound in the job
    is smaller, it lists bounds that so many rows can show. Then come lines to paste into the job file: bands of
    sensitive numbers, small groups to merge, types of columns, what to do with duplicate ids and with rows without
    label or group.

    \b
    Example:
      evenhand check job.toml

    Exits with code 2 if there is a problem. Writes nothing.
    """
    # Imported here: loading the readers takes seconds, and --help should not wait for it.
    from evenhand.jobs.checking import check_job_file
    from evenhand.jobs.folder import read_job

    found = check_job_file(read_job(job), job.parent)
    console = Console(markup=False, emoji=False)
    for table in found.shown():
        console.print(table)
    if told := found.to_show():
        say(f"{told}\n")
    if lines := found.to_paste():
        say(f"proposed for {job}; a key that is there already is replaced:\n\n{lines}\n")
    if found.problems:
        raise InputError("\n".join([_counted(len(found.problems)), *found.problems]))
    say(f"no problems found; train with: evenhand train {job}")


def _counted(problems: int) -> str:
    return "there is one problem:" if problems == 1 else f"there are {problems} problems:"
