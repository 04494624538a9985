"""Measure how the cost of `subspace` grows with rows, parties and columns.

Synthetic data of a fixed kind (correlated Gaussian columns, a group that shifts some of them, logistic labels), equal
opportunity at 0.01, default settings. One quantity grows at a time; rounds should stay flat and time grow no faster
than the data. Times are of training alone, one BLAS thread.

    python benchmarks/subspace_growth.py [--largest]     (--largest adds a million rows and 10,000 columns)
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from evenhand.constraints.kinds import EqualOpportunity
from evenhand.protocol.job import Job
from evenhand.vertical.problem import PartyColumns
from evenhand_reproductions.in_memory import train_vertical


def measure(rows: int, parties: int, columns: int) -> tuple[int, float]:
    """Rounds and seconds."""
    rng = np.random.default_rng(0)
    group = rng.random(rows) < 0.4
    shared = rng.standard_normal((rows, 5))
    signal = np.zeros(rows)
    blocks = []
    for part in np.array_split(np.arange(columns), parties):
        block = rng.standard_normal((rows, len(part)))
        block += shared @ rng.standard_normal((5, len(part))) * 0.5
        block[:, ::4] += 0.5 * group[:, None]
        signal += block @ rng.standard_normal(len(part)) / np.sqrt(columns)
        blocks.append(block)
    labels = np.where(signal + rng.logistic(size=rows) > 0.5, 1.0, -1.0)
    columns_of = [PartyColumns(f"party{k}", block, k == 0) for k, block in enumerate(blocks)]
    job = Job(solver="subspace", constraints=(EqualOpportunity(0.01),), max_rounds=60)
    start = time.perf_counter()
    run = train_vertical(job, columns_of, labels, pd.DataFrame({"group": group}))
    seconds = time.perf_counter() - start
    assert run.certificate.converged
    return run.certificate.rounds, seconds


def sweep(name: str, cases: list[tuple[int, int, int]]) -> Table:
    table = Table(
        "rows", "parties", "columns", "rounds", "seconds", "time x", "data x", title=name, title_justify="left"
    )
    first = None
    for rows, parties, columns in cases:
        rounds, seconds = measure(rows, parties, columns)
        first = first or (seconds, rows * columns)
        ratios = (f"{seconds / first[0]:.1f}", f"{rows * columns / first[1]:.1f}")
        table.add_row(f"{rows:,}", str(parties), f"{columns:,}", str(rounds), f"{seconds:.2f}", *ratios)
    return table


def main() -> None:
    largest = "--largest" in sys.argv
    rows = [10_000, 30_000, 100_000, 300_000] + [1_000_000] * largest
    columns = [100, 300, 1_000, 3_000] + [10_000] * largest
    console = Console()
    measure(1_000, 2, 10)
    console.print(sweep("rows", [(n, 6, 60) for n in rows]))
    console.print(sweep("parties", [(20_000, k, 300) for k in (2, 6, 12, 25, 50)]))
    console.print(sweep("columns", [(10_000, 6, m) for m in columns]))


if __name__ == "__main__":
    main()
