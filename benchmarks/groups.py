"""Measure fits under equalized odds of exact rates with 2 to 12 groups, `subspace` beside `sqp`.

Generated tables only: most labels positive as in a law school's bar exam, few positive as in lending, and balanced
ones; one large group and others that shrink by a quarter each. Two more families were not looked at while the search
was written: `curved`, where a group changes what a column means and the score is curved, and `heavy`, with columns of
heavy tails and groups of one size. With many small groups the easiest way to equal rates is
one decision for everybody. It costs much of the loss, so the log-loss is printed beside two references: a pooled
logistic regression without constraint, and the best feasible model on a grid of shifts and scales of its scores.

Asked: exact gaps on training rows within ε if converged; a log-loss at most 1 % above that of the other solver and of
the grid; at most 10 CPU seconds.

    python benchmarks/groups.py [--seeds 5] [--rows 14000] [--groups 2 5 8 12]
        [--families law lending even curved heavy]
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from evenhand import EqualizedOdds, HorizontalClassifier, VerticalClassifier
from evenhand.data import PartyEncoder

EPSILON = 0.02
FAMILIES = {"law": 2.9, "lending": -2.5, "even": 0.0, "curved": 1.0, "heavy": -1.2}
"""Intercepts of the true model."""
SHIFTS, SCALES = np.linspace(-4.0, 4.0, 81), np.linspace(0.0, 1.2, 13)


class People(NamedTuple):
    """Rows of a table: columns, labels 0 and 1, groups."""

    columns: np.ndarray
    labels: np.ndarray
    groups: np.ndarray


def people(family: str, groups: int, rows: int, seed: int) -> tuple[People, People]:
    """Draw training rows, and as many new rows; groups differ in a factor that all columns share."""
    random = np.random.default_rng(seed)
    shares = np.ones(groups) if family == "heavy" else np.r_[1.0, 0.08 * 0.75 ** np.arange(groups - 1)]
    effects = np.r_[0.0, -random.uniform(0.3, 1.4, groups - 1)]
    loadings = random.uniform(0.3, 0.9, 9)
    group = random.choice(groups, 2 * rows, p=shares / shares.sum())
    factor = random.normal(size=2 * rows) + 0.8 * effects[group]
    columns = factor[:, None] * loadings + random.normal(size=(2 * rows, 9))
    columns[:, -2:] = columns[:, -2:] > 0.5
    score = FAMILIES[family] + factor + 0.3 * columns[:, 0] + 0.3 * effects[group]
    if family == "curved":
        score += 0.5 * np.abs(factor) + effects[group] * columns[:, 1]
    if family == "heavy":
        columns[:, :5] = np.exp(columns[:, :5])
    labels = (score + random.logistic(size=2 * rows) > 0.0).astype(int)
    names = np.array([f"g{place}" for place in range(groups)])[group]
    return People(columns[:rows], labels[:rows], names[:rows]), People(columns[rows:], labels[rows:], names[rows:])


def gap(of: People, decisions: np.ndarray) -> float:
    """Return the largest gap in error rates between groups, over both labels; slices without rows do not count."""
    found = []
    for label in (0, 1):
        slices = [(of.groups == name) & (of.labels == label) for name in np.unique(of.groups)]
        rates = [np.mean(decisions[inside] != label) for inside in slices if inside.any()]
        found.append(max(rates) - min(rates))
    return float(max(found))


def references(train: People) -> tuple[float, float]:
    """Return the log-loss of a pooled logistic regression, and of its best feasible shift and scale."""
    scores = LogisticRegression(max_iter=1000).fit(train.columns, train.labels).decision_function(train.columns)
    tried = [
        (float(np.mean(np.logaddexp(0.0, np.where(train.labels > 0, -moved, moved)))), moved)
        for shift in SHIFTS
        for scale in SCALES
        for moved in [scores.mean() + shift + scale * (scores - scores.mean())]
    ]
    tried.sort(key=lambda one: one[0])
    best = next(loss for loss, moved in tried if gap(train, moved > 0.0) <= EPSILON)
    return float(np.mean(np.logaddexp(0.0, np.where(train.labels > 0, -scores, scores)))), best


def fit(solver: str, train: People) -> Any:
    groups = pd.DataFrame({"group": train.groups})
    settings: dict[str, Any] = {
        "constraint": EqualizedOdds(EPSILON, measure="error"),
        "random_state": 0,
        "encoder": PartyEncoder(numbers="standard"),
    }
    if solver == "subspace":
        return VerticalClassifier(**settings).fit(parts(train), train.labels, sensitive_features=groups)
    clients = np.arange(len(train.labels)) % 4
    model = HorizontalClassifier(solver="sqp", **settings)
    return model.fit(train.columns, train.labels, sensitive_features=groups, clients=clients)


def parts(of: People) -> list[np.ndarray]:
    return [of.columns[:, first : first + 3] for first in (0, 3, 6)]


def measured(solver: str, train: People, test: People) -> dict[str, float]:
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fit(solver, train)
    seconds = time.process_time() - began
    sure, new = (model.predict_proba(parts(of) if solver == "subspace" else of.columns)[:, 1] for of in (train, test))
    return {
        "rounds": model.certificate_.rounds,
        "converged": model.certificate_.converged,
        "loss": log_loss(train.labels, sure),
        "held-out loss": log_loss(test.labels, new),
        "selected": float(np.mean(sure > 0.5)),
        "gap": gap(train, sure > 0.5),
        "held-out gap": gap(test, new > 0.5),
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--rows", type=int, default=14000)
    parser.add_argument("--groups", type=int, nargs="+", default=[2, 5, 8, 12])
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=["law", "lending", "even"])
    parser.add_argument("--solvers", nargs="+", choices=("subspace", "sqp"), default=["subspace", "sqp"])
    given = parser.parse_args()
    title = f"equalized odds ≤ {EPSILON} of exact rates, {given.rows} rows, {given.seeds} seeds (gap, time: worst)"
    table = Table(title=title)
    heads = "family,groups,solver,converged,rounds,log-loss,free,grid,held-out,selected,gap,held-out gap,CPU s"
    for head in heads.split(","):
        table.add_column(head)
    fits = held = near = quick = 0
    for family in given.families:
        for groups in given.groups:
            found: dict[str, list[dict[str, float]]] = {solver: [] for solver in given.solvers}
            grids, frees = [], []
            for seed in range(given.first, given.first + given.seeds):
                train, test = people(family, groups, given.rows, seed)
                free, grid = references(train)
                frees.append(free)
                grids.append(grid)
                for solver in given.solvers:
                    found[solver].append(measured(solver, train, test))
                least = min(grid, *(ones[-1]["loss"] for ones in found.values()))
                for ones in found.values():
                    one, fits = ones[-1], fits + 1
                    held += not one["converged"] or one["gap"] <= EPSILON + 1e-12
                    near += one["loss"] <= 1.01 * least
                    quick += one["seconds"] <= 10.0
            for solver, ones in found.items():
                mean = {name: float(np.mean([one[name] for one in ones])) for name in ones[0]}
                table.add_row(
                    family,
                    str(groups),
                    solver,
                    f"{mean['converged']:.0%}",
                    f"{mean['rounds']:.1f}",
                    f"{mean['loss']:.4f}",
                    f"{np.mean(frees):.4f}",
                    f"{np.mean(grids):.4f}",
                    f"{mean['held-out loss']:.4f}",
                    f"{mean['selected']:.4f}",
                    f"{max(one['gap'] for one in ones):.4f}",
                    f"{mean['held-out gap']:.4f}",
                    f"{max(one['seconds'] for one in ones):.1f}",
                )
    Console(width=160).print(table)
    print(f"exact training gap ≤ {EPSILON} where converged: {held} of {fits} (asked: all)")
    print(f"log-loss within 1 % of the least feasible one found: {near} of {fits} (asked: all)")
    print(f"at most 10 CPU seconds: {quick} of {fits} (asked: all)")


if __name__ == "__main__":
    main()
