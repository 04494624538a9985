"""VFB² in real threads: seconds of asynchronous and synchronous runs with a straggler, beside Figure 3's."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd

from evenhand.errors import DivergenceError
from evenhand.protocol.job import Job
from evenhand.protocol.roles import Report
from evenhand.runtime.threads import Threads
from evenhand.vertical.problem import PartyColumns
from evenhand_reproductions.in_memory import Holdings
from evenhand_reproductions.settings import SETS, Meter, Record, Settings
from evenhand_reproductions.vfb2.figures import draw_stragglers
from evenhand_reproductions.vfb2.problems import OUR_STEP, REGULARISERS, RIDGE, VFB2Problem, read
from evenhand_reproductions.vfb2.stragglers import (
    ACTIVE,
    ASYNCHRONOUS,
    BATCH,
    NO_STRAGGLER,
    PARTIES,
    PRECISION,
    RULES,
    SLOWER,
    STRAGGLER,
    SYNCHRONOUS,
    best_step,
    lowest,
    reached_at,
)
from evenhand_reproductions.writing import Page, counted, markdown_table, runs_of

RUNS: Final = 5
ROUNDS: Final = 12
EQUATION: Final = "13"
METHODS: Final = {ASYNCHRONOUS: ("asynchronous", SLOWER), SYNCHRONOUS: ("synchronous", SLOWER)} | {
    NO_STRAGGLER: ("synchronous", 1.0)
}
WORKERS: Final = 2
AXES: Final = {"time": "milliseconds of the clock on the wall", "epoch": "epochs"}


def compute(settings: Settings, meter: Meter) -> list[Record]:
    draws = settings.draws(RUNS)
    meter.expect(len(draws) * len(RULES) * (1 + len(METHODS)))
    records: list[Record] = []
    for name in settings.sets:
        source = read(name, settings.source)
        for drawn, seed in draws:
            if drawn == name:
                records += _curves(source.draw(seed), settings.rounds_or(ROUNDS), meter)
    return records


def _curves(problem: VFB2Problem, rounds: int, meter: Meter) -> list[Record]:
    parties = problem.parties(PARTIES, ACTIVE)
    best = lowest(problem, EQUATION)
    records: list[Record] = []
    for rule in RULES:
        meter.at(f"{SETS[problem.name]}, seed {problem.seed}: γ of {rule}")
        step = best_step(rule, parties, problem, EQUATION, rounds)
        for method, (pace, slower) in METHODS.items():
            meter.at(f"{SETS[problem.name]}, seed {problem.seed}: {method}, {rule}")
            options = {"regulariser": REGULARISERS[EQUATION], "batch_size": BATCH, "growth": False}
            job = Job(
                f"vfb2-{rule.lower()}",
                alpha=RIDGE,
                tol=0.0,
                max_rounds=rounds,
                seed=problem.seed,
                fit_intercept=False,
                options={**options, "pace": pace, "step": step},
            )
            load, start = os.getloadavg()[0], time.process_time()
            reports, diverged = _run(job, parties, problem, slower)
            head = {"set": problem.name, "seed": problem.seed, "rule": rule, "method": method, "step": step}
            head |= {"diverged": diverged, "load": load, "cpu": time.process_time() - start}
            head |= {"cores": len(os.sched_getaffinity(0))}
            records += [
                {**head, "epoch": row["round"], "time": row["time"], "gap": _share(problem, row["objective"], best)}
                for row in reports
            ]
    return records


def _share(problem: VFB2Problem, objective: Any, best: float) -> float:
    return (float(objective) - best) / (problem.loss_at_start - best)


def _run(job: Job, parties: Sequence[PartyColumns], problem: VFB2Problem, slower: float) -> tuple[list[Report], bool]:
    """Return the rows of history of a run in threads, and whether it diverged."""
    server, roles = Holdings.of(job, parties, problem.labels).roles()
    reports: list[Report] = []
    try:
        Threads([server, *roles], on_report=reports.append, workers=WORKERS, slowdown={STRAGGLER: slower}).run()
    except DivergenceError:
        return reports, True
    return reports, False


def constants(name: str) -> Record:
    return {"parties": (PARTIES, ACTIVE), "straggler": (STRAGGLER, SLOWER), "batch": BATCH, "rounds": ROUNDS}


def page(records: pd.DataFrame) -> Page:
    def figure(path: Path) -> None:
        draw_stragglers(records, path, "Problem (13) in real threads: distance from the lowest loss", AXES)

    reached = _reached(records)
    steps = ", ".join(
        f"{SETS[str(name)]} {rule} {' and '.join(f'{step:.1e}' for step in sorted(part['step'].unique()))}"
        for (name, rule), part in records.groupby(["set", "rule"], sort=False)
    )
    ran = [
        f"Problem (13), λ = 10⁻⁴, {PARTIES} parties, {ACTIVE} of them active, {BATCH} rows in a message, "
        f"{WORKERS} threads a party, {records['epoch'].max()} epochs; {runs_of(records['seed'], 'random run')}. "
        f"{STRAGGLER} sleeps after each task, so that it takes {SLOWER} times as long.",
        f"The machine has {records['cores'].iloc[0]} cores for {PARTIES} parties and the server, in one Python "
        f"process, and other work shared them: the load average was {records['load'].min():.1f} to "
        f"{records['load'].max():.1f}. No two of these runs are the same.",
        "γ is that of the paper's grid with the lowest loss after all epochs of an asynchronous run in one loop: "
        f"{steps}.",
        OUR_STEP,
    ]
    tables = [
        (f"{SETS[str(name)]}: seconds to a precision", _table(part))
        for name, part in reached.groupby("set", sort=False)
    ]
    notes = [
        *_verdicts(reached),
        "Threads of one process take turns at the interpreter, and every party shares the cores: these seconds are no "
        "measurement of parties on machines of their own. `vfb2-fig3` has the same runs on a virtual clock, where "
        "every party has a machine.",
        "The paper ran on machines with MPI, which are not described further, and prints curves without numbers.",
    ]
    return Page(ran, tables, notes, figure=figure)


def _reached(records: pd.DataFrame) -> pd.DataFrame:
    """Seconds of each run until the gap that all runs of a set and a rule reach, 1 % if they all do."""
    rows = []
    for (name, rule), part in records.groupby(["set", "rule"], sort=False):
        ended = part[~part["diverged"]]
        lowest_gaps = ended.groupby(["method", "seed"])["gap"].min()
        precision = max(PRECISION, float(lowest_gaps.max()))
        for (method, seed), line in ended.groupby(["method", "seed"], sort=False):
            at = reached_at(line.set_index("epoch")[["time", "gap"]], precision)
            rows.append({"set": name, "rule": rule, "method": method, "seed": seed, "precision": precision, "time": at})
    return pd.DataFrame(rows)


def _table(part: pd.DataFrame) -> str:
    rows = []
    for rule, runs in part.groupby("rule", sort=False):
        times = {method: line["time"] for method, line in runs.groupby("method", sort=False)}
        cells = [
            f"{one.median():.2f} ({one.min():.2f} to {one.max():.2f})" for one in (times[name] for name in METHODS)
        ]
        medians = [times[name].median() for name in METHODS]
        ratios = [f"{medians[1] / medians[0]:.2f}", f"{medians[1] / medians[2]:.2f}"]
        rows.append([str(rule), f"{100 * runs['precision'].iloc[0]:.1f} %", *cells, *ratios])
    names = [f"{name}, s: median (least to most)" for name in METHODS]
    return markdown_table(["rule", "gap reached", *names, "VFB / VFB²", "straggler's cost"], rows)


def _verdicts(reached: pd.DataFrame) -> list[str]:
    """Say where noise hides the straggler, and seed by seed in how many pairs the asynchronous run was there first."""
    lines = []
    for name, part in reached.groupby("set", sort=False):
        medians = part.groupby(["rule", "method"], sort=False)["time"].median().unstack()
        hidden = [str(rule) for rule in medians.index[medians[SYNCHRONOUS] < medians[NO_STRAGGLER]]]
        if hidden:
            lines.append(
                f"{SETS[str(name)]}, {', '.join(hidden)}: in the median the synchronous runs are faster with the "
                "straggler than without it. The other work on the machine then weighs more than the straggler, and "
                "more than what a ratio of these seconds can tell."
            )
        said = []
        for rule, runs in part.groupby("rule", sort=False):
            wide = runs.pivot(index="seed", columns="method", values="time").dropna()
            first = int((wide[ASYNCHRONOUS] < wide[SYNCHRONOUS]).sum())
            said.append(f"{rule} {first} of {counted(len(wide), 'pair')}")
        lines.append(
            f"{SETS[str(name)]}: the asynchronous run reached the precision before the synchronous one with the same "
            f"straggler in {', '.join(said)}."
        )
    return lines
