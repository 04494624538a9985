"""FairVFL with the steps of its Theorem 2, beside the constants of its experiments and our solver."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

from evenhand.constraints.kinds import EqualOpportunity
from evenhand_reproductions import convergence
from evenhand_reproductions.experiments import FairVFLProblem, Fit, curve, make_problem, published, subspace
from evenhand_reproductions.settings import SETS, Meter, Record, Settings
from evenhand_reproductions.writing import Page, counted, markdown_table, runs_of, spread

RUNS: Final = 5
ROUNDS: Final = {"adult": 1000, "compas": 5000, "communities-crime": 5000}
BOUND: Final = 0.01
LEVEL: Final = f"ε={BOUND:g}"
BY_THEOREM: Final = {f"Theorem 2, β = {beta:g}": beta for beta in (0.1, 0.001)}
EXPERIMENTS, OURS = "η = 100, β = 0.1", "subspace"
STYLES: dict[str, dict[str, Any]] = {
    "Theorem 2, β = 0.1": {"linestyle": "-"},
    "Theorem 2, β = 0.001": {"linestyle": "--"},
    EXPERIMENTS: {"linestyle": ":"},
    OURS: {"linestyle": "-.", "marker": "o", "markersize": 3},
}


def compute(settings: Settings, meter: Meter) -> list[Record]:
    data, draws = settings.datasets(), settings.draws(RUNS)
    meter.expect(len(draws) * len(STYLES))
    records: list[Record] = []
    for name, seed in draws:
        problem = make_problem(data[name], "journal", seed)
        for method in STYLES:
            meter.at(f"{SETS[name]}, seed {seed}: {method}")
            records += curve(problem, method, _fit(problem, method, settings.rounds_or(ROUNDS[name])), level=LEVEL)
    return records


def _fit(problem: FairVFLProblem, method: str, rounds: int) -> Fit:
    if method == OURS:
        return subspace(problem, EqualOpportunity(BOUND))
    by_theorem = {"schedule": "theorem", "step": "auto", "dual_step": BY_THEOREM.get(method, 0.0)}
    return published(problem, BOUND, rounds, options=by_theorem if method in BY_THEOREM else None)


def constants(name: str) -> Record:
    return {"bound": BOUND, "rounds": ROUNDS[name], "theorem's β": list(BY_THEOREM.values())}


def page(records: pd.DataFrame) -> Page:
    ways = _ways(records)
    curves = convergence.in_all_runs(records[records["method"] != OURS])
    ours = records[(records["method"] == OURS) & (records["seed"] == records["seed"].min())]
    title = "FairVFL by its theorem and by its experiments: training objective and DEO over rounds"
    figure = convergence.figure(pd.concat([curves, ours]), {LEVEL: BOUND}, STYLES, title)
    ran = [
        f"DEO ≤ {BOUND:g} on the loss, linear models, six parties, one active, Q = 1; "
        f"{runs_of(records['seed'], 'random run')}. subspace, to its own stopping rule, gives the optimum; its curve "
        "in the figure is of the first run, the others are means.",
        "Theorem 2: η_t at its lower bound, with Lipschitz constants estimated from the data (a Gram matrix's largest "
        "eigenvalue, at the present multipliers), c_t = t^(-1/4)/(2β). The theorem's β is the inverse of the ascent "
        "step of FairVFL Eq. 10, which is the β here; the theorem leaves it free, and two values are shown.",
        f"{EXPERIMENTS}: the constants of the paper's experiments, c = 0.001.",
        "Way made: the share of the objective's fall from the first round to the optimum that has been made; ± is the "
        "standard deviation over runs.",
    ]
    tables = [
        (f"{SETS[str(name)]} ({counted(part['seed'].nunique())})", _table(part))
        for name, part in ways.groupby("set", sort=False)
    ]
    notes = [
        *_verdicts(ways),
        "The paper proves that rounds in the order of δ^(-4) lead to a δ-stationary point of the dual, for steps as "
        "these; it does not run them. Its experiments have constant steps, which the theorem does not cover.",
    ]
    return Page(ran, tables, notes, figure=figure)


def _ways(records: pd.DataFrame) -> pd.DataFrame:
    """Return way made and DEO of each run at the rounds that are shown."""
    rows = []
    for (name, seed), run in records.groupby(["set", "seed"], sort=False):
        best = float(run[run["method"] == OURS].sort_values("round")["objective"].iloc[-1])
        for method, line in run[run["method"] != OURS].groupby("method", sort=False):
            points = line.set_index("round").sort_index()
            objectives, gaps = points["objective"].to_dict(), points["DEO"].to_dict()
            first = objectives[points.index[0]]
            for place in sorted({_nearest(points.index, share) for share in (0.02, 0.2, 1.0)}):
                end = objectives[place]
                way = {"way": (first - end) / (first - best), "objective": end, "DEO": gaps[place]}
                rows.append({"set": name, "seed": seed, "method": method, "round": place, **way})
    return pd.DataFrame(rows)


def _nearest(rounds: pd.Index, share: float) -> int:
    places = rounds.to_numpy()
    return int(places[np.abs(places - share * places[-1]).argmin()])


def _table(ways: pd.DataFrame) -> str:
    rows = []
    for (method, place), runs in ways.groupby(["method", "round"], sort=False):
        cells = spread(runs["objective"], 1.0, 4), spread(runs["way"], 100.0, 1), spread(runs["DEO"], 1.0, 4)
        rows.append([str(method), f"{place:,}", *cells])
    return markdown_table(["steps", "round", "objective", "way made, %", "DEO"], rows)


def _verdicts(ways: pd.DataFrame) -> list[str]:
    lines = []
    for name, part in ways.groupby("set", sort=False):
        ends = part[part["round"] == part.groupby(["seed", "method"])["round"].transform("max")]
        means = ends.groupby("method", sort=False)[["way", "DEO"]].mean()
        said = ", ".join(
            f"{method} {100 * row['way']:.1f} % (DEO {row['DEO']:.4f})"
            for method, row in means.sort_values("way").iterrows()
        )
        lines.append(f"{SETS[str(name)]}, way made after {ends['round'].max():,} rounds, the shortest first: {said}.")
    return lines
