"""Neural parties: rounds to the same objective, with the papers' plain steps and with Adam and a penalty.

COMPAS, six neural parties (two hidden layers), DEO ≤ 0.01. Plain descent-ascent runs at the published step (0.01) and
at two longer ones; its best feasible objective within the cap is the mark. Then: after how many rounds is each there,
with no row exceeded by more than 0.001?

    python benchmarks/mlp_rounds.py [--source FOLDER]
"""

from __future__ import annotations

from typing import Any

from problems import arguments, problem
from rich.console import Console
from rich.table import Table

from evenhand.constraints.kinds import EqualOpportunity
from evenhand.protocol.job import Job
from evenhand_reproductions.in_memory import train_vertical

CAP = 400
SETTINGS: dict[str, dict[str, Any]] = {
    "plain, step 0.01 (published)": {"step": 0.01},
    "plain, step 0.1": {"step": 0.1},
    "plain, step 0.5": {"step": 0.5},
    "adam, step 0.01": {"step": 0.01, "optimiser": "adam"},
    "adam, step 0.01, penalty 1": {"step": 0.01, "optimiser": "adam", "penalty": 1.0},
}


def main() -> None:
    given = problem("compas", arguments(__doc__).source)
    histories = {}
    for name, options in SETTINGS.items():
        job = Job(
            solver="fairvfl",
            model="mlp",
            constraints=(EqualOpportunity(0.01),),
            max_rounds=CAP,
            tol=0.0,
            options=options,
        )
        history = train_vertical(job, given.parties, given.labels, given.sensitive).history
        histories[name] = history[history["violation"] <= 1e-3]
    best = {name: history["objective"].min() for name, history in histories.items()}
    mark = min(value for name, value in best.items() if name.startswith("plain"))
    first = {}
    for name, history in histories.items():
        there = history[history["objective"] <= mark]
        first[name] = None if there.empty else int(there["round"].iloc[0])
    yardstick = min(rounds for name, rounds in first.items() if name.startswith("plain") and rounds is not None)
    title = f"rounds to objective {mark:.4f}, the best of plain steps in {CAP} rounds"
    table = Table("local steps", "best feasible objective", "rounds to the mark", "times fewer", title=title)
    for name, rounds in first.items():
        shown = ("not reached", "") if rounds is None else (str(rounds), f"{yardstick / rounds:.1f}")
        table.add_row(name, f"{best[name]:.4f}", *shown)
    Console().print(table)


if __name__ == "__main__":
    main()
