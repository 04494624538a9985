"""`evenhand predict`: score rows with the model of a finished run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from evenhand.errors import InputError
from evenhand.printing import remark, say

if TYPE_CHECKING:
    import pandas as pd


def predict(
    run: Annotated[str, typer.Argument(help="Run folder of a finished run; with --remote, its name.")],
    ids: Annotated[
        Path | None, typer.Argument(help="With --remote: a CSV file with the ids to score in its first column.")
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FILE: read this file in place of the party's or client's table. Repeatable."),
    ] = None,
    job: Annotated[Path | None, typer.Option(help="Job file that says where the parties' new tables are.")] = None,
    absent: Annotated[
        list[str] | None,
        typer.Option(help='NAME: score without this party; the run must allow it (missing_party = "absent").'),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="CSV or Parquet file to write; default is to print CSV.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    remote: Annotated[bool, typer.Option("--remote", help="Score on the federation that trained the run.")] = False,
    kit: Annotated[Path, typer.Option(help="With --remote: the admin's kit.")] = Path("kits/admin"),
    deadline: Annotated[
        float | None,
        typer.Option(
            min=0.0, help="With --remote: seconds after which a party that is away counts as absent. Default is 60."
        ),
    ] = None,
    as_is: Annotated[
        bool,
        typer.Option("--as-is", help="Do not escape CSV text that a spreadsheet would read as a formula."),
    ] = False,
) -> None:
    """Score rows: each party encodes and scores its own table, and scores are summed by id.

    For a horizontal run all clients' tables are scored, or those given with --table, under any name. If the tables
    have labels and groups, metrics of the scores are printed to stderr.

    \b
    Examples:
      evenhand predict runs/monday
      evenhand predict runs/monday --table bank=new-bank.csv --table shop=new-shop.csv --out scores.csv
      evenhand predict runs/monday --job tuesday.toml --out scores.parquet
      evenhand predict --remote RUN ids.csv --kit kits/admin
    """
    # Imported here: loading the solvers takes seconds, and --help should not wait for it.
    from evenhand.jobs.folder import read_job
    from evenhand.jobs.horizontal.file import HorizontalJobFile
    from evenhand.jobs.new_rows import score_new_clients, score_new_parties
    from evenhand.report.tables import performance_tables, quality_table
    from evenhand.runtime.folder import RunFolder

    if out is not None and out.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"--out {out}: the name must end in .csv or .parquet")
    if out is not None and not out.parent.is_dir():
        raise InputError(f"--out {out}: the folder {out.parent} does not exist")
    if out is not None and out.exists() and not overwrite:
        raise InputError(f"--out {out} exists; choose another file, or replace it with --overwrite")
    if remote != (ids is not None):
        raise InputError("--remote and a file of ids go together: evenhand predict --remote RUN ids.csv")
    if deadline is not None and not remote:
        raise InputError(
            "--deadline is for --remote: here all tables are in this process, and nobody is waited for. To score "
            "without a party, name it with --absent"
        )
    if ids is not None:
        from evenhand.cli.federation_client import ask

        _write(ask(run, ids, kit, absent or (), 60.0 if deadline is None else deadline), out, as_is)
        return
    folder = RunFolder.open(Path(run))
    content = None if job is None else read_job(job)
    tables, base = _tables(table or []), None if job is None else job.parent
    horizontal = folder.split == "horizontal"
    if horizontal and absent:
        raise InputError("--absent is for runs across columns; every client has the whole model")
    if content is not None and isinstance(content, HorizontalJobFile) != horizontal:
        raise InputError(f"--job {job}: its split differs from that of the run in {run}")
    found = (
        score_new_clients(folder, content, tables, base=base)
        if isinstance(content, HorizontalJobFile) or (content is None and horizontal)
        else score_new_parties(folder, content, tables, base=base, absent=absent or ())
    )
    _write(found.scores, out, as_is)
    for line in found.remarks:
        remark(line)
    if found.measured is not None:
        console = Console(stderr=True, markup=False, emoji=False)
        for one in (quality_table(found.measured, "scored"), *performance_tables(found.measured, "scored")):
            console.print(one)


def _write(scores: pd.DataFrame, out: Path | None, as_is: bool) -> None:
    from evenhand.report.tables import csv_text
    from evenhand.runtime.files import write_bytes

    if out is None:
        say(csv_text(scores, as_is=as_is), end="")
        sys.stdout.flush()
    else:
        whole = scores.to_parquet() if out.suffix.lower() == ".parquet" else csv_text(scores, as_is=as_is).encode()
        write_bytes(out, whole)
        remark(f"{len(scores):,} rows scored into {out}")


def _tables(given: list[str]) -> dict[str, Path]:
    from evenhand.data.tables.addresses import is_address, shown_file

    tables = {}
    for entry in given:
        name, separator, path = entry.partition("=")
        if is_address(entry) or is_address(path) or not (name and separator and path):
            raise InputError(f"--table {shown_file(entry)}: write it as NAME=FILE, for instance bank=new-bank.csv")
        tables[name] = Path(path)
    return tables
