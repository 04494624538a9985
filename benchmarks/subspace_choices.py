"""Measure the effect of past steps and of the temperature ladder in `subspace`, on Adult.

First, for equal opportunity at 0.01, rounds and gap to the table's best objective by the number of past steps kept.
Then, for equalized odds on error rates at 0.01, the objective reached with and without the ladder of temperatures, over
five draws of rows and columns: sharp rates have local optima, and the ladder finds better ones.

    python benchmarks/subspace_choices.py [--source FOLDER]
"""

from __future__ import annotations

from pathlib import Path

from problems import arguments, problem
from rich.console import Console
from rich.table import Table

from evenhand.constraints.kinds import EqualizedOdds, EqualOpportunity
from evenhand.protocol.job import Job
from evenhand.training.vertical import VerticalRun
from evenhand.vertical.subspace import rate_search
from evenhand_reproductions.in_memory import train_vertical


def train(job: Job, source: Path | None, seed: int) -> VerticalRun:
    given = problem("adult", source, seed)
    return train_vertical(job, given.parties, given.labels, given.sensitive)


def main() -> None:
    source = arguments(__doc__).source
    console = Console()
    runs = {}
    for history in (0, 1, 2, 4, 8, 16):
        options = {"history": history}
        job = Job(solver="subspace", constraints=(EqualOpportunity(0.01),), tol=0.0, max_rounds=15, options=options)
        runs[history] = train(job, source, 10).history.set_index("round")["objective"]
    best = min(objective.min() for objective in runs.values())
    table = Table("past steps", "rounds to 0.2 %", "% above the best after 5", "after 8", "after 15")
    for history, objective in runs.items():
        there = objective[objective <= 1.002 * best]
        gaps = (f"{100 * (objective[rounds] / best - 1):.3f}" for rounds in (5, 8, 15))
        table.add_row(str(history), "> 15" if there.empty else f"{there.index[0]:.0f}", *gaps)
    console.print(table)

    ladder = rate_search.LADDER
    table = Table("draw", "objective with the ladder", "without")
    for seed in range(10, 15):
        job = Job(solver="subspace", constraints=(EqualizedOdds(0.01, measure="error"),), max_rounds=60)
        found = []
        for steps in (ladder, ()):
            rate_search.LADDER = steps
            found.append(train(job, source, seed).certificate.objective)
        rate_search.LADDER = ladder
        table.add_row(str(seed), *(f"{objective:.4f}" for objective in found))
    console.print(table)


if __name__ == "__main__":
    main()
