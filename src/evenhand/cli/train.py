"""`evenhand train`: train as a job file says."""

from __future__ import annotations

import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from evenhand.errors import InputError

if TYPE_CHECKING:
    from evenhand.jobfile import JobFile
    from evenhand.runs import FinishedRun


def train(
    job: Annotated[
        Path, typer.Argument(help="Job file (TOML): the parties, their tables, the constraint, the solver.")
    ],
    out: Annotated[Path | None, typer.Option(help="Run folder to make; default runs/<job>-<date>-<time>.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on with the run in --out if it was interrupted.")] = False,
    checkpoint_seconds: Annotated[float, typer.Option(min=0.0, help="Least time between two checkpoints.")] = 10.0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but the run folder.")] = False,
) -> None:
    """Train across parties' tables as a job file says, and leave a run folder.

    \b
    Examples:
      evenhand train job.toml
      evenhand train job.toml --out runs/monday
      evenhand train job.toml --out runs/monday --resume
    """
    # Imported here: what trains and scores takes seconds to load, and --help should not wait for it.
    from evenhand.jobfile import read_job
    from evenhand.report.tables import certificate_table, links_table, quality_table

    if resume and out is None:
        raise InputError("--resume needs --out: the folder of the run to go on with")
    console = Console(quiet=quiet, markup=False, emoji=False)
    content = read_job(job)
    folder = out or Path("runs") / f"{job.stem}-{datetime.now():%Y%m%d-%H%M%S}"
    try:
        finished = run_with_progress(
            content, job.parent, folder, resume=resume, checkpoint_seconds=checkpoint_seconds, show=not quiet
        )
    except KeyboardInterrupt:
        again = shlex.join(["evenhand", "train", str(job), "--out", str(folder), "--resume"])
        print(f"interrupted; go on with: {again}", file=sys.stderr)
        raise
    rows = "test" if "test" in finished.result["quality"] else "train"
    console.print(quality_table(finished.result, rows))
    console.print(certificate_table(finished.result["certificate"]))
    console.print(links_table(finished.run.transcript))
    if not finished.result["certificate"]["converged"]:
        console.print(
            "The solver did not converge: it met its cap on rounds (max_rounds), or the rows cannot hold (violation)."
        )
    print(folder)


def run_with_progress(
    job: JobFile,
    base: Path,
    out: Path,
    *,
    resume: bool = False,
    checkpoint_seconds: float = 10.0,
    show: bool = True,
    title: str = "training",
) -> FinishedRun:
    from evenhand.federation import load_federation
    from evenhand.report.progress import Progress
    from evenhand.runs import check_folder, run_job

    check_folder(out, resume)
    federation = load_federation(job, base)
    with Progress(job.job.max_rounds, title=title, enabled=show) as progress:
        return run_job(
            job,
            base,
            out,
            resume=resume,
            on_round=progress.round,
            checkpoint_seconds=checkpoint_seconds,
            federation=federation,
        )
