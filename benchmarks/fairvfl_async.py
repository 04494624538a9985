"""Asynchronous FairVFL on real data: on the virtual clock with a straggler, and in real threads.

COMPAS and Crime as in the journal version (six parties; here two of them active), DEO ≤ 0.01, linear, steps by the
curvature, 300 rounds. Active parties take exactly Q local steps a round, or continue until the server sends, at most Q
times (FairVFL Algorithm 2). Printed: how far the objective ends from the constrained optimum (subspace), DEO, local
steps that an active party took in a round, and the virtual time against that of Q = 1.

    python benchmarks/fairvfl_async.py [--source FOLDER]
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from problems import arguments
from rich.console import Console
from rich.table import Table

from evenhand.constraints.kinds import EqualOpportunity
from evenhand.data import load
from evenhand.protocol.job import Job
from evenhand.runtime.inprocess import VirtualClock
from evenhand.training.vertical import VerticalRun
from evenhand.vertical.problem import PartyColumns
from evenhand_reproductions.experiments import make_problem
from evenhand_reproductions.in_memory import train_vertical

ROUNDS, SEED, ACTIVE = 300, 10, 2
SLOWER = 5.0
CONSTRAINT = EqualOpportunity(0.01)


def local_steps(run: VerticalRun) -> float:
    """Of the first party, which is active, in a round."""
    frame = run.transcript.frame()
    sent = frame[(frame["kind"] == "scores") & (frame["sender"] == "party 1")]["messages"].sum()
    return float(sent - 1) / run.certificate.rounds


def main() -> None:
    source = arguments(__doc__).source
    console = Console()
    for name in ("compas", "communities-crime"):
        made = make_problem(load(name, source=source), "journal", SEED)
        parties = [PartyColumns(f"party {i + 1}", matrix, i < ACTIVE) for i, matrix in enumerate(made.train)]

        def train(job: Job, parties: list[PartyColumns] = parties, made: Any = made, **how: Any) -> VerticalRun:
            return train_vertical(job, parties, made.labels.astype(float), made.groups, **how)

        best = train(Job("subspace", (CONSTRAINT,), max_rounds=100)).certificate.objective
        clock = VirtualClock(speed=1e8, latency=1e-3, speeds={"party 6": 1e8 / SLOWER})
        plain = Job("fairvfl", (CONSTRAINT,), max_rounds=ROUNDS, tol=0.0, options={"step": "auto", "dual_step": 0.5})
        title = f"{name}, optimum {best:.4f}"
        table = Table("pace", "Q", "way", "above the optimum", "DEO", "local steps", "time", title=title)
        usual = 0.0
        for pace, q in (("exact", 1), ("exact", 4), ("until-server-speaks", 4), ("until-server-speaks", 7)):
            job = replace(plain, options={**plain.options, "pace": pace, "local_steps": q})
            ways: dict[str, dict[str, Any]] = {"virtual clock": {"clock": clock}, "threads": {"runtime": "threads"}}
            for way, how in ways.items():
                run = train(job, **how)
                last = run.history.iloc[-1]
                gap = next(abs(last[column]) for column in run.history.columns if column.startswith("value["))
                usual = usual or float(last["time"])
                time = f"{last['time'] / usual:.2f} of Q = 1" if "clock" in how else "–"
                steps = q if pace == "exact" else local_steps(run)
                over = 100 * (run.certificate.objective / best - 1)
                table.add_row(pace, str(q), way, f"{over:.2f} %", f"{gap:.4f}", f"{steps:.2f}", time)
        console.print(table)


if __name__ == "__main__":
    main()
