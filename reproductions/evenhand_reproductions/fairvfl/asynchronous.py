"""Asynchronous FairVFL (FairVFL Algorithm 2): on the virtual clock with a straggler, and in real threads."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import pandas as pd
from matplotlib.figure import Figure

from evenhand.constraints.kinds import EqualOpportunity
from evenhand.protocol.job import Job
from evenhand.runtime.files import make_folder, write_figure
from evenhand.runtime.inprocess import VirtualClock
from evenhand.training.vertical import VerticalRun
from evenhand.vertical.problem import PartyColumns
from evenhand_reproductions.experiments import FairVFLProblem, make_problem
from evenhand_reproductions.figures import COLOURS
from evenhand_reproductions.in_memory import train_vertical
from evenhand_reproductions.settings import SETS, Meter, Record, Settings
from evenhand_reproductions.writing import Page, counted, markdown_table, runs_of, spread

RUNS: Final = 5
ROUNDS: Final = 300
ACTIVE: Final = 2
SLOWER: Final = 5.0
SPEED, LATENCY = 1e8, 1e-3
CONSTRAINT: Final = EqualOpportunity(0.01)
PACES: Final = {
    "exactly 1": ("exact", 1),
    "exactly 4": ("exact", 4),
    "at most 4": ("until-server-speaks", 4),
    "at most 7": ("until-server-speaks", 7),
}
USUAL: Final = "exactly 1"
CLOCK, THREADS = "virtual clock", "threads"
POINTS: Final = 60
MISSED: Final = 1.1
"""A DEO of more than so many times the bound misses it."""


def compute(settings: Settings, meter: Meter) -> list[Record]:
    data, draws = settings.datasets(), settings.draws(RUNS)
    meter.expect(len(draws) * len(PACES))
    records: list[Record] = []
    for name, seed in draws:
        problem = make_problem(data[name], "journal", seed)
        best = _train(problem, Job("subspace", (CONSTRAINT,), max_rounds=100)).certificate.objective
        for pace in PACES:
            meter.at(f"{SETS[name]}, seed {seed}: {pace}")
            records += [_fit(problem, pace, way, best, settings.rounds_or(ROUNDS)) for way in (CLOCK, THREADS)]
    return records


def _fit(problem: FairVFLProblem, pace: str, way: str, best: float, rounds: int) -> Record:
    kind, steps = PACES[pace]
    options = {"step": "auto", "dual_step": 0.5, "pace": kind, "local_steps": steps}
    job = Job("fairvfl", (CONSTRAINT,), max_rounds=rounds, tol=0.0, options=options)
    machines = VirtualClock(speed=SPEED, latency=LATENCY, speeds={"party 6": SPEED / SLOWER})
    start = time.perf_counter()
    run = _train(problem, job, **({"clock": machines} if way == CLOCK else {"runtime": "threads"}))
    seconds = time.perf_counter() - start
    history = run.history
    gap = next(name for name in history.columns if name.startswith("value["))
    thinned = history.iloc[:: max(1, len(history) // POINTS)]
    return {
        "set": problem.name,
        "seed": problem.seed,
        "method": pace,
        "way": way,
        "rounds": run.certificate.rounds,
        "above": run.certificate.objective / best - 1,
        "DEO": abs(float(history[gap].iloc[-1])),
        "steps": steps if kind == "exact" else _local_steps(run),
        "time": float(history["time"].iloc[-1]) if way == CLOCK else None,
        "seconds": seconds,
        "cores": len(os.sched_getaffinity(0)),
        "curve": [(float(row["time"]), float(row["objective"]) / best - 1) for _, row in thinned.iterrows()]
        if way == CLOCK
        else None,
    }


def _train(problem: FairVFLProblem, job: Job, **how: Any) -> VerticalRun:
    parties = [PartyColumns(f"party {i + 1}", matrix, i < ACTIVE) for i, matrix in enumerate(problem.train)]
    return train_vertical(job, parties, problem.labels.astype(float), problem.groups, **how)


def _local_steps(run: VerticalRun) -> float:
    """Steps of the first party, which is active, in a round."""
    frame = run.transcript.frame()
    sent = frame[(frame["kind"] == "scores") & (frame["sender"] == "party 1")]["messages"].sum()
    return float(sent - 1) / run.certificate.rounds


def constants(name: str) -> Record:
    return {"rounds": ROUNDS, "active": ACTIVE, "clock": (SPEED, LATENCY, SLOWER), "paces": PACES}


def page(records: pd.DataFrame) -> Page:
    ran = [
        f"DEO ≤ 0.01 on the loss, linear models, steps by the curvature, ascent step 0.5, {records['rounds'].max()} "
        f"rounds; six parties, {ACTIVE} of them active; {runs_of(records['seed'], 'random run')}.",
        "Active parties take exactly Q local steps a round and then send, or send after each step and go on until the "
        "server answers, at most Q times (FairVFL Algorithm 2). Passive parties take one step.",
        f"Virtual clock: {SPEED:.0e} multiplications a second, {1000 * LATENCY:g} ms a message; party 6, which is "
        f"passive, takes {SLOWER:g} times as long. Threads: a real thread for each participant, on a machine with "
        f"{records['cores'].iloc[0]} cores, which other work shared; these runs are not the same twice.",
        "Above the optimum: the objective at the end over that of subspace under the same bound. ± is the standard "
        "deviation over runs.",
    ]
    tables = [
        (f"{SETS[str(name)]} ({counted(part['seed'].nunique())})", _table(part))
        for name, part in records.groupby("set", sort=False)
    ]
    notes = [
        *_verdicts(records),
        "Seconds of threads are those of a simulation in one Python process: arithmetic of six parties shares the "
        "cores, and messages take no time. They say what asynchrony costs here, not what it gains between machines.",
        "The paper has no experiment on time; its Figure 2 of the first version is over rounds.",
    ]
    return Page(ran, tables, notes, figure=partial(_draw, records))


def _table(part: pd.DataFrame) -> str:
    rows = []
    for (pace, way), runs in part.groupby(["method", "way"], sort=False):
        timed = "–" if runs["time"].isna().any() else spread(runs["time"], 1.0, 2)
        cells = [spread(runs["above"], 100.0, 2), spread(runs["DEO"], 1.0, 4), spread(runs["steps"], 1.0, 2)]
        rows.append([str(pace), str(way), *cells, timed, spread(runs["seconds"], 1.0, 2)])
    header = ["local steps", "way", "above the optimum, %", "DEO", "steps a round", "virtual s", "seconds"]
    return markdown_table(header, rows)


def _verdicts(records: pd.DataFrame) -> list[str]:
    """Who misses the bound, and what a pace costs and gains against one local step a round, on the virtual clock."""
    lines = []
    for name, part in records.groupby("set", sort=False):
        missed = part[part["DEO"] > MISSED * CONSTRAINT.epsilon].groupby(["method", "way"], sort=False)["DEO"]
        said = [f"{pace}, {way} {len(runs)} (at most {runs.max():.3f})" for (pace, way), runs in missed]
        lines.append(
            f"{SETS[str(name)]}, runs of {part['seed'].nunique()} that end with a DEO above {MISSED:g} times the "
            f"bound, so that their objective may lie below the optimum under it: {'; '.join(said) or 'none'}."
        )
        clock = part[part["way"] == CLOCK]
        usual = clock[clock["method"] == USUAL].set_index("seed")
        compared = []
        for pace in (one for one in PACES if one != USUAL):
            own = clock[clock["method"] == pace].set_index("seed")
            longer, higher = own["time"] / usual["time"], own["above"] - usual["above"]
            compared.append(
                f"{pace} takes {longer.mean():.2f} times as long for as many rounds and ends "
                f"{abs(100 * higher.mean()):.2f} points {'higher' if higher.mean() > 0 else 'lower'}"
            )
        lines.append(f"{SETS[str(name)]}, against exactly one local step, virtual clock: {'; '.join(compared)}.")
    return lines


def _draw(records: pd.DataFrame, path: Path) -> None:
    """How far above the optimum, over virtual time: the first run of each set."""
    first = records[(records["way"] == CLOCK) & (records["seed"] == records["seed"].min())]
    names = list(first["set"].unique())
    figure = Figure(figsize=(max(4.6 * len(names), 6.5), 4.2), layout="constrained")
    for axis, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        runs = first[first["set"] == name]
        for (pace, points), colour in zip(runs[["method", "curve"]].itertuples(index=False), COLOURS[1:], strict=False):
            axis.plot(*zip(*points, strict=True), color=colour, label=f"{pace} local steps")
        axis.set_yscale("log")
        axis.set_title(SETS[str(name)])
        axis.set_xlabel("virtual time, s")
        axis.grid(alpha=0.3)
    axes = figure.axes
    axes[0].set_ylabel("objective above the optimum, relative")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle("FairVFL with a passive straggler, first run")
    make_folder(path.parent)
    write_figure(path, figure, dpi=110)
