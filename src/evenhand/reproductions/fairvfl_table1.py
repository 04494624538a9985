"""Journal version, Table 1: accuracy and gaps in error rates of linear models, beside ours."""

from __future__ import annotations

import pandas as pd

from evenhand.constraints import EqualizedOdds, EqualOpportunity
from evenhand.reproductions import reasons
from evenhand.reproductions.comparing import BEST, Column, differences, tables
from evenhand.reproductions.experiments import Problem, make_problem, measured, published, selected, subspace
from evenhand.reproductions.papers import EPSILONS, TABLE1, fair
from evenhand.reproductions.postprocessing import HOW, calibrated, equal_odds
from evenhand.reproductions.settings import SETS, Meter, Record, Settings
from evenhand.reproductions.writing import Page, means

ROUNDS = 1000
FOLDS = 3
RATE_EPSILONS = (0.02, 0.01, 0.005, 0.002, 0.001)
ALPHAS = (2.0, 10.0, 50.0)
"""Times 1/n."""
BOUNDS = {
    "adult": {"DFP": 0.01, "DFN": 0.04},
    "compas": {"DFP": 0.02, "DFN": 0.02},
    "communities-crime": {"DFP": 0.03, "DFN": 0.04},
}
"""The smallest gaps in any fair row of the paper's table."""
TARGET = {"accuracy": 0.831, "DFP": 0.01, "DFN": 0.04}
"""For Adult: no fair row of the paper's table better in any column."""

RATES = "subspace, equalized odds on rates (by select)"
PLAIN = "subspace, no constraint"
COLUMNS = (
    Column("accuracy", "ACC %", 100.0, 2, 2, noticeable=1.5, larger_is_better=True),
    Column("DFP", "DFP"),
    Column("DFN", "DFN"),
)


def ours(epsilon: float) -> str:
    return f"subspace(ε={epsilon:g})"


def compute(settings: Settings, meter: Meter) -> list[Record]:
    data, draws = settings.datasets(), settings.draws(5)
    meter.expect(len(draws) * (3 + 2 * len(EPSILONS)))
    records: list[Record] = []
    for name, seed in draws:
        records += _run(make_problem(data[name], "journal", seed), settings.rounds_or(ROUNDS), meter)
    return records


def _run(problem: Problem, rounds: int, meter: Meter) -> list[Record]:
    def at(method: str) -> None:
        meter.at(f"{SETS[problem.name]}, seed {problem.seed}: {method}")

    at("FedBCD")
    plain = published(problem, None, rounds)
    records = [measured(problem, "FedBCD", plain), equal_odds(problem, plain), calibrated(problem, plain)]
    for record in records:
        record["beside"] = record["method"]
    for epsilon in EPSILONS:
        at(method := fair(epsilon))
        records.append(measured(problem, method, published(problem, epsilon, rounds), beside=method))
    at(PLAIN)
    records.append(measured(problem, PLAIN, subspace(problem, None), beside="FedBCD"))
    for epsilon in EPSILONS:
        at(method := ours(epsilon))
        fit = subspace(problem, EqualOpportunity(epsilon))
        records.append(measured(problem, method, fit, beside=fair(epsilon)))
    at(RATES)
    fit, chosen = selected(
        problem,
        EqualizedOdds(measure="error"),
        epsilons=RATE_EPSILONS,
        alphas=[times / problem.rows for times in ALPHAS],
        folds=FOLDS,
        maximise="accuracy",
        subject_to=BOUNDS[problem.name],
    )
    found = {"epsilon": chosen.epsilon, "alpha": chosen.alpha, "met": chosen.feasible}
    records.append(measured(problem, RATES, fit, beside=BEST, **found))
    return records


def page(records: pd.DataFrame) -> Page:
    rounds = records[records["method"] == "FedBCD"]["rounds"].max()
    notes = [
        reasons.ROUNDS,
        *reasons.reach(records, "FedBCD", PLAIN),
        *reasons.reach(records, fair(0.01), ours(0.01)),
        *reasons.chance(records, RATES),
        *reasons.infeasible(records),
        *differences(records, COLUMNS, TABLE1, reasons.usual),
    ]
    if "compas" in set(records["set"]):
        notes.insert(1, reasons.COMPAS)
    return Page(_ran(records, int(rounds)), tables(records, COLUMNS, TABLE1), notes, _checks(records))


def _ran(records: pd.DataFrame, rounds: int) -> list[str]:
    seeds = sorted(records["seed"].unique())
    chosen = records[records["method"] == RATES]
    lines = [
        f"{len(seeds)} random runs (seeds {seeds[0]}-{seeds[-1]} draw rows and columns), the paper's numbers of rows "
        "and features of each party, one active and five passive parties, μ = 2/n. Mean ± standard deviation.",
        f"FedBCD and FairVFL: η = 100, β = 0.1, c = 0.001, {rounds} rounds, one local step (Q = 1), as in their code.",
        HOW,
        "subspace(ε): the same constraint DEO ≤ ε, to its own stopping rule; beside it the paper's FairVFL(ε).",
        f"{RATES}: equalized odds with measure `error`; ε of {RATE_EPSILONS} and alpha of (2, 10, 50)/n with the "
        f"largest accuracy among those with DFP and DFN within the smallest of the paper's fair rows, by {FOLDS}-fold "
        "cross-validation on the training rows. Beside it, in each column, the best of the paper's fair rows.",
    ]
    for name, part in chosen.groupby("set", sort=False):
        pairs = ", ".join(
            f"{epsilon:g} / {alpha:.1e}{'' if met else ' (bounds missed)'}"
            for epsilon, alpha, met in zip(part["epsilon"], part["alpha"], part["met"], strict=True)
        )
        seconds = part["seconds"].mean()
        lines.append(f"{SETS[str(name)]}: chosen ε / alpha in each run: {pairs}; {seconds:.0f} s a run for all fits.")
    return lines


def _checks(records: pd.DataFrame) -> list[str]:
    if "adult" not in set(records["set"]):
        return []
    accuracy, fp, fn = (float(means(records, name)["adult", RATES]) for name in TARGET)
    met = accuracy >= TARGET["accuracy"] and round(fp, 2) <= TARGET["DFP"] and round(fn, 2) <= TARGET["DFN"]
    held = {name: float(means(records, f"train {name}")["adult", RATES]) for name in ("DFP", "DFN")}
    return [
        f"Adult, equalized odds on rates: ACC ≥ 83.1 %, DFP ≤ 0.01, DFN ≤ 0.04 (two decimals): ACC "
        f"{100 * accuracy:.2f} %, DFP {fp:.3f}, DFN {fn:.3f}: {'met' if met else 'missed'}. "
        f"On the training rows DFP is {held['DFP']:.3f} and DFN {held['DFN']:.3f}."
    ]
