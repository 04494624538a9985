"""First version, Figure 1: the effect of ε on accuracy and fairness, with our solver's curves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.constraints.kinds import EqualOpportunity
from evenhand_reproductions import reasons
from evenhand_reproductions.experiments import linear_constants, make_problem, measured, published, subspace
from evenhand_reproductions.figures import draw_effect_of_epsilon
from evenhand_reproductions.papers import FIRST_EPSILONS
from evenhand_reproductions.settings import SETS, Meter, Record, Settings
from evenhand_reproductions.writing import Page, markdown_table, spread

ROUNDS = 1000
RUNS = {"adult": 2, "compas": 3, "communities-crime": 3}
PUBLISHED, OURS = "FairVFL", "subspace"
STYLES = {PUBLISHED: {"color": "tab:orange", "marker": "s"}, OURS: {"color": "tab:blue", "marker": "o"}}


def compute(settings: Settings, meter: Meter) -> list[Record]:
    data, draws = settings.datasets(), settings.draws(RUNS)
    meter.expect(sum(len(FIRST_EPSILONS[name]) for name, _ in draws))
    records: list[Record] = []
    for name, seed in draws:
        problem = make_problem(data[name], "first", seed)
        for epsilon in FIRST_EPSILONS[name]:
            meter.at(f"{SETS[name]}, seed {seed}: ε = {epsilon:g}")
            fit = published(problem, epsilon, settings.rounds_or(ROUNDS))
            records.append(measured(problem, PUBLISHED, fit, epsilon=epsilon))
            fit = subspace(problem, EqualOpportunity(epsilon))
            records.append(measured(problem, OURS, fit, epsilon=epsilon))
    return records


def constants(name: str) -> Record:
    return linear_constants(ROUNDS, epsilons=FIRST_EPSILONS[name])


def page(records: pd.DataFrame) -> Page:
    def figure(path: Path) -> None:
        draw_effect_of_epsilon(records, path, STYLES)

    rounds = records[records["method"] == PUBLISHED]["rounds"].max()
    runs = ", ".join(
        f"{SETS[str(name)]} {count}" for name, count in records.groupby("set", sort=False)["seed"].nunique().items()
    )
    ran = [
        f"Random runs: {runs} (first seed {records['seed'].min()}); six parties, all active; the paper's sets of ε; "
        f"FairVFL with η = 100, β = 0.1, c = 0.001, Q = 1 for {rounds} rounds; subspace to its own stopping rule.",
    ]
    return Page(ran, _tables(records), _notes(records), figure=figure)


def _tables(records: pd.DataFrame) -> list[tuple[str, str]]:
    header = ["ε", "AC %, FairVFL", "AC %, subspace", "FR %, FairVFL", "FR %, subspace", "DEO in training, FairVFL"]
    header += ["DEO in training, subspace"]
    result = []
    for name, part in records.groupby("set", sort=False):
        rows = []
        for epsilon, runs in part.groupby("epsilon"):
            lines = [runs[runs["method"] == method] for method in (PUBLISHED, OURS)]
            cells = [spread(line[metric], 100.0, 1) for metric in ("accuracy", "FR") for line in lines]
            rows.append([f"{epsilon:g}", *cells, *[spread(line["train DEO"], digits=4) for line in lines]])
        result.append((SETS[str(name)], markdown_table(header, rows)))
    return result


def _notes(records: pd.DataFrame) -> list[str]:
    notes = [
        "The paper's figure gives no numbers in its text, so none can be put beside these. Its text says: smaller ε, "
        "larger fairness and smaller accuracy; no effect once ε no longer binds. What these runs show of it:",
        *_shown(records),
        reasons.ROUNDS,
    ]
    for name, part in records.groupby("set", sort=False):
        tight = part[part["epsilon"] == part["epsilon"].min()].groupby("method")[["accuracy", "FR", "objective"]].mean()
        notes.append(
            f"{SETS[str(name)]}, smallest ε: FairVFL's objective is {tight.at[PUBLISHED, 'objective']:.4f}, subspace's "
            f"{tight.at[OURS, 'objective']:.4f}; accuracy {100 * tight.at[PUBLISHED, 'accuracy']:.1f} and "
            f"{100 * tight.at[OURS, 'accuracy']:.1f} %, fairness {100 * tight.at[PUBLISHED, 'FR']:.1f} and "
            f"{100 * tight.at[OURS, 'FR']:.1f} %. Fairness on test rows stays short of 1 - ε because DEO is estimated "
            "from few rows, and more so where the model fits its training rows closely."
        )
    return notes


def _shown(records: pd.DataFrame) -> list[str]:
    """The paper's claims on each curve: whether they are to be seen in the means, and beyond the spread of the runs."""
    lines = []
    for (name, method), part in records.groupby(["set", "method"], sort=False):
        means = part.groupby("epsilon")[["accuracy", "FR"]].mean() * 100
        said = []
        for metric, title, sign in (("FR", "fairness", -1.0), ("accuracy", "accuracy", 1.0)):
            moves = sign * means[metric].diff().dropna()
            ends = part[part["epsilon"].isin([means.index[0], means.index[-1]])]
            by_seed = 100 * ends.pivot(index="seed", columns="epsilon", values=metric)
            change = by_seed[means.index[-1]] - by_seed[means.index[0]]
            moved = f"{change.mean():+.1f} points from the smallest to the largest ε: one run, no error"
            if len(change) > 1:
                error = change.std(ddof=1) / np.sqrt(len(change))
                clear = "beyond twice its error" if abs(change.mean()) > 2 * error else "within its error"
                moved = f"{change.mean():+.1f} ± {error:.1f} points from the smallest to the largest ε: {clear}"
            against = int((moves < -0.05).sum())
            said.append(
                f"{title} {'falls' if sign < 0 else 'rises'} with ε except in {against} of {len(moves)} steps ({moved})"
            )
        largest = part.groupby("epsilon")["train DEO"].max()
        slack = largest.to_numpy(dtype=np.float64) < 0.98 * largest.index.to_numpy(dtype=np.float64)
        # FairVFL's damped multipliers may leave a bound a little slack: only the last ones in a row count.
        count = int(np.cumprod(slack[::-1]).sum())
        said.append(_plateau(means.iloc[len(means) - count :]))
        lines.append(f"{SETS[str(name)]}, {method}: {'; '.join(said)}.")
    return lines


def _plateau(free: pd.DataFrame) -> str:
    """What the page shows of no effect where ε does not bind; `free` has the means there."""
    named = " and ".join(f"{epsilon:g}" for epsilon in free.index)
    if len(free) >= 2:
        most = (free.max() - free.min()).max()
        return f"ε = {named} do not bind, and their means differ by {most:.1f} points at most"
    known = f"only ε = {named} does not bind" if len(free) else "every ε binds or is just reached"
    return f"{known}, so the page does not show that ε has no effect from there on"
