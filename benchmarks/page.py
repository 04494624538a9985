"""Measure size and time of the report page for a long run of many parties: 1,000 rounds, 50 parties.

A small run's record is blown up: rounds, inequalities, links, weights. The time is also given as a multiple of what
the small run's own page takes.

    python benchmarks/page.py
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.cli.data import write_example
from evenhand.jobs.horizontal.file import parse_horizontal
from evenhand.jobs.horizontal.runs import run_horizontal_job
from evenhand.report.page import make_page
from evenhand.report.record import RunRecord

ROUNDS, PARTIES, COLUMNS, CONSTRAINT_ROWS = 1000, 50, 200, 40


def small(folder: Path) -> RunRecord:
    tables = write_example("hospitals", folder)
    content = {
        "job": {
            "split": "horizontal",
            "test_fraction": 0.25,
            "constraint": {"kind": "equalized-odds", "epsilon": 0.05, "measure": "error"},
        },
        "data": {"id": "patient", "label": {"column": "readmitted", "positive": "yes"}, "sensitive": ["sex"]},
        "client": [{"name": path.stem, "table": path.name} for path in tables],
    }
    job = parse_horizontal(content, "job.toml")
    return RunRecord.read(run_horizontal_job(job, folder, folder / "run").folder.path)


def blown_up(record: RunRecord) -> RunRecord:
    rng = np.random.default_rng(0)
    values = {f"value[row {place}]": rng.normal(size=ROUNDS) for place in range(CONSTRAINT_ROWS)}
    history = pd.DataFrame({"round": np.arange(ROUNDS), "objective": rng.random(ROUNDS), **values})
    links = [
        (sender, receiver, kind, ROUNDS, 10**6)
        for party in range(PARTIES)
        for sender, receiver in (("server", f"party {party}"), (f"party {party}", "server"))
        for kind in record.traffic["kind"].unique()
    ]
    names = [f"column {place}" for place in range(COLUMNS)]
    weights = {f"party {party}": pd.Series(rng.normal(size=COLUMNS), index=names) for party in range(PARTIES)}
    return replace(
        record, history=history, traffic=pd.DataFrame(links, columns=list(record.traffic.columns)), weights=weights
    )


def best_time(records: Sequence[RunRecord], times: int = 5) -> float:
    taken = []
    for _ in range(times):
        start = time.process_time()
        make_page(records)
        taken.append(time.process_time() - start)
    return min(taken)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        record = small(Path(folder))
    large = blown_up(record)
    print(f"{ROUNDS:,} rounds, {PARTIES} parties: {len(make_page([large]).encode()) / 1e6:.2f} MB")
    one, many = best_time([record]), best_time([large])
    print(f"{many:.2f} s of CPU, {many / one:.0f} times the page of a run of {len(record.history)} rounds")
