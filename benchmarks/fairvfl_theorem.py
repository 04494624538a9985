"""Compare FairVFL with the steps of its Theorem 2 and with the constants of its experiments.

The theorem's η_t grows with K·Q, with the square of how strongly weights and multipliers are coupled, and with √t. Six
parties as in the papers, DEO ≤ 0.01, Q = 1. "Way made" is the share of the objective's fall from the first round to the
constrained optimum (by `subspace`) that has been made.

    python benchmarks/fairvfl_theorem.py [--source FOLDER]
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from problems import Problem, arguments, problem
from rich.console import Console
from rich.table import Table

from evenhand.constraints.kinds import EqualOpportunity
from evenhand.protocol.job import Job
from evenhand_reproductions.in_memory import train_vertical

ROUNDS = (100, 1000, 5000)
SCHEDULES: dict[str, dict[str, Any]] = {
    "theorem, β = 0.1": {"schedule": "theorem", "dual_step": 0.1},
    "theorem, β = 0.001": {"schedule": "theorem", "dual_step": 0.001},
    "experiments (η = 100, β = 0.1)": {"step": 0.01},
}


def history(given: Problem, **job: Any) -> pd.DataFrame:
    asked = Job(constraints=(EqualOpportunity(0.01),), **job)
    return train_vertical(asked, given.parties, given.labels, given.sensitive).history


def main() -> None:
    source = arguments(__doc__).source
    table = Table("data", "schedule", "rounds", "objective", "way made", "DEO")
    for name in ("compas", "communities-crime"):
        given = problem(name, source)
        best = float(history(given, solver="subspace", tol=1e-5)["objective"].iloc[-1])
        for words, options in SCHEDULES.items():
            found = history(given, solver="fairvfl", options=options, max_rounds=ROUNDS[-1], tol=0.0).set_index("round")
            first, gap = found["objective"].iloc[0], found.filter(like="value[").abs().max(axis=1)
            for rounds in ROUNDS:
                objective = found.at[rounds, "objective"]
                way = (first - objective) / (first - best)
                table.add_row(name, words, f"{rounds:,}", f"{objective:.4f}", f"{way:.1%}", f"{gap[rounds]:.3f}")
        table.add_section()
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
