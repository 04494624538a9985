"""How near do rules for the cut come to what they ask, on new rows? Cuts chosen on training and on unseen scores.

Generated tables of two parties: few positives, many columns without effect, so that training scores are too good. Each
line is a mean over seeds; the target is asked of the rule, recall is measured on 20,000 new rows.

    python benchmarks/cut_rules.py [--seeds 20]
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from evenhand import VerticalClassifier
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


def recalls(seed: int, size: int, columns: int, model: str) -> tuple[float, float]:
    """Return the recall on new rows at a cut chosen on training scores, and at the one that the estimator chooses."""
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
    return float((scores > seen).mean()), float((scores > found.cut_.score).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    table = Table(title=f"recall on new rows, asked: {TARGET}", title_justify="left")
    for name in ("rows", "columns", "model", "cut on training scores", "cut on unseen scores"):
        table.add_column(name, justify="right")
    for size, columns in ((400, 10), (400, 40), (1000, 40), (1000, 100), (4000, 100)):
        found = np.array([recalls(seed, size, columns, "linear") for seed in range(seeds)])
        error = found.std(axis=0) / np.sqrt(seeds)
        cells = [f"{mean:.3f} ± {one:.3f}" for mean, one in zip(found.mean(axis=0), error, strict=True)]
        table.add_row(f"{size:,}", str(columns), "linear", *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
