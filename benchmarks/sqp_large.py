"""Measure `sqp` on a table of many rows and categories, beside `subspace`, and beside itself with plain products.

The table is drawn with a seed. It has the shape of the KDD census: 199,523 rows, 7 numbers and 33 columns of 2 to 50
categories, 6 % positives, a sensitive attribute of two groups. Constraint: equalized odds ≤ .02 of exact rates.

`sqp` forms XᵀDX from tables of categories (`programs/weighted_gram.py`); "products" is the same run without them.

Asked: the same objective to 1e-8, and at most 10 / 8 of the CPU seconds of `subspace`: 10 where it takes 8.

    python benchmarks/sqp_large.py [--rows 199523] [--clients 4] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd

from evenhand import EqualizedOdds, HorizontalClassifier, VerticalClassifier
from evenhand.programs import weighted_gram

ASKED = 10.0 / 8.0
PRICE = weighted_gram.PRICE
NUMBERS, CATEGORICAL = 7, 33
SOLVERS = ("subspace", "sqp", "products")


def table(rows: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray, pd.DataFrame]:
    """Draw columns that share a factor, labels, and groups."""
    random = np.random.default_rng(seed)
    group = random.integers(2, size=rows)
    factor = random.normal(size=rows) + 0.4 * group
    columns: dict[str, Any] = {}
    for place in range(NUMBERS):
        value = 0.6 * factor + random.normal(size=rows)
        # Money: mostly zero, with a long tail.
        columns[f"number{place}"] = np.where(value > 1.0, np.round(np.exp(2.0 * value)), 0.0) if place % 2 else value
    for place in range(CATEGORICAL):
        levels = int(random.choice([2, 3, 5, 8, 12, 20, 50]))
        drawn = 0.5 * factor + random.gumbel(size=rows)
        code = np.clip((levels * (0.5 + 0.12 * drawn) ** 2).astype(int), 0, levels - 1)
        columns[f"category{place}"] = np.char.add("v", code.astype(str))
    score = 1.3 * factor + 0.4 * columns["number0"] + (columns["category0"] == "v1") - 4.2
    labels = (score + random.logistic(size=rows) > 0.0).astype(int)
    return pd.DataFrame(columns), labels, pd.DataFrame({"group": np.array(["a", "b"])[group]})


def fit(solver: str, columns: pd.DataFrame, labels: np.ndarray, groups: pd.DataFrame, clients: int) -> Any:
    constraint = EqualizedOdds(0.02, measure="error")
    if solver == "subspace":
        names = [list(part) for part in np.array_split(np.array(columns.columns), 4)]
        model: Any = VerticalClassifier(constraint=constraint, random_state=0)
        return model.fit([columns[part] for part in names], labels, sensitive_features=groups)
    # A table that costs more than any product is never used.
    weighted_gram.PRICE = np.inf if solver == "products" else PRICE
    model = HorizontalClassifier(solver="sqp", constraint=constraint, random_state=0)
    return model.fit(columns, labels, sensitive_features=groups, clients=np.arange(len(labels)) % clients)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=199_523)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--profile", action="store_true", help="print where sqp spends its time")
    parser.add_argument("--solvers", nargs="+", choices=SOLVERS, default=list(SOLVERS))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    columns, labels, groups = table(given.rows)
    seconds: dict[str, float] = {}
    objectives: dict[str, float] = {}
    for solver in given.solvers:
        profile = cProfile.Profile()
        began = time.process_time()
        if given.profile:
            profile.enable()
        model = fit(solver, columns, labels, groups, given.clients)
        profile.disable()
        seconds[solver] = time.process_time() - began
        told = model.certificate_
        objectives[solver] = told.objective
        print(
            f"{solver}: {seconds[solver]:.1f} CPU s, {told.rounds} rounds, converged {told.converged}, "
            f"objective {told.objective:.12f}, violation {told.violation:.1e}"
        )
        if given.profile:
            pstats.Stats(profile).sort_stats("tottime").print_stats(14)
    if {"subspace", "sqp"} <= set(seconds):
        print(f"sqp / subspace: {seconds['sqp'] / seconds['subspace']:.2f} (asked: at most {ASKED:.2f})")
    if {"products", "sqp"} <= set(seconds):
        apart = abs(objectives["sqp"] - objectives["products"])
        times = seconds["products"] / seconds["sqp"]
        print(f"products / sqp: {times:.2f}; objectives differ by {apart:.1e} (asked: 1e-8)")


if __name__ == "__main__":
    main()
