"""`evenhand train`: train a job file."""

from __future__ import annotations

import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from evenhand.errors import FELL_SHORT, InputError
from evenhand.printing import printable, remark, say

if TYPE_CHECKING:
    from evenhand.jobs.folder import JobFile
    from evenhand.jobs.horizontal.runs import FinishedHorizontalRun
    from evenhand.jobs.vertical.runs import FinishedVerticalRun


def train(
    job: Annotated[
        Path, typer.Argument(help="Job file (TOML): parties or clients, their tables, the constraint, the solver.")
    ],
    out: Annotated[Path | None, typer.Option(help="Run folder to create; default runs/<job>-<date>-<time>.")] = None,
    extend: Annotated[
        Path | None,
        typer.Option(help="Finished run to start from, if parties have joined or left since (key extends)."),
    ] = None,
    without: Annotated[list[str] | None, typer.Option(help="Party to train without; may be repeated.")] = None,
    resume: Annotated[bool, typer.Option(help="Resume the interrupted run in --out.")] = False,
    checkpoint_seconds: Annotated[float, typer.Option(min=0.0, help="Minimum time between two checkpoints.")] = 10.0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but the run folder.")] = False,
) -> None:
    """Train a job across parties' or clients' tables and write a run folder.

    \b
    Examples:
      evenhand train job.toml
      evenhand train job.toml --out runs/monday
      evenhand train job.toml --out runs/monday --resume
      evenhand train with-phone.toml --extend runs/monday
      evenhand train job.toml --extend runs/monday --without shop

    Exits with code 9 if the solver did not converge or the model gives every row the same label. The run is kept, and
    the last line (on stderr) says which.
    """
    # Imported here: loading the solvers takes seconds, and --help should not wait for it.
    from evenhand.jobs.checking import default_bounds
    from evenhand.jobs.folder import has_finished, job_content, read_job
    from evenhand.report.tables import (
        certificate_table,
        constraints_table,
        links_table,
        performance_tables,
        proofs_table,
        quality_table,
    )
    from evenhand.report.verdicts import certified_values, in_short, remarks, verdicts
    from evenhand.runtime.folder import RunFolder

    if resume and out is None:
        raise InputError("--resume needs --out: the folder of the run to resume")
    if resume and out is not None and not out.exists():
        remark(f"there is no run in {out} yet: a new one starts")
    console = Console(quiet=quiet, markup=False, emoji=False)
    content = _changed(read_job(job), extend, without or [])
    for line in default_bounds(content):
        console.print(line)
    folder = out or Path("runs") / f"{job.stem}-{datetime.now():%Y%m%d-%H%M%S}"
    if resume and has_finished(folder, job_content(content)):
        remark(f"the run in {folder} has already finished")
        say(str(folder))
        _end_short(RunFolder.open(folder).result)
        return
    try:
        finished = run_with_progress(
            content,
            job.parent,
            folder,
            resume=resume,
            checkpoint_seconds=checkpoint_seconds,
            show=not quiet,
            tell=not quiet,
        )
    except KeyboardInterrupt:
        again = shlex.join(["evenhand", "train", str(job), "--out", str(folder), "--resume"])
        remark(f"interrupted; resume with: {again}")
        raise
    rows = "test" if "test" in finished.result["quality"] else "train"
    console.print(quality_table(finished.result, rows))
    tables = constraints_table(finished.result), proofs_table(finished.result)
    for table in (*performance_tables(finished.result, rows), *tables):
        if table is not None:
            console.print(table)
    for line in filter(None, [certified_values(finished.result), *remarks(finished.result)]):
        console.print(printable(line))
    if verdicts(finished.result):
        console.print(f"\n{printable(in_short(finished.result, constrained=True))}\n", highlight=False)
    certificate = finished.result["certificate"]
    if certificate["objective"] is not None:
        console.print(certificate_table(certificate))
    console.print(links_table(finished.run.transcript))
    if certificate["objective"] is None:
        console.print("There is no certificate, because clients did not measure the model on their rows.")
    for statement, clients in _privacy(finished.result).items():
        console.print(printable(f"privacy of {clients}: {statement}"))
    say(str(folder))
    _end_short(finished.result)


def _changed(job: JobFile, extend: Path | None, without: list[str]) -> JobFile:
    """Return the job without some parties, and starting from an earlier run, if that is asked."""
    from evenhand.jobs.vertical.extending import extending, without_parties
    from evenhand.jobs.vertical.file import VerticalJobFile

    if not (without or extend):
        return job
    if not isinstance(job, VerticalJobFile):
        raise InputError("--extend and --without are for vertical jobs")
    job = without_parties(job, without) if without else job
    return job if extend is None else extending(job, extend)


def _end_short(result: dict[str, Any]) -> None:
    """Report shortfalls last, and exit with their code. The run is kept."""
    if found := result["shortfalls"]:
        sys.stdout.flush()
        for one in found:
            remark(f"fell short: {one}")
        raise typer.Exit(FELL_SHORT)


def _privacy(result: dict[str, Any]) -> dict[str, str]:
    """Return each privacy statement and the clients it holds for."""
    named: dict[str, list[str]] = {}
    for name, one in result.get("privacy", {}).items():
        named.setdefault(one["words"], []).append(name)
    whole = len(result.get("privacy", {}))
    return {words: "every client" if len(names) == whole > 1 else ", ".join(names) for words, names in named.items()}


def run_with_progress(
    job: JobFile,
    base: Path,
    out: Path,
    *,
    resume: bool = False,
    checkpoint_seconds: float = 10.0,
    show: bool = True,
    tell: bool = False,
    title: str = "training",
) -> FinishedVerticalRun | FinishedHorizontalRun:
    """Train a job and show its progress; `tell` says before training what its messages disclose."""
    from evenhand.jobs.folder import check_place
    from evenhand.jobs.horizontal.file import HorizontalJobFile
    from evenhand.jobs.horizontal.runs import clients_disclosure, load_horizontal_tables, run_horizontal_job
    from evenhand.jobs.vertical.runs import load_vertical_tables, run_vertical_job
    from evenhand.report.tables import Progress
    from evenhand.solvers.statement import disclosure

    check_place(out, resume)
    settings: dict[str, Any] = {"resume": resume, "checkpoint_seconds": checkpoint_seconds}
    if isinstance(job, HorizontalJobFile):
        rows = load_horizontal_tables(job, base)
        for line in rows.not_shown() if show else ():
            remark(line)
        if tell:
            remark(clients_disclosure(job))
        with Progress(job.to_job().max_rounds, title=title, enabled=show) as progress:
            return run_horizontal_job(job, base, out, on_round=progress.round, tables=rows, **settings)
    tables = load_vertical_tables(job, base)
    for line in (*tables.not_used(), *tables.not_shown()) if show else ():
        remark(line)
    if tell:
        remark(disclosure(tables.terms.job, tables.terms.participants, marks=job.job.hides_presence))
    with Progress(job.job.max_rounds, title=title, enabled=show) as progress:
        return run_vertical_job(job, base, out, on_round=progress.round, tables=tables, **settings)
