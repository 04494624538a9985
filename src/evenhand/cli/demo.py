"""`evenhand demo`: a fair model on the real Adult data, split over six parties."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tomli_w
import typer
from rich.console import Console

from evenhand.cli.demo_federation import run_federation
from evenhand.cli.train import run_with_progress
from evenhand.printing import printable

if TYPE_CHECKING:
    from evenhand.data.public.loaders import Dataset

ACTIVE = "bank"
PARTIES: dict[str, list[str]] = {
    "bank": ["age", "capital-gain", "capital-loss", "education"],
    "employer": ["workclass", "occupation", "hours-per-week"],
    "registry": ["marital-status", "relationship"],
    "census": ["race", "sex", "fnlwgt"],
    "border": ["native-country"],
    "school": ["education-num"],
}


def demo(
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for tables, job files and run folders; default runs/demo, or the next free name."),
    ] = None,
    epsilon: Annotated[float, typer.Option(min=0.0, help="Bound on DEO, the gap in mean loss among positives.")] = 0.01,
    rounds: Annotated[int, typer.Option(min=1, help="Maximum number of communication rounds of each run.")] = 1000,
    published: Annotated[bool, typer.Option(help="Also train with the published method, to compare its cost.")] = True,
    source: Annotated[Path | None, typer.Option(help="Local folder with the Adult files.")] = None,
    federation: Annotated[
        bool,
        typer.Option(
            "--federation",
            help="Run on NVIDIA FLARE, in seven processes; without the published method.",
        ),
    ] = False,
) -> None:
    """Train on Adult, split over six parties (one active, five passive), without and with fairness constraints.

    plain: no constraint. fair: DEO bounded, as in the FairVFL papers. rates: equalized odds bounded on the exact error
    rates. published: the constraint of fair, trained with the papers' method and hyperparameters.

    \b
    Examples:
      evenhand demo
      evenhand demo --epsilon 0.05 --out runs/demo-loose
    """
    from evenhand.data import load
    from evenhand.jobs.folder import read_job
    from evenhand.report.page import write_page
    from evenhand.report.record import RunRecord
    from evenhand.report.tables import compare
    from evenhand.runtime.folder import check_free

    console = Console(markup=False, emoji=False)
    out = _next_free(Path("runs/demo")) if out is None else out
    check_free(out, "remove it, or choose another with --out")
    console.print("Adult census data: does this person earn more than 50,000 dollars a year? Sensitive attribute: sex.")
    data = load("adult", source=source, progress=lambda line: console.print(f"  {line}"))
    published = published and not federation
    jobs = write_demo(data, out, epsilon, rounds, published)
    results = {}
    if federation:
        results = run_federation(jobs, out, console)
    else:
        for name, path in jobs.items():
            finished = run_with_progress(read_job(path), path.parent, out / name, title=f"{name:>9}")
            results[name] = finished.result
    console.print(compare(results, title="on the held-out rows"))
    for name, result in results.items():
        for one in result["shortfalls"]:
            console.print(f"{name}: {one}.")
    gap = results["plain"]["quality"]["test"]["DEO"] - results["fair"]["quality"]["test"]["DEO"]
    cost = results["plain"]["quality"]["test"]["accuracy"] - results["fair"]["quality"]["test"]["accuracy"]
    console.print(
        "± s.e. is the standard error of the value above it; ≤ 95 % is an upper confidence bound on the gap for new "
        "people. A gap no larger than its standard error may be chance."
    )
    console.print(f"The constraint reduces DEO by {gap:.3f} and costs {100 * cost:.1f} points of accuracy.")
    if published:
        console.print("published: its short steps end far from the optimum, which acts like early stopping.")
    page = out / "report.html"
    write_page([RunRecord.read(out / name) for name in jobs], page)
    console.print(f"Report page: {printable(str(page))}", soft_wrap=True)
    console.print(f"Run folders, tables and job files, to change and run again: {printable(str(out))}", soft_wrap=True)
    console.print(printable(f"  evenhand train {jobs['fair']} --out {out / 'again'}"), soft_wrap=True)


def _next_free(path: Path) -> Path:
    """Return the folder itself or, if it exists, the first free one of path-2, path-3, ..."""
    candidates = (path if number == 1 else path.with_name(f"{path.name}-{number}") for number in itertools.count(1))
    return next(folder for folder in candidates if not folder.exists())


def write_demo(data: Dataset, out: Path, epsilon: float, rounds: int, published: bool) -> dict[str, Path]:
    """Write six parties' tables, each in its own row order, and return the job files by name."""
    import numpy as np
    import pandas as pd

    from evenhand.jobs.vertical.file import parse_vertical
    from evenhand.runtime.files import make_folder, write_bytes

    jobs = {name: {"job": job, "party": _parties(data)} for name, job in _jobs(epsilon, rounds, published).items()}
    for name, content in jobs.items():
        # Validated before anything is written.
        parse_vertical(content, f"{name}.toml")
    tables = out / "tables"
    make_folder(tables)
    rng = np.random.default_rng(0)
    ids = pd.Index([f"p{number:05d}" for number in rng.permutation(len(data.frame))], name="person")
    for name, columns in PARTIES.items():
        frame = data.frame[columns].set_axis(ids)
        if name == ACTIVE:
            frame = frame.assign(income=data.label.to_numpy(), sex=data.sensitive["sex"].to_numpy())
        write_bytes(tables / f"{name}.parquet", frame.iloc[rng.permutation(len(frame))].to_parquet())
    paths = {name: out / f"{name}.toml" for name in jobs}
    for name, path in paths.items():
        write_bytes(path, tomli_w.dumps(jobs[name]).encode())
    return paths


def _parties(data: Dataset) -> list[dict[str, Any]]:
    parties: dict[str, dict[str, Any]] = {
        name: {"name": name, "table": f"tables/{name}.parquet", "id": "person", "columns": columns}
        for name, columns in PARTIES.items()
    }
    label = {"column": "income", "positive": data.positive}
    parties[ACTIVE] |= {"role": "active", "label": label, "sensitive": ["sex"]}
    return list(parties.values())


def _jobs(epsilon: float, rounds: int, published: bool) -> dict[str, dict[str, Any]]:
    common: dict[str, Any] = {"max_rounds": rounds, "test_fraction": round(5222 / 45222, 4)}
    deo = {"kind": "equal-opportunity", "epsilon": epsilon}
    rates = {"kind": "equalized-odds", "epsilon": epsilon, "measure": "error"}
    jobs: dict[str, dict[str, Any]] = {
        "plain": common,
        "fair": common | {"constraint": deo},
        "rates": common | {"constraint": rates},
        "published": common | {"solver": "fairvfl", "constraint": deo, "options": {"step": 0.01, "local_steps": 7}},
    }
    if not published:
        del jobs["published"]
    return jobs
