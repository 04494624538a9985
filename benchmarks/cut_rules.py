"""How near do rules for the cut come to what they ask, on new rows? Cuts chosen on training and on unseen scores.

Generated tables of two parties: few positives, many columns without effect, so that training scores are too good. Each
line is a mean over seeds; the target is asked of the rule, recall is measured on 20,000 new rows.

With --bounds: a capacity and a bound on demographic parity together, on generated families with two groups. Each line
has what was asked, and what was measured on the training rows and on 20,000 new ones.

    python benchmarks/cut_rules.py [--seeds 20] [--bounds [--fits 40]]
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from scipy.optimize import brentq

from evenhand import DemographicParity, HorizontalClassifier, VerticalClassifier
from evenhand.metrics import Threshold

TARGET = 0.6
NEW = 20_000


def rows(random: np.random.Generator, size: int, columns: int) -> tuple[list[pd.DataFrame], np.ndarray]:
    """Return the tables of two parties, and labels of which a tenth is positive."""
    numbers = random.normal(size=(size, columns))
    score = numbers[:, :4] @ np.array([1.0, -0.8, 0.6, 0.6]) - 3.0
    y = np.where(random.random(size) < 1.0 / (1.0 + np.exp(-score)), "yes", "no")
    frame = pd.DataFrame(numbers).add_prefix("x")
    half = columns // 2
    # Columns that matter are at both.
    order = [*range(0, columns, 2), *range(1, columns, 2)]
    return [frame.iloc[:, order[:half]], frame.iloc[:, order[half:]]], y


def recalls(seed: int, size: int, columns: int, model: str) -> tuple[float, ...]:
    """Return recalls on new rows at cuts chosen on training scores and by the estimator: across columns, clients."""
    random = np.random.default_rng(seed)
    X, y = rows(random, size, columns)
    given = Threshold("recall", target=TARGET)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = VerticalClassifier(model=model, threshold=given).fit(X, y)
    signs = np.where(y == "yes", 1.0, -1.0)
    seen = given.choose(signs, found.decision_function(X))
    fresh, truth = rows(np.random.default_rng(10_000 + seed), NEW, columns)
    scores = found.decision_function(fresh)[truth == "yes"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        across = HorizontalClassifier(threshold=given)
        across.fit(pd.concat(X, axis=1), y, clients=np.arange(size) % 3)
    own = across.decision_function(pd.concat(fresh, axis=1))[truth == "yes"]
    at_seen = given.choose(signs, across.decision_function(pd.concat(X, axis=1)))
    return (
        float((scores > seen).mean()),
        float((scores > found.cut_.score).mean()),
        float((own > at_seen).mean()),
        float((own > across.cut_.score).mean()),
    )


def people(random: np.random.Generator, size: int, base: float, shift: float) -> tuple[pd.DataFrame, Any, Any]:
    """Return features that tell two groups apart by `shift`, labels with this base rate, and groups."""
    group = random.random(size) < 0.4
    x = random.normal(size=(size, 4))
    x[:, :2] += shift * group[:, None]
    score = x @ [1.1, 0.9, -0.5, 0.0]
    offset = brentq(lambda one: (1.0 / (1.0 + np.exp(-score - one))).mean() - base, -30.0, 30.0)
    y = np.where(random.random(size) < 1.0 / (1.0 + np.exp(-score - offset)), "yes", "no")
    return pd.DataFrame(x).add_prefix("x"), y, np.where(group, "f", "m")


def bounded(fits: int) -> None:
    """Print capacities and bounds on demographic parity, asked and measured."""
    table = Table(title="a capacity and a bound on the gap in selection rates", title_justify="left")
    for name in ("split", "rows", "base rate", "capacity", "selected", "of new", "ε", "gap", "of new", "both met"):
        table.add_column(name, justify="right")
    met = {"vertical": 0, "horizontal": 0}
    near = dict(met)
    for number in range(fits):
        random = np.random.default_rng(number)
        size, base = int(random.choice([800, 1500, 4000])), float(random.choice([0.02, 0.05, 0.1, 0.2, 0.35, 0.5]))
        capacity, shift = float(random.choice([0.02, 0.05, 0.1, 0.2, 0.3, 0.4])), float(random.choice([0.3, 0.8, 1.5]))
        epsilon = float(random.choice([0.01, 0.02, 0.05, 0.1]))
        X, y, sex = people(random, size, base, shift)
        fresh, _, others = people(np.random.default_rng(10_000 + number), NEW, base, shift)
        given = {"constraint": DemographicParity(epsilon), "threshold": Threshold("rate", capacity=capacity)}
        for split in met:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if split == "vertical":
                    model = VerticalClassifier(**given).fit(parted(X), y, sensitive_features=sex)
                    chosen, new = model.predict(parted(X)) == "yes", model.predict(parted(fresh)) == "yes"
                else:
                    model = HorizontalClassifier(**given)
                    model.fit(X, y, sensitive_features=sex, clients=np.arange(size) % 3)
                    chosen, new = model.predict(X) == "yes", model.predict(fresh) == "yes"
            error = np.sqrt(capacity * (1.0 - capacity) / size)
            gap, of_gap = gap_of(chosen, sex), error / np.sqrt((sex == "f").mean() * (sex == "m").mean())
            beyond = max(capacity - error - chosen.mean(), chosen.mean() - capacity) - 2.0 / size
            both = beyond <= 0.0 and gap <= epsilon + 1e-9
            met[split] += both
            near[split] += bool(beyond <= error and gap <= epsilon + of_gap)
            numbers = [capacity, chosen.mean(), new.mean(), epsilon, gap, gap_of(new, others)]
            table.add_row(split, f"{size:,}", f"{base:g}", *[f"{one:.3f}" for one in numbers], "yes" if both else "no")
    Console(width=110).print(table)
    for split, count in met.items():
        print(f"{split}: both met on the training rows in {count} of {fits}, within a standard error in {near[split]}")


def parted(X: pd.DataFrame) -> list[pd.DataFrame]:
    return [X[["x0", "x2"]], X[["x1", "x3"]]]


def gap_of(chosen: Any, sex: Any) -> float:
    return float(abs(chosen[sex == "f"].mean() - chosen[sex == "m"].mean()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--bounds", action="store_true")
    parser.add_argument("--fits", type=int, default=40)
    given = parser.parse_args()
    if given.bounds:
        bounded(given.fits)
        return
    seeds = given.seeds
    table = Table(title=f"recall on new rows, asked: {TARGET}", title_justify="left")
    for name in ("rows", "columns", "model", "training scores", "unseen scores", "clients: training", "unseen"):
        table.add_column(name, justify="right")
    for size, columns in ((400, 10), (400, 40), (1000, 40), (1000, 100), (4000, 100)):
        found = np.array([recalls(seed, size, columns, "linear") for seed in range(seeds)])
        error = found.std(axis=0) / np.sqrt(seeds)
        cells = [f"{mean:.3f} ± {one:.3f}" for mean, one in zip(found.mean(axis=0), error, strict=True)]
        table.add_row(f"{size:,}", str(columns), "linear", *cells)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
