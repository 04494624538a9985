"""VFB², Table 2: the accuracy of VFB²-SVRG beside that on pooled columns and that where only label holders learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd

from evenhand.reproductions.papers import VFB2_TABLE2
from evenhand.reproductions.settings import SETS, Meter, Record, Settings
from evenhand.reproductions.vfb2.problems import REGULARISERS, VFB2Problem, read, solve
from evenhand.reproductions.writing import Page, markdown_table, spread

RUNS: Final = 10
MORE_RUNS: Final = 3
"""Of the rules that the paper's table does not have."""
PARTIES, ACTIVE, HALF = 8, 3, 4
STOP: Final = {"credit-default": 1e-5, "give-me-some-credit": 1e-4, "a9a": 1e-5, "20newsgroups": 1e-4}
"""Norm of the gradient at which a run ends, the same for all methods; the paper names 10⁻⁵ for the first set."""
MOST_ROUNDS: Final = 80
OTHER_SEED: Final = 1000
"""What NonF adds to the seed of its visits, so that it does not take ours' very steps."""
CLOSE: Final = 0.05
"""Points of accuracy by which ours may differ from NonF's."""

POOLED, HALF_TRAINED, OURS = "NonF", "AFSVRG-VP", "VFB²-SVRG"
MORE: Final = {"VFB²-SAGA": "vfb2-saga", "VFB²-SGD": "vfb2-sgd"}
PAPERS_NAMES: Final = {"20newsgroups": "news20"}
"""Sets of the paper that others stand in for."""


def compute(settings: Settings, meter: Meter) -> list[Record]:
    draws = settings.draws(RUNS)
    with_more = {seed for _, seed in draws if seed < settings.seed + MORE_RUNS}
    meter.expect(sum(2 * (5 if seed in with_more else 3) for _, seed in draws))
    records: list[Record] = []
    for name in settings.sets:
        source = read(name, settings.source)
        for drawn, seed in draws:
            if drawn == name:
                more = MORE if seed in with_more else {}
                records += _run(source.draw(seed), settings.rounds_or(MOST_ROUNDS), list(more), meter)
    return records


def _run(problem: VFB2Problem, rounds: int, more: Sequence[str], meter: Meter) -> list[Record]:
    records = []
    for equation in REGULARISERS:

        def fit(method: str, solver: str, parties: int, active: int, most: int, equation: str = equation) -> int:
            meter.at(f"{SETS[problem.name]}, seed {problem.seed}, problem {equation}: {method}")
            run, seconds = solve(
                solver,
                problem.parties(parties, active),
                problem.labels,
                equation=equation,
                rounds=most,
                seed=problem.seed + OTHER_SEED * (method == POOLED),
                tol=STOP[problem.name],
            )
            records.append(
                {
                    "set": problem.name,
                    "seed": problem.seed,
                    "equation": equation,
                    "method": method,
                    "accuracy": problem.accuracy(run),
                    "objective": run.certificate.objective,
                    "gradient": run.certificate.stationarity,
                    "rounds": run.certificate.rounds,
                    "converged": run.certificate.converged,
                    "seconds": seconds,
                }
            )
            return run.certificate.rounds

        fit(POOLED, "vfb2-svrg", 1, 1, rounds)
        taken = fit(OURS, "vfb2-svrg", PARTIES, ACTIVE, rounds)
        # The gradient over all blocks never vanishes where half of them stand still.
        fit(HALF_TRAINED, "afsvrg-vp", PARTIES, HALF, max(taken, 1))
        for method in more:
            fit(method, MORE[method], PARTIES, ACTIVE, max(taken, 1))
    return records


def page(records: pd.DataFrame) -> Page:
    tables = [
        (f"{SETS[str(name)]}, problem ({equation})", _table(part, str(name), str(equation)))
        for (name, equation), part in records.groupby(["set", "equation"], sort=False)
    ]
    return Page(_ran(records), tables, _notes(records), checks=_checks(records))


def _table(part: pd.DataFrame, name: str, equation: str) -> str:
    header = ["method", "accuracy %", "paper", "rounds", "training objective", "gradient", "reached the stop", "s"]
    rows = []
    for method in (POOLED, HALF_TRAINED, OURS, *MORE):
        runs = part[part["method"] == method]
        if not len(runs):
            continue
        rows.append(
            [
                method,
                spread(runs["accuracy"], 100.0, 2),
                _printed(name, equation, method),
                f"{runs['rounds'].mean():.0f}",
                f"{runs['objective'].mean():.5f}",
                f"{runs['gradient'].mean():.0e}",
                "–" if method == HALF_TRAINED else f"{runs['converged'].sum()} of {len(runs)}",
                f"{runs['seconds'].mean():.1f}",
            ]
        )
    return markdown_table(header, rows)


def _printed(name: str, equation: str, method: str) -> str:
    key = PAPERS_NAMES.get(name, name)
    if key not in VFB2_TABLE2[equation] or method in MORE:
        return "–"
    mean, deviation = VFB2_TABLE2[equation][key][(POOLED, HALF_TRAINED, OURS).index(method)]
    return f"{mean:.2f} ± {deviation:.2f}" + ("" if key == name else f" ({key})")


def _checks(records: pd.DataFrame) -> list[str]:
    lines = []
    for (name, equation), part in records.groupby(["set", "equation"], sort=False):
        accuracy = 100 * part.pivot(index="seed", columns="method", values="accuracy")
        means = accuracy.mean()
        apart = abs(means[OURS] - means[POOLED])
        most = (accuracy[OURS] - accuracy[POOLED]).abs().max()
        verdict = "met" if apart <= CLOSE else "missed"
        lower = "met" if means[HALF_TRAINED] < means[OURS] else "missed"
        below = int((accuracy[HALF_TRAINED] < accuracy[OURS]).sum())
        lines.append(
            f"{SETS[str(name)]}, problem ({equation}): ours and NonF's are {apart:.3f} points apart in the mean, "
            f"{most:.3f} at most in a run (wanted: at most {CLOSE} in the mean): {verdict}. AFSVRG-VP is "
            f"{means[OURS] - means[HALF_TRAINED]:.2f} points lower, in {below} of {len(accuracy)} runs (wanted: "
            f"lower): {lower}."
        )
    return lines


def _ran(records: pd.DataFrame) -> list[str]:
    lines = [
        f"λ = 10⁻⁴, columns dealt out at random to {PARTIES} parties, {ACTIVE} of them active; no intercept, as in "
        "problems (13) and (14). Numeric columns are standardised with the training rows' mean and deviation, "
        "categories are one-hot.",
        "NonF: the same rule with all columns at one party, and other visits. AFSVRG-VP: half of the "
        "parties hold labels, and only their blocks move. All with steps, sampling and delays of their own choosing "
        "(`auto`), one row a step.",
        "A run ends when the norm of the gradient is at most "
        + ", ".join(f"{STOP[name]:.0e} ({SETS[name]})" for name in records["set"].unique())
        + f", or after {records['rounds'].max()} rounds at most. AFSVRG-VP, whose gradient over all blocks never "
        "vanishes, and the rules the paper's table does not have get as many rounds as ours took.",
        "80 % of the rows of the two financial sets, drawn anew in each run, are trained on; 90 % of 20 Newsgroups, "
        "as the paper does with news20; a9a has test rows of its own, so that only the deal of the columns changes.",
    ]
    for name, part in records.groupby("set", sort=False):
        seeds = sorted(part["seed"].unique())
        lines.append(
            f"{SETS[str(name)]}: {len(seeds)} runs (seeds {seeds[0]}-{seeds[-1]}); {part['seconds'].sum():.0f} s."
        )
    return lines


def _notes(records: pd.DataFrame) -> list[str]:
    notes = []
    names = set(records["set"])
    if "20newsgroups" in names:
        notes.append(
            "20 Newsgroups stands in for news20, and its rows are scaled to length 1 as news20's are: words and pairs "
            "of words, five newsgroups on computers against fifteen others. The paper's numbers are of another set; "
            "only the differences between methods can be compared."
        )
    if "a9a" in names:
        notes.append("a9a is not in the paper's table.")
    notes.append("webspam (the paper's D4) is not to be had where this was run.")
    if "give-me-some-credit" in names:
        notes.append(
            "Give me some credit: 96,215 training rows, the paper has 96,257. It does not say what it does with rows "
            "that lack numbers (they are dropped here) nor how it scales the columns, some of which have entries "
            "two hundred deviations from the mean."
        )
    for (name, equation, method), runs in records.groupby(["set", "equation", "method"], sort=False):
        if method in (POOLED, OURS) and not runs["converged"].all():
            notes.append(
                f"{SETS[str(name)]}, problem ({equation}), {method}: {int((~runs['converged']).sum())} of {len(runs)} "
                f"runs ended by the cap on rounds, with a gradient of {runs['gradient'].max():.0e} at most."
            )
    for (name, equation), part in records.groupby(["set", "equation"], sort=False):
        means = 100 * part.groupby("method")["accuracy"].mean()
        if means[HALF_TRAINED] >= means[OURS]:
            notes.append(
                f"{SETS[str(name)]}, problem ({equation}): AFSVRG-VP is not lower. Without an intercept the decision "
                "hangs on which columns the active parties were dealt."
            )
    return notes
