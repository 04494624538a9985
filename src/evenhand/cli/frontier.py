"""`evenhand frontier`: train a job under several bounds to see what fairness costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from evenhand.cli.train import run_with_progress
from evenhand.errors import InputError
from evenhand.printing import remark, say

if TYPE_CHECKING:
    from evenhand.jobs.folder import JobFile

EPSILONS = (0.2, 0.1, 0.05, 0.02, 0.01)
WITHOUT = "without"
PAGE = "frontier.html"


def frontier(
    job: Annotated[Path, typer.Argument(help="Job file with a constraint, and rows held out (test_fraction).")],
    epsilon: Annotated[
        list[float] | None,
        typer.Option(min=0.0, help="A bound to try. Repeatable. Default 0.2, 0.1, 0.05, 0.02, 0.01."),
    ] = None,
    vary: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="The constraint whose bound changes, by kind. Default the first with an ε."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the runs and the page; default runs/frontier-<job>.")
    ] = None,
) -> None:
    """Train a job without its constraint and under several bounds, and plot accuracy against the gap.

    Writes a run folder for each bound, and frontier.html, which marks the point with the best balance among bounds
    that change the model. A job's other constraints keep their bounds in every run. If it is interrupted, the same
    command continues: finished runs are kept.

    \b
    Examples:
      evenhand frontier job.toml
      evenhand frontier job.toml --epsilon 0.1 --epsilon 0.03 --out runs/bounds
      evenhand frontier job.toml --vary demographic-parity
    """
    # Imported here: loading the solvers takes seconds, and --help should not wait for it.
    from evenhand.jobs.folder import has_finished, job_content, read_job, with_epsilon
    from evenhand.report.page import write_page
    from evenhand.report.record import RunRecord
    from evenhand.report.tables import compare
    from evenhand.report.verdicts import in_short
    from evenhand.runtime.folder import is_run

    content = read_job(job)
    if not content.job.test_fraction:
        raise InputError(f"{job} has no held-out rows to compare models on; set test_fraction in [job], such as 0.25")
    # Asked for, held-out rows that are too few are an error before training.
    section = content.job.model_copy(update={"test_fraction": content.job.test_fraction})
    content = content.model_copy(update={"job": section})
    bounds = sorted(set(epsilon or EPSILONS), reverse=True)
    jobs = {WITHOUT: with_epsilon(content, None, vary)}
    jobs |= {f"ε = {one:g}": with_epsilon(content, one, vary) for one in bounds}
    if len(content.job.constraint) > 1:
        remark(_what_changes(content, vary))
    folder = Path("runs") / f"frontier-{job.stem}" if out is None else out
    places = {name: folder / name.replace("ε = ", "epsilon-") for name in jobs}
    tell = True
    for name, varied in jobs.items():
        if not has_finished(places[name], job_content(varied)):
            settings: dict[str, Any] = {"resume": is_run(places[name]), "title": f"{name:>9}", "tell": tell}
            run_with_progress(varied, job.parent, places[name], **settings)
            tell = False
    records = [RunRecord.read(place) for place in places.values()]
    results = {name: record.result for name, record in zip(jobs, records, strict=True)}
    Console(markup=False, emoji=False).print(compare(results, title="on the held-out rows"))
    for name, record in zip(jobs, records, strict=True):
        say(f"{name}: {in_short(record.result, record.constrained)}")
    write_page(records, folder / PAGE)
    say(str(folder / PAGE))


def _what_changes(job: JobFile, vary: str | None) -> str:
    """Say which of a job's constraints changes, and which stay."""
    from evenhand.constraints.kinds import moved

    constraints = job.to_job().constraints
    place = moved(constraints, vary)
    kept = ", ".join(one.kind for number, one in enumerate(constraints) if number != place)
    return f"the bound of {constraints[place or 0].kind} changes (--vary); every run keeps {kept}"
