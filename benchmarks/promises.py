"""Measure whether constraints on rates hold for new people, for every solver that meets exact rates.

Generated tables (2 to 30 % positives, 2, 5 and 8 groups, 200 to 40,000 rows, columns of which most say little) and the
public sets that are found. Half as many new rows as training rows are held out. A fit keeps its word if every
inequality is within its bound plus two standard errors of the held-out value. Only fits that say converged count;
asked is 90 % of them. `trees, one model` judges by leave-one-out scores, as all trees once did.

    python benchmarks/promises.py [--source FOLDER] [--draws 5] [--sets NAME ...] [--solvers NAME ...]
    python benchmarks/promises.py --quick
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from sklearn.metrics import roc_auc_score

from evenhand import DemographicParity, EqualizedOdds, HorizontalClassifier, NeymanPearson, VerticalClassifier
from evenhand.constraints import Constraint, bind
from evenhand.data import load
from evenhand.errors import EvenhandError
from evenhand.solvers import Trees

PUBLIC = ("adult", "compas", "credit-default", "give-me-some-credit", "german")
GENERATED = {
    "200 rows": (200, 0.3, 2),
    "1,000 rows": (1000, 0.3, 2),
    "2 % of 6,000": (6000, 0.02, 2),
    "7 % of 6,000": (6000, 0.07, 2),
    "5 groups, 4,000": (4000, 0.3, 5),
    "8 groups, 8,000": (8000, 0.2, 8),
    "7 % of 40,000": (40000, 0.07, 2),
}
"""Rows, share of positives, groups."""
CONSTRAINTS: dict[str, Constraint | None] = {
    "none": None,
    "equalized odds ≤ .05": EqualizedOdds(0.05, measure="error"),
    "demographic parity ≤ .05": DemographicParity(0.05),
    "Neyman-Pearson ≤ .35": NeymanPearson(0.35, measure="error"),
}


@dataclass(frozen=True)
class People:
    """Rows of one table, with columns in parts for the parties; labels are 0 and 1."""

    parts: list[pd.DataFrame]
    labels: np.ndarray
    groups: np.ndarray

    def some(self, rows: np.ndarray) -> People:
        return People([part.iloc[rows] for part in self.parts], self.labels[rows], self.groups[rows])


def generated(rows: int, rate: float, groups: int, seed: int) -> People:
    """Draw people: groups of unequal size that differ, a few columns with effects, and many without."""
    random = np.random.default_rng(seed)
    shares = 0.7 ** np.arange(groups)
    group = random.choice(groups, rows, p=shares / shares.sum())
    effects = 0.5 * random.normal(size=groups)
    columns = random.normal(size=(rows, 12)) + 0.5 * effects[group][:, None] * (random.random(12) < 0.4)
    score = columns[:, 0] + np.abs(columns[:, 4]) + columns[:, 8] + effects[group] + random.logistic(size=rows)
    labels = (score > np.quantile(score, 1.0 - rate)).astype(int)
    columns[:, ::3] = np.exp(columns[:, ::3])
    frame = pd.DataFrame(columns, columns=[f"x{place}" for place in range(12)])
    return People([frame.iloc[:, first::4] for first in range(4)], labels, np.array([f"g{one}" for one in group]))


def public(name: str, source: Path | None, seed: int) -> People:
    data = load(name, source=source)
    some = np.random.default_rng(seed).permutation(len(data.frame))[:12000]
    labels = (data.label == data.positive).to_numpy().astype(int)
    labels = labels if labels.mean() < 0.5 else 1 - labels
    parts = [data.frame[list(part)] for part in np.array_split(np.array(data.frame.columns), 4)]
    return People(parts, labels, data.sensitive.iloc[:, 0].astype(str).to_numpy()).some(some)


def vertical(**settings: Any) -> Callable[[People, Constraint | None], Any]:
    def fit(given: People, constraint: Constraint | None) -> Any:
        model = VerticalClassifier(constraint=constraint, random_state=0, pos_label=1, **settings)
        return model.fit(given.parts, given.labels, sensitive_features=given.groups)

    return fit


def horizontal(**settings: Any) -> Callable[[People, Constraint | None], Any]:
    def fit(given: People, constraint: Constraint | None) -> Any:
        model = HorizontalClassifier(constraint=constraint, random_state=0, pos_label=1, **settings)
        table, clients = pd.concat(given.parts, axis=1), np.arange(len(given.labels)) % 4
        return model.fit(table, given.labels, sensitive_features=given.groups, clients=clients)

    return fit


SOLVERS: dict[str, Callable[[People, Constraint | None], Any]] = {
    "trees, one model": vertical(model="trees", solver=Trees(folds=1), max_rounds=10),
    "trees": vertical(model="trees", max_rounds=10),
    "subspace": vertical(),
    "sqp": horizontal(solver="sqp"),
    "trees across rows": horizontal(model="trees"),
}


def tables(sets: list[str], source: Path | None, draws: int) -> Iterator[tuple[str, int, People]]:
    for draw in range(draws):
        for name in sets:
            if name in GENERATED:
                rows, rate, groups = GENERATED[name]
                yield name, draw, generated(rows * 3 // 2, rate, groups, 1000 + draw)
            else:
                yield name, draw, public(name, source, 1000 + draw)


def measured(fit: Callable[..., Any], given: People, constraint: Constraint | None, seed: int) -> dict[str, Any]:
    """Fit on two thirds of the rows and judge on the rest."""
    order = np.random.default_rng(seed).permutation(len(given.labels))
    cut = 2 * len(order) // 3
    train, new = given.some(order[:cut]), given.some(order[cut:])
    start = time.process_time()
    try:
        model = fit(train, constraint)
    except EvenhandError as error:
        return {"refused": str(error)}
    seconds = time.process_time() - start
    across = isinstance(model, HorizontalClassifier)
    scores = model.decision_function(pd.concat(new.parts, axis=1) if across else new.parts)
    found = {"converged": model.certificate_.converged, "seconds": seconds, "AUC": roc_auc_score(new.labels, scores)}
    if constraint is None:
        return found
    signs = np.where(new.labels > 0, 1.0, -1.0)
    try:
        rows = bind(constraint, signs, pd.DataFrame({"group": new.groups}))
    except EvenhandError as error:
        return {"refused": str(error)}
    values, errors = rows.reported(signs, scores)
    excess = rows.bounds.excess(values).max(axis=0)
    return {**found, "within": bool((excess <= 2.0 * errors).all()), "excess": float(excess.max())}


def summary(found: pd.DataFrame, by: list[str]) -> Table:
    table = Table(*by, "fits", "converged", "within ε + 2 SE, asked 90 %", "mean excess", "AUC", "CPU s")
    for keys, part in found.groupby(by, sort=False):
        done = part[part["converged"].astype(bool)]
        told = done["within"].dropna() if "within" in done else done[:0]
        table.add_row(
            *map(str, keys),
            f"{len(part)}",
            f"{len(done) / len(part):.0%}",
            f"{told.astype(bool).mean():.0%} of {len(told)}" if len(told) else "–",
            f"{done['excess'].clip(lower=0).mean():.3f}" if len(told) else "–",
            f"{part['AUC'].mean():.4f}",
            f"{part['seconds'].mean():.2f}",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="local folder with the data files")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--sets", nargs="+", choices=[*GENERATED, *PUBLIC])
    parser.add_argument("--solvers", nargs="+", choices=list(SOLVERS), default=list(SOLVERS))
    parser.add_argument("--quick", action="store_true", help="one draw of the generated tables up to 8,000 rows")
    given = parser.parse_args()
    # Small slices, and runs that miss their bounds: what is measured is what they say of themselves.
    warnings.simplefilter("ignore")
    if given.source is None and "EVENHAND_DATA" in os.environ:
        given.source = Path(os.environ["EVENHAND_DATA"])
    sets = given.sets or ([*GENERATED][:-1] if given.quick else [*GENERATED, *PUBLIC])
    found = []
    for name, draw, people in tables(sets, given.source, 1 if given.quick else given.draws):
        for solver in given.solvers:
            for constraint, asked in CONSTRAINTS.items():
                told = measured(SOLVERS[solver], people, asked, draw)
                found.append({"solver": solver, "table": name, "constraint": constraint, **told})
    frame = pd.DataFrame(found)
    refused = frame["refused"].notna() if "refused" in frame else np.zeros(len(frame), dtype=bool)
    console = Console(width=150)
    for by in (["solver", "constraint"], ["solver", "table"]):
        console.print(summary(frame[~refused], by))
    console.print(f"refused, for lack of rows in a slice: {int(refused.sum())} of {len(frame)}")


if __name__ == "__main__":
    main()
