"""`evenhand demo`: a fair model on the real Adult data, split over six parties."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tomli_w
import typer
from rich.console import Console

from evenhand.cli.train import run_with_progress

if TYPE_CHECKING:
    from evenhand.data import Dataset

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
    out: Annotated[Path, typer.Option(help="Folder for tables, job files and run folders.")] = Path("runs/demo"),
    epsilon: Annotated[float, typer.Option(min=0.0, help="Bound on DEO, the gap in mean loss among positives.")] = 0.01,
    rounds: Annotated[int, typer.Option(min=1, help="Most communication rounds of each run.")] = 1000,
    source: Annotated[Path | None, typer.Option(help="Local folder with the Adult files.")] = None,
) -> None:
    """Train on Adult, split over six parties (one active, five passive), without and with a fairness constraint.

    \b
    Examples:
      evenhand demo
      evenhand demo --epsilon 0.05 --out runs/demo-loose
    """
    from evenhand.data import load
    from evenhand.jobfile import read_job
    from evenhand.report.record import check_free
    from evenhand.report.tables import compare

    console = Console(markup=False, emoji=False)
    check_free(out, "remove it, or choose another with --out")
    console.print("Adult census data: does this person earn more than 50,000 dollars a year? Sensitive attribute: sex.")
    data = load("adult", source=source, progress=lambda line: console.print(f"  {line}"))
    jobs = write_demo(data, out, epsilon, rounds)
    results = {}
    for name, path in jobs.items():
        finished = run_with_progress(read_job(path), path.parent, out / name, title=f"{name:>13}")
        results[name] = finished.result
    console.print(compare(results, title="on the held-out rows"))
    gap = results["plain"]["quality"]["test"]["DEO"] - results["fair"]["quality"]["test"]["DEO"]
    cost = results["plain"]["quality"]["test"]["accuracy"] - results["fair"]["quality"]["test"]["accuracy"]
    console.print(f"The constraint takes {gap:.3f} off DEO at a price of {100 * cost:.1f} points of accuracy.")
    console.print(f"Run folders, tables and job files to change and run again: {out}", soft_wrap=True)
    console.print(f"  evenhand train {jobs['fair']} --out {out / 'again'}", soft_wrap=True)


def write_demo(data: Dataset, out: Path, epsilon: float, rounds: int) -> dict[str, Path]:
    """Six parties' tables, each in an order of its own, and two job files; returns the job files by name."""
    import numpy as np
    import pandas as pd

    from evenhand.jobfile import parse_job
    from evenhand.report.record import make_folder

    jobs = {name: {"job": job, "party": _parties(data)} for name, job in _jobs(epsilon, rounds).items()}
    for name, content in jobs.items():
        # Before anything is written.
        parse_job(content, f"{name}.toml")
    tables = out / "tables"
    make_folder(tables)
    rng = np.random.default_rng(0)
    ids = pd.Index([f"p{number:05d}" for number in rng.permutation(len(data.frame))], name="person")
    for name, columns in PARTIES.items():
        frame = data.frame[columns].set_axis(ids)
        if name == ACTIVE:
            frame = frame.assign(income=data.label.to_numpy(), sex=data.sensitive["sex"].to_numpy())
        frame.iloc[rng.permutation(len(frame))].to_parquet(tables / f"{name}.parquet")
    paths = {name: out / f"{name}.toml" for name in jobs}
    for name, path in paths.items():
        path.write_text(tomli_w.dumps(jobs[name]), encoding="utf-8")
    return paths


def _parties(data: Dataset) -> list[dict[str, Any]]:
    parties: dict[str, dict[str, Any]] = {
        name: {"name": name, "table": f"tables/{name}.parquet", "id": "person", "columns": columns}
        for name, columns in PARTIES.items()
    }
    label = {"column": "income", "positive": data.positive}
    parties[ACTIVE] |= {"role": "active", "label": label, "sensitive": ["sex"]}
    return list(parties.values())


def _jobs(epsilon: float, rounds: int) -> dict[str, dict[str, Any]]:
    common = {"max_rounds": rounds, "test_fraction": round(5222 / 45222, 4), "options": {"step": "auto"}}
    constraint = {"kind": "equal-opportunity", "epsilon": epsilon}
    return {"plain": {"solver": "fedbcd"} | common, "fair": {"solver": "fairvfl", "constraint": constraint} | common}
