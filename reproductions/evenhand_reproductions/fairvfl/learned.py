"""Journal version, Table 2 and Figure 2, by our solver for any model at any party: a few rounds of networks."""

from __future__ import annotations

import pandas as pd

from evenhand_reproductions import convergence, reasons
from evenhand_reproductions.comparing import ERROR_RATES, differences, tables
from evenhand_reproductions.experiments import FairVFLProblem, Fit, fitting, learned, make_problem, measured, thinned
from evenhand_reproductions.papers import EPSILONS, TABLE2, fair
from evenhand_reproductions.settings import SETS, Meter, Record, Settings
from evenhand_reproductions.writing import Page, runs_of

RUNS = 5
ROUNDS = 12
"""Most rounds of a fit, which ends by its own rule before."""
FREE = "learners, no constraint"
STYLES = {"learners": {"linestyle": "-", "marker": "."}}
LEVELS = convergence.levels(EPSILONS)


def bounded(epsilon: float) -> str:
    return f"learners (ε={epsilon:g})"


def compute(settings: Settings, meter: Meter) -> list[Record]:
    data, draws, rounds = settings.datasets(), settings.draws(RUNS), settings.rounds_or(ROUNDS)
    meter.expect(len(draws) * (1 + len(EPSILONS)))
    records: list[Record] = []
    for name, seed in draws:
        problem = make_problem(data[name], "journal", seed)
        for level, epsilon in LEVELS.items():
            method, beside = (FREE, "FedBCD") if level == convergence.FREE else (bounded(epsilon), fair(epsilon))
            fitting(meter, problem, method)
            records.append(_row(problem, method, learned(problem, epsilon, rounds), beside, level))
    return records


def _row(problem: FairVFLProblem, method: str, fit: Fit, beside: str, level: str) -> Record:
    return measured(problem, method, fit, beside=beside, level=level, curve=thinned(fit))


def constants(name: str) -> Record:
    return {"rounds": ROUNDS, "epsilons": EPSILONS}


def page(records: pd.DataFrame) -> Page:
    curves = pd.DataFrame(
        {"set": one["set"], "seed": one["seed"], "method": "learners", "level": one["level"]}
        | dict(zip(("round", "objective", "DEO"), point, strict=True))
        for one in records.to_dict("records")
        for point in one["curve"]
    )
    ran = [
        "The paper's numbers of rows and features, one active and five passive parties. Each party fits a network of "
        "its own (hidden layers of 32 and 16 units, a part of its rows decides when to stop) to the working response "
        "and sends one column a round, the passive parties a masked sum. One model a round (`folds=1`), DEO on the "
        f"loss bounded on the training rows as in the paper, at most {ROUNDS} rounds. Mean ± standard deviation over "
        "random runs.",
        *(
            f"{SETS[str(name)]}: {runs_of(part['seed'])}; rounds {part['rounds'].min():.0f} to "
            f"{part['rounds'].max():.0f}; largest excess of the DEO of the training rows over its bound "
            f"{_excess(part):.1e}; {part['bytes'].mean() / 1e6:.1f} MB and {part['seconds'].mean():.1f} s a run."
            for name, part in records.groupby("set", sort=False)
        ),
    ]
    notes = [
        "The paper's method, on the same splits, is on the page of `fairvfl-table2`. The number beside ours is that of "
        "the paper's method.",
        "The objective of the table is the mean loss of the model that is kept; the paper's has a small regulariser "
        "besides. Curves end where the shortest run ends, and the model that is kept may be that of an earlier round: "
        "the loss of rows that no network was fitted to decides.",
        *reasons.chance(records, bounded(0.01)),
        *differences(records, ERROR_RATES, TABLE2, reasons.usual),
    ]
    points = convergence.in_all_runs(curves)
    figure = convergence.figure(
        points, LEVELS, STYLES, "Any model at any party: training objective and DEO over rounds"
    )
    return Page(ran, [*tables(records, ERROR_RATES, TABLE2), *convergence.ends(points)], notes, figure=figure)


def _excess(records: pd.DataFrame) -> float:
    bounds = records["level"].map(LEVELS)
    return float((records["train DEO"] - bounds).max())
