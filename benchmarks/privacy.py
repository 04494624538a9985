"""Measure what each protection level discloses: all attacks of the audit, compared with an attacker without messages.

Adult and COMPAS at six parties as in the papers, Give me some credit at four, and a generated table of 2,000 people in
which two shops have what people spent in 150 departments each, of 16 customers each. Equal opportunity within 0.01, ten
rounds of `subspace`, then the closing exchange in which parties score the rows. `dealer, party` is `dealer` with
`weights = "party"`.

For each target and attack, a cell shows the result with messages, the best result without them, and the standard error
of their difference, for the participant that gains most by its standard error. A star marks a gain of more than two
standard errors. The last table counts comparisons: labels and groups at passive parties, columns at the server. Of so
many comparisons a few exceed two standard errors by chance.

    EVENHAND_DATA=... python benchmarks/privacy.py [--source FOLDER] [--quick] [--part adult --part none]

With --quick at most 8,000 rows are trained on (20,000 of Give me some credit) and 2,000 attacked, 24 people instead of
100 are left out of a second run, and at `none` and `masked` only one passive party attacks, the last.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from problems import Problem, arguments, draw, problem
from protection import CONSTRAINT, without_rare
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from scipy.stats import norm

from evenhand.auditing.audits import audit_vertical
from evenhand.auditing.findings import Finding
from evenhand.auditing.views import AuditInput, listening
from evenhand.errors import InputError
from evenhand.protocol.job import Job
from evenhand.training.auditing import audit_input
from evenhand.vertical.problem import PartyColumns
from evenhand_reproductions.in_memory import Holdings, train_vertical

LEVELS: dict[str, dict[str, Any]] = {
    "none": {"protection": "none"},
    "masked": {"protection": "masked"},
    "dealer": {"protection": "dealer"},
    "dealer, party": {"protection": "dealer", "weights": "party"},
    "encrypted": {"protection": "encrypted"},
}
DATA = ("adult", "compas", "give-me-some-credit", "baskets")
REPEATED = "missing from a second run"


class Size(NamedTuple):
    """Most rows trained on, rows attacked, passive parties that attack, and people left out of a second run."""

    trained: int
    attacked: int
    attackers: int
    left_out: int


WHOLE, QUICK = Size(40_000, 4000, 5, 100), Size(8000, 2000, 1, 24)


def given(name: str, source: Path | None, size: Size) -> Problem:
    if name == "baskets":
        return baskets()
    if name == "give-me-some-credit":
        # Of fewer rows some would have a leverage that the guards refuse.
        return without_rare(draw(name, source, 10, parties=4, most=20_000)[0])
    found = problem(name, source, 10)
    kept = np.sort(np.random.default_rng(0).permutation(len(found.labels))[: size.trained])
    parties = [replace(one, matrix=one.matrix[kept]) for one in found.parties]
    return without_rare(Problem(found.matrix[kept], parties, found.labels[kept], found.sensitive.iloc[kept]))


def baskets(rows: int = 2000, departments: int = 150, customers: int = 16) -> Problem:
    """Two shops with amounts spent in departments that few people visit, and a bank with labels."""
    rng = np.random.default_rng(3)
    spent = np.zeros((rows, 2 * departments))
    for column in spent.T:
        column[rng.choice(rows, customers, replace=False)] = np.round(rng.uniform(20.0, 200.0, customers), 2)
    spent = (spent - spent.mean(axis=0)) / spent.std(axis=0)
    bank, market, shop = rng.normal(size=(rows, 4)), spent[:, :departments], spent[:, departments:]
    scores = bank.sum(axis=1) + 0.15 * (market[:, :10].sum(axis=1) + shop[:, :10].sum(axis=1))
    labels = np.where(rng.random(rows) < 1.0 / (1.0 + np.exp(-scores)), 1.0, -1.0)
    parties = [PartyColumns("bank", bank, True), PartyColumns("market", market), PartyColumns("shop", shop)]
    sensitive = pd.DataFrame({"sex": np.where(rng.random(rows) < 0.5, "f", "m")})
    return Problem(np.hstack([bank, spent]), parties, labels, sensitive)


def scene(data: Problem, level: str) -> AuditInput:
    fixed: dict[str, Any] = {"constraints": (CONSTRAINT,), "allow_experimental": True, **LEVELS[level]}
    job = Job(solver="subspace", tol=0.0, max_rounds=10, **fixed)
    terms = Holdings.of(job, data.parties, data.labels, data.sensitive).terms
    run = train_vertical(job, data.parties, data.labels, data.sensitive, transcript=listening())
    return audit_input(run.transcript, data.parties, data.labels, data.sensitive, run.models, terms, long=True)


def error(found: Finding) -> float:
    """Return the standard error of a lift."""
    return max(float(found.lift.high - found.lift.low) / (2.0 * 1.96), 1e-9)


def gain(found: Finding) -> float:
    return found.lift.value / error(found)


def cell(found: Finding | None) -> str:
    if found is None:
        return "–"
    star = "*" if gain(found) > 2.0 else ""
    return f"{found.value.value:.3f}{star} / {max(found.floors.values()):.3f} ± {error(found):.3f}"


def kind_of(found: Finding) -> tuple[str, str, str]:
    """Return a target without the name of the party, the attack and the measure."""
    target = re.sub(r"(columns?) of \S+", r"\1 of a party", found.target)
    return target, found.attack, found.measure


def found_at(
    name: str, data: Problem, levels: Sequence[str], size: Size, console: Console
) -> Iterator[tuple[str, list[Finding]]]:
    names = [one.name for one in data.parties]
    for level in levels:
        begun = time.process_time()
        attackers = [names[0], *names[-size.attackers :]] if level in ("none", "masked") else names
        try:
            attacked = replace(scene(data, level), people=size.left_out)
        except InputError as refused:
            console.print(f"{name}, {level}: not run ({refused})")
            continue
        yield level, list(audit_vertical(attacked, most_rows=size.attacked, attackers=attackers).findings)
        console.print(f"{name}, {level}: {time.process_time() - begun:.0f} s of processor time", style="dim")


def table_of(title: str, found: dict[str, list[Finding]]) -> Table:
    best: dict[tuple[str, str, str], dict[str, Finding]] = {}
    for level, findings in found.items():
        for one in findings:
            row = best.setdefault(kind_of(one), {})
            row[level] = max(row.get(level, one), one, key=gain)
    table = Table("target", "attack", *found, title=title, box=SIMPLE, title_justify="left")
    for (target, attack, measure), row in sorted(best.items()):
        table.add_row(f"{target} ({measure})", attack, *(cell(row.get(level)) for level in found))
    return table


def counted(table: Table, name: str, found: dict[str, list[Finding]]) -> None:
    """Add a line for each level and kind of target: how many comparisons, and the largest gain."""
    for level, findings in found.items():
        kinds = {
            "labels": [one for one in findings if one.target == "each person's label"],
            "groups": [one for one in findings if one.measure == "AUC" and _of_group(one.target)],
            "label of a missing person": [one for one in findings if REPEATED in one.target],
            "columns, at the server": [one for one in findings if "(server)" in one.who],
        }
        for kind, ones in kinds.items():
            if ones:
                most = max(ones, key=gain)
                # Largest of so many independent gains that are zero: exceeded with probability 5 %.
                chance = float(norm.isf(1.0 - 0.95 ** (1.0 / len(ones))))
                within = "yes" if gain(most) <= 2.0 else "no"
                cells = (f"{most.lift.value:+.3f}", f"{error(most):.3f}", f"{gain(most):.1f}", f"{chance:.1f}", within)
                table.add_row(name, level, kind, most.attack, str(len(ones)), *cells)


def _of_group(target: str) -> bool:
    return target.startswith("each person's ") and "label" not in target and "score" not in target


def main() -> None:
    asked = arguments(__doc__, [*DATA, *LEVELS], quick=True)
    parts, size = asked.part or (), QUICK if asked.quick else WHOLE
    levels = [level for level in LEVELS if level in parts] or list(LEVELS)
    console = Console(width=200)
    heads = ("data", "level", "what", "best attack", "comparisons", "gain", "± SE", "in SE", "by chance", "within 2 SE")
    summary = Table(*heads, title="Largest gain of all attacks and attackers", box=SIMPLE, title_justify="left")
    for name in [name for name in DATA if name in parts] or DATA:
        data = given(name, asked.source, size)
        found = dict(found_at(name, data, levels, size, console))
        attacked = min(size.attacked, len(data.labels))
        title = f"{name}: {len(data.labels):,} rows, {attacked:,} of them attacked, {len(data.parties)} parties"
        console.print(table_of(title, found))
        counted(summary, name, found)
    console.print(summary)


if __name__ == "__main__":
    main()
