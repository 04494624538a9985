"""How often what is said of new people is true: coverage of bounds and intervals over resplits of three data sets.

All rows of a set are the population. Each of the resplits draws people from it, with replacement: some to train on, as
many again to measure on. A statement at 95 % is made from the training rows and from the measured ones, and is true or
not of the gap over the whole population. Printed: the share of resplits in which it was, and how wide it was.

    python benchmarks/confidence.py [--source FOLDER] [--resplits 40] [--rows 4000]
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from evenhand import EqualizedOdds, EqualOpportunity, SplitTableClassifier, VerticalClassifier
from evenhand.data import Dataset, PartyEncoder, load
from evenhand.errors import SmallSliceWarning
from evenhand.metrics import intervals, summary

SETS = ("adult", "compas", "credit-default")
MODELS = {
    "no constraint": None,
    "DEO ≤ .05": EqualOpportunity(0.05),
    "equalized odds ≤ .02": EqualizedOdds(0.02, measure="error"),
}
METRICS = ("accuracy", "DEO", "DFP", "DFN", "DP", "equalized_odds")
REPEATS = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="local folder with the data files")
    parser.add_argument("--resplits", type=int, default=40, help="draws of people from each set")
    parser.add_argument("--rows", type=int, default=4000, help="people to train on, and as many to measure on")
    given = parser.parse_args()
    start = time.perf_counter()
    found = pd.DataFrame(
        record for name in SETS for record in statements(load(name, source=given.source), given.resplits, given.rows)
    )
    console = Console(width=110)
    console.print(coverage(found, ["set", "rows"], f"by data set, {given.resplits} resplits of {given.rows} rows"))
    console.print(coverage(found, ["model", "rows"], "by model"))
    console.print(coverage(found, ["metric", "rows"], "by metric"))
    console.print(f"{time.perf_counter() - start:.0f} s")


def statements(data: Dataset, resplits: int, rows: int) -> Iterator[dict[str, object]]:
    """What was said and what is true, for each resplit, model, metric and kind of rows."""
    matrix = PartyEncoder().fit_transform(data.frame)
    labels, groups = (data.label == data.positive).to_numpy(), data.sensitive
    for resplit in range(resplits):
        random = np.random.default_rng(resplit)
        parts = {"training": random.integers(len(labels), size=rows), "new": random.integers(len(labels), size=rows)}
        for name, constraint in MODELS.items():
            model = SplitTableClassifier(VerticalClassifier(constraint=constraint, scale=False), parties=3)
            train = parts["training"]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SmallSliceWarning)
                model.fit(matrix[train], labels[train], groups.iloc[train].to_numpy())
            scores = model.decision_function(matrix)
            truth = summary(labels, scores, sensitive_features=groups)
            for part, chosen in parts.items():
                said = intervals(
                    labels[chosen],
                    scores[chosen],
                    sensitive_features=groups.iloc[chosen],
                    repeats=REPEATS,
                    seed=resplit,
                )
                for metric in METRICS:
                    row, true = said.loc[metric], truth[metric]
                    yield {
                        **{"set": data.name, "model": name, "metric": metric, "rows": part},
                        "bound holds": np.nan if np.isnan(row.bound) else float(true <= row.bound),
                        "bound": row.bound,
                        "interval holds": float(row.low <= true <= row.high),
                        "width": row.high - row.low,
                        "truth": np.nan if metric == "accuracy" else true,
                    }


def coverage(found: pd.DataFrame, by: list[str], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    shown = {
        "statements": None,
        "bound holds": "bound holds",
        "mean bound": "bound",
        "true gap": "truth",
        "interval holds": "interval holds",
        "mean width": "width",
    }
    for name in (*by, *shown):
        table.add_column(name, justify="left" if name in by else "right")
    for key, part in found.groupby(by, sort=False):
        means = part.mean(numeric_only=True)
        cells = [str(len(part)) if column is None else _cell(means[column]) for column in shown.values()]
        table.add_row(*key, *cells)
    return table


def _cell(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.3f}"


if __name__ == "__main__":
    main()
