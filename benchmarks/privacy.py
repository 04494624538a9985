"""Measure what each protection level discloses: all attacks of the audit, compared with an attacker without messages.

Adult and COMPAS at six parties as in the papers, Give me some credit at four, and a generated table in which a shop has
what people spent in departments that few of them visit. Equal opportunity within 0.01, ten rounds of `subspace`, then
the closing exchange in which parties score the rows. For each target and attack, a cell shows the result with messages,
the best result without them, and the standard error of their difference, for the participant that gains most by its
standard error. A star marks a gain of more than two standard errors.

    EVENHAND_DATA=... python benchmarks/privacy.py [--source FOLDER] [--part adult] [--part none --part masked]
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from problems import Problem, arguments, draw, problem
from protection import CONSTRAINT, without_rare
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from evenhand.auditing.audits import audit_vertical
from evenhand.auditing.findings import Finding
from evenhand.auditing.views import AuditInput, listening
from evenhand.errors import InputError
from evenhand.protocol.job import Job, Protection
from evenhand.training.auditing import audit_input
from evenhand.vertical.problem import PartyColumns
from evenhand_reproductions.in_memory import Holdings, train_vertical

LEVELS: tuple[Protection, ...] = ("none", "masked", "dealer", "encrypted")
DATA = ("adult", "compas", "give-me-some-credit", "baskets")
ROWS = 4000
"""Rows that are attacked; learners know half of them."""


def given(name: str, source: Path | None) -> Problem:
    if name == "baskets":
        return baskets()
    if name == "give-me-some-credit":
        return without_rare(draw(name, source, 10, parties=4, most=20_000)[0])
    return without_rare(problem(name, source, 10))


def baskets(rows: int = 3000, departments: int = 60, customers: int = 12) -> Problem:
    """A shop with amounts spent in departments that few people visit, a bank with labels, and a telephone company."""
    rng = np.random.default_rng(3)
    spent = np.zeros((rows, departments))
    for column in spent.T:
        column[rng.choice(rows, customers, replace=False)] = np.round(rng.uniform(20.0, 200.0, customers), 2)
    member, age = (rng.random(rows) < 0.5).astype(float), rng.normal(size=rows)
    shop = np.column_stack([(spent - spent.mean(axis=0)) / spent.std(axis=0), member, age])
    bank, phone = rng.normal(size=(rows, 4)), rng.normal(size=(rows, 4))
    scores = bank.sum(axis=1) + phone[:, 0] + 0.5 * age - 1.0
    labels = np.where(rng.random(rows) < 1.0 / (1.0 + np.exp(-scores)), 1.0, -1.0)
    parties = [PartyColumns("bank", bank, True), PartyColumns("phone", phone), PartyColumns("shop", shop)]
    sensitive = pd.DataFrame({"sex": np.where(rng.random(rows) < 0.5, "f", "m")})
    return Problem(np.hstack([bank, phone, shop]), parties, labels, sensitive)


def scene(data: Problem, level: Protection) -> AuditInput:
    job = Job(
        solver="subspace",
        constraints=(CONSTRAINT,),
        protection=level,
        allow_experimental=True,
        tol=0.0,
        max_rounds=10,
    )
    terms = Holdings.of(job, data.parties, data.labels, data.sensitive).terms
    run = train_vertical(job, data.parties, data.labels, data.sensitive, transcript=listening())
    return audit_input(run.transcript, data.parties, data.labels, data.sensitive, run.models, terms)


def error(found: Finding) -> float:
    """Return the standard error of a lift."""
    return max(float(found.lift.high - found.lift.low) / (2.0 * 1.96), 1e-9)


def gain(found: Finding) -> float:
    return found.lift.value / error(found)


def cell(found: Finding | None) -> str:
    if found is None:
        return "–"
    floor = max(found.floors.values())
    star = "*" if found.lift.value > 2.0 * error(found) else ""
    return f"{found.value.value:.3f}{star} / {floor:.3f} ± {error(found):.3f}"


def kind_of(found: Finding) -> tuple[str, str, str]:
    """Return a target without the name of the party, the attack and the measure."""
    target = re.sub(r"(columns?) of \S+", r"\1 of a party", found.target)
    return target, found.attack, found.measure


def table_of(name: str, levels: Sequence[Protection], source: Path | None, console: Console) -> Table:
    data = given(name, source)
    cells: dict[tuple[str, str, str], dict[str, Finding]] = {}
    for level in levels:
        begun = time.process_time()
        try:
            attacked = scene(data, level)
        except InputError as error:
            console.print(f"{name}, {level}: not run ({error})")
            continue
        for found in audit_vertical(attacked, most_rows=ROWS).findings:
            best = cells.setdefault(kind_of(found), {})
            if level not in best or gain(found) > gain(best[level]):
                best[level] = found
        console.print(f"{name}, {level}: {time.process_time() - begun:.0f} s of processor time", style="dim")
    title = f"{name}: {len(data.labels):,} rows, {len(data.parties)} parties; with messages / without ± standard error"
    table = Table("target", "attack", *levels, title=title, box=SIMPLE)
    for (target, attack, measure), best in sorted(cells.items()):
        table.add_row(f"{target} ({measure})", attack, *(cell(best.get(level)) for level in levels))
    return table


def main() -> None:
    asked = arguments(__doc__, [*DATA, *LEVELS])
    parts = asked.part or ()
    levels = [level for level in LEVELS if level in parts] or LEVELS
    console = Console(width=160)
    for name in [name for name in DATA if name in parts] or DATA:
        console.print(table_of(name, levels, asked.source, console))


if __name__ == "__main__":
    main()
