"""`evenhand report`: one page about one or several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evenhand.cli.saying import say
from evenhand.errors import InputError


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders of finished runs; several are shown side by side.")],
    out: Annotated[
        Path | None, typer.Option(help="File to write; default report.html in the folder of the first run.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
) -> None:
    """Write a page about runs that anybody can open: no network, no other file.

    What was asked for and whether it was met; groups with intervals; rounds; what was exchanged and what it reveals;
    weights of each party's columns; certificate, job and checksums; a model card. It holds counts of people by group
    and everybody's weights: hand it on with the care that these ask for.

    \b
    Examples:
      evenhand report runs/monday
      evenhand report runs/plain runs/fair --out compared.html
    """
    # Imported here: reading runs takes a second to load, and --help should not wait for it.
    from evenhand.report.page import write_page
    from evenhand.report.record import RunRecord

    records = [RunRecord.read(run) for run in runs]
    path = runs[0] / "report.html" if out is None else out
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists; choose another file with --out, or replace it with --overwrite")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to write {path.name} into")
    write_page(records, path)
    say(str(path))
