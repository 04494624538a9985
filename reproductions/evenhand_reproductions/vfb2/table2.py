"""VFB², Table 2: the accuracy of VFB²-SVRG beside that on pooled columns and that where only label holders learn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import pandas as pd

from evenhand_reproductions.papers import VFB2_TABLE2
from evenhand_reproductions.settings import SETS, Meter, Record, Settings
from evenhand_reproductions.vfb2.problems import (
    OUR_STEP,
    REGULARISERS,
    RIDGE,
    SHORT_EPOCHS,
    TABLES,
    VFB2Problem,
    read,
    solve,
)
from evenhand_reproductions.writing import Page, markdown_table, runs_of, spread

RUNS: Final = {"credit-default": 10, "give-me-some-credit": 10, "a9a": 10, "20newsgroups": 10}
MORE_RUNS: Final = 3
"""Of the rules that the paper's table does not have."""
PARTIES, ACTIVE, HALF = 8, 3, 4
STOP: Final = {"credit-default": 1e-5, "give-me-some-credit": 1e-4, "a9a": 1e-5, "20newsgroups": 1e-4}
"""Norm of the gradient at which a run ends, the same for all methods; the paper names 10⁻⁵ for the first set."""
MOST_ROUNDS: Final = 80
OTHER_SEED: Final = 1000
"""What NonF adds to the seed of its visits, so that it does not take ours' very steps; twice that, when it is run again
for how far two runs of it are apart."""
CLOSE: Final = 0.05
"""Points of accuracy by which ours may differ from NonF's."""

POOLED, HALF_TRAINED, OURS = "NonF", "AFSVRG-VP", "VFB²-SVRG"
SAME_VISITS, AGAIN = "NonF, our visits", "NonF, again"
UNCENTRED: Final = "AFSVRG-VP, columns from 0 to 1"
MORE: Final = {"VFB²-SAGA": "vfb2-saga", "VFB²-SGD": "vfb2-sgd"}
PAPERS_NAMES: Final = {"20newsgroups": "news20"}
"""Sets of the paper that others stand in for."""


def compute(settings: Settings, meter: Meter) -> list[Record]:
    draws = settings.draws(RUNS)
    with_more = {seed for _, seed in draws if seed < settings.seed + MORE_RUNS}
    meter.expect(sum(2 * (5 + (name in TABLES) + (2 if seed in with_more else 0)) for name, seed in draws))
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
        fit = partial(_fit, meter, equation=equation)
        for method, visits in ((POOLED, 1), (SAME_VISITS, 0), (AGAIN, 2)):
            records.append(fit(problem, method, "vfb2-svrg", 1, 1, rounds, visits=visits * OTHER_SEED))
        records.append(fit(problem, OURS, "vfb2-svrg", PARTIES, ACTIVE, rounds))
        taken = max(int(records[-1]["rounds"]), 1)
        records.append(fit(problem, HALF_TRAINED, "afsvrg-vp", PARTIES, HALF, rounds))
        if problem.name in TABLES:
            records.append(fit(problem.from_zero_to_one(), UNCENTRED, "afsvrg-vp", PARTIES, HALF, rounds))
        records += [fit(problem, method, MORE[method], PARTIES, ACTIVE, taken) for method in more]
    return records


def _fit(
    meter: Meter,
    problem: VFB2Problem,
    method: str,
    solver: str,
    parties: int,
    active: int,
    rounds: int,
    *,
    equation: str,
    visits: int = 0,
) -> Record:
    """A record of one fit; `visits` is added to the seed that draws the rows of each step."""
    meter.at(f"{SETS[problem.name]}, seed {problem.seed}, problem {equation}: {method}")
    run, seconds = solve(
        solver,
        problem.parties(parties, active),
        problem.labels,
        equation=equation,
        rounds=rounds,
        seed=problem.seed + visits,
        tol=STOP[problem.name],
    )
    return {
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


def constants(name: str) -> Record:
    return {"parties": (PARTIES, ACTIVE, HALF), "stop": STOP[name], "most rounds": MOST_ROUNDS, "ridge": RIDGE}


def page(records: pd.DataFrame) -> Page:
    tables = [
        (f"{SETS[str(name)]}, problem ({equation})", _table(part, str(name), str(equation)))
        for (name, equation), part in records.groupby(["set", "equation"], sort=False)
    ]
    return Page(_ran(records), tables, _notes(records), checks=_checks(records))


def _table(part: pd.DataFrame, name: str, equation: str) -> str:
    header = [
        "method",
        "runs",
        "accuracy %",
        "paper",
        "rounds",
        "training objective",
        "gradient",
        "reached the stop",
        "s",
    ]
    rows = []
    for method in (POOLED, SAME_VISITS, AGAIN, HALF_TRAINED, UNCENTRED, OURS, *MORE):
        runs = part[part["method"] == method]
        if not len(runs):
            continue
        rows.append(
            [
                method,
                f"{len(runs)}",
                spread(runs["accuracy"], 100.0, 2),
                _printed(name, equation, method),
                f"{runs['rounds'].mean():.0f}",
                f"{runs['objective'].mean():.5f}",
                f"{runs['gradient'].mean():.0e}",
                f"{runs['converged'].sum()} of {len(runs)}",
                f"{runs['seconds'].mean():.1f}",
            ]
        )
    return markdown_table(header, rows)


def _printed(name: str, equation: str, method: str) -> str:
    key = PAPERS_NAMES.get(name, name)
    places = {POOLED: 0, HALF_TRAINED: 1, UNCENTRED: 1, OURS: 2}
    if key not in VFB2_TABLE2[equation] or method not in places:
        return "–"
    mean, deviation = VFB2_TABLE2[equation][key][places[method]]
    return f"{mean:.2f} ± {deviation:.2f}" + ("" if key == name else f" ({key})")


def _checks(records: pd.DataFrame) -> list[str]:
    lines = []
    for (name, equation), part in records.groupby(["set", "equation"], sort=False):
        accuracy = 100 * part.pivot(index="seed", columns="method", values="accuracy")
        means = accuracy.mean()
        apart = abs(means[OURS] - means[POOLED])
        most = (accuracy[OURS] - accuracy[POOLED]).abs().max()
        floor = ""
        if AGAIN in means:
            # Only some of the runs may have these rows.
            chance = (accuracy[AGAIN] - accuracy[POOLED]).dropna()
            visits = (accuracy[OURS] - accuracy[SAME_VISITS]).dropna()
            floor = (
                f"; in {len(chance)} runs, two of NonF itself are {abs(chance.mean()):.3f} apart, "
                f"{chance.abs().max():.3f} at most, ours and NonF with our visits {abs(visits.mean()):.3f}, "
                f"{visits.abs().max():.3f} at most"
            )
        verdict = "met" if apart <= CLOSE else "missed"
        lower = "met" if means[HALF_TRAINED] < means[OURS] else "missed"
        below = int((accuracy[HALF_TRAINED] < accuracy[OURS]).sum())
        lines.append(
            f"{SETS[str(name)]}, problem ({equation}): ours and NonF's are {apart:.3f} points apart in the mean, "
            f"{most:.3f} at most in a run (wanted: at most {CLOSE} in the mean): {verdict}{floor}. AFSVRG-VP is "
            f"{means[OURS] - means[HALF_TRAINED]:.2f} points lower, in {below} of {len(accuracy)} runs (wanted: "
            f"lower): {lower}."
        )
    return lines


def _ran(records: pd.DataFrame) -> list[str]:
    lines = [
        f"λ = 10⁻⁴, columns dealt out at random to {PARTIES} parties, {ACTIVE} of them active; no intercept, as in "
        "problems (13) and (14). Numeric columns are standardised with the training rows' mean and deviation, "
        "categories are one-hot.",
        "NonF: the same rule with all columns at one party, and other visits; once more with the rows that ours "
        "visits, in their order, and once more with yet others, for how far two runs of NonF are apart by themselves. "
        "AFSVRG-VP: half of the parties hold labels, and only their blocks move. All with steps, sampling and delays "
        "of their own choosing (`auto`), one row a step.",
        f"{OUR_STEP} {SHORT_EPOCHS}",
        "A run ends when the norm of the gradient is at most "
        + ", ".join(f"{STOP[name]:.0e} ({SETS[name]})" for name in records["set"].unique())
        + f", or after {records['rounds'].max()} rounds at most. For AFSVRG-VP it is the gradient of the blocks that "
        "move; that of all blocks, which the table shows, never vanishes. The rules that the paper's table does not "
        "have get as many rounds as ours took.",
        "80 % of the rows of the two financial sets, drawn anew in each run, are trained on; 90 % of 20 Newsgroups, "
        "as the paper does with news20; a9a has test rows of its own, so that only the deal of the columns changes.",
    ]
    for name, part in records.groupby("set", sort=False):
        lines.append(f"{SETS[str(name)]}: {runs_of(part['seed'])}; {part['seconds'].sum():.0f} s.")
    return lines


def _why_uncentred(records: pd.DataFrame) -> str:
    part = records[(records["set"] == "give-me-some-credit") & (records["equation"] == "13")]
    means = 100 * part.groupby("method")["accuracy"].mean()
    return (
        f"Give me some credit, AFSVRG-VP: {means[HALF_TRAINED]:.2f} % where the paper prints 93.35 comes from "
        "centring. The problems have no intercept, and a row whose age (83 columns, one of them 1) is at a party that "
        "does not learn has nothing constant among columns of mean zero: its decision is near chance. With every "
        f"column scaled to [0, 1] the same method has {means[UNCENTRED]:.2f} %, about the share of the more frequent "
        "label, which is what the paper's number is as well. The paper does not say how it scales."
    )


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
        if ((records["set"] == "give-me-some-credit") & (records["method"] == UNCENTRED)).any():
            notes.append(_why_uncentred(records))
    notes += _against_paper(records)
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


def _against_paper(records: pd.DataFrame) -> list[str]:
    """Where a method's accuracy is not the paper's, by more than twice the error of both means; what is lower first."""
    lines = []
    for (name, equation), part in records.groupby(["set", "equation"], sort=False):
        if name not in VFB2_TABLE2[str(equation)]:
            continue
        found: dict[str, list[str]] = {"lower": [], "higher": []}
        means = {}
        for method, (mean, deviation) in zip(
            (POOLED, HALF_TRAINED, OURS), VFB2_TABLE2[str(equation)][str(name)], strict=True
        ):
            runs = 100 * part[part["method"] == method]["accuracy"]
            means[method] = runs.mean(), mean
            error = ((float(runs.std(ddof=1)) ** 2 / len(runs)) if len(runs) > 1 else 0.0) + deviation**2 / 10
            if abs(runs.mean() - mean) > 2 * error**0.5:
                word = "lower" if runs.mean() < mean else "higher"
                found[word].append(f"{method} {runs.mean():.2f} against {mean:.2f}")
        said = [f"{word}: {', '.join(cells)}" for word, cells in found.items() if cells]
        leads = [means[OURS][which] - means[HALF_TRAINED][which] for which in (0, 1)]
        lines.append(
            f"{SETS[str(name)]}, problem ({equation}), beyond twice the error of both means: "
            f"{'; '.join(said) or 'nothing'}. The lead of VFB²-SVRG over AFSVRG-VP is {leads[0]:.2f} points here and "
            f"{leads[1]:.2f} in the paper."
        )
    return lines
