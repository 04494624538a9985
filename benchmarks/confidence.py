"""Measure the coverage of bounds and intervals for new people, over random splits of three data sets.

All rows of a set are the population. Each of the resplits draws people from it, with replacement: some to train on, as
many again to measure on. A statement at 95 % is made from the training rows and from the measured ones, and is true or
not of the gap over the whole population. Printed: the share of resplits in which it was, and how wide it was.

The first table is about constraints with ``confidence=0.95``: how often the gap of the population is within ε, without
and with it, what that costs, and how often the bound that the training rows prove (`proofs_`) is true.

    python benchmarks/confidence.py [--source FOLDER] [--resplits 40] [--rows 4000]
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from rich.console import Console
from rich.table import Table

from evenhand import (
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    HorizontalClassifier,
    SplitTableClassifier,
    VerticalClassifier,
)
from evenhand.constraints import Constraint
from evenhand.constraints.proving import Proof
from evenhand.data import PartyEncoder, load
from evenhand.data.public.loaders import Dataset
from evenhand.errors import SmallSliceWarning
from evenhand.metrics import constraint_gaps, intervals, summary

RAW = PartyEncoder(scale=False)
"""Columns pass as they are."""
SETS = ("adult", "compas", "credit-default")
MODELS = {
    "no constraint": None,
    "DEO ≤ .05": EqualOpportunity(0.05),
    "equalized odds ≤ .02": EqualizedOdds(0.02, measure="error"),
}
PROMISES: dict[str, Callable[[float | None], Constraint]] = {
    "EO ≤ .10": lambda level: EqualizedOdds(0.10, "error", confidence=level),
    "DP ≤ .03": lambda level: DemographicParity(0.03, confidence=level),
}
METRICS = ("accuracy", "DEO", "DFP", "DFN", "DP", "equalized_odds")
REPEATS = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="local folder with the data files")
    parser.add_argument("--resplits", type=int, default=40, help="draws of people from each set")
    parser.add_argument("--rows", type=int, default=4000, help="people to train on, and as many to measure on")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS, help="data sets")
    parser.add_argument(
        "--only", choices=("promises", "statements"), help="the table of confidence, or those of metrics"
    )
    given = parser.parse_args()
    start = time.perf_counter()
    sets = [load(name, source=given.source) for name in given.sets]
    console = Console(width=120)
    if given.only != "statements":
        kept = pd.DataFrame(record for data in sets for record in promises(data, given.resplits, given.rows))
        console.print(confident(kept, f"confidence=0.95, {given.resplits} resplits of {given.rows} rows of each set"))
    if given.only != "promises":
        _print_coverage(console, sets, given.resplits, given.rows)
    console.print(f"{time.perf_counter() - start:.0f} s")


def _print_coverage(console: Console, sets: Sequence[Dataset], resplits: int, rows: int) -> None:
    found = pd.DataFrame(record for data in sets for record in statements(data, resplits, rows))
    console.print(coverage(found, ["set", "rows"], f"by data set, {resplits} resplits of {rows} rows"))
    console.print(coverage(found, ["model", "rows"], "by model"))
    console.print(coverage(found, ["metric", "rows"], "by metric"))


def statements(data: Dataset, resplits: int, rows: int) -> Iterator[dict[str, object]]:
    """What was said and what is true, for each resplit, model, metric and kind of rows."""
    matrix = PartyEncoder().fit_transform(data.frame)
    labels, groups = (data.label == data.positive).to_numpy(), data.sensitive
    for resplit in range(resplits):
        random = np.random.default_rng(resplit)
        parts = {"training": random.integers(len(labels), size=rows), "new": random.integers(len(labels), size=rows)}
        for name, constraint in MODELS.items():
            model = SplitTableClassifier(VerticalClassifier(constraint=constraint, encoder=RAW), parties=3)
            train = parts["training"]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SmallSliceWarning)
                model.fit(matrix[train], labels[train], sensitive_features=groups.iloc[train].to_numpy())
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


def promises(data: Dataset, resplits: int, rows: int) -> Iterator[dict[str, object]]:
    """Constraints with and without confidence, for each resplit and solver, and what is true of the population."""
    matrix = PartyEncoder().fit_transform(data.frame)
    labels, groups = (data.label == data.positive).to_numpy(), data.sensitive.iloc[:, :1]
    for resplit in range(resplits):
        train = np.random.default_rng(resplit).integers(len(labels), size=rows)
        for name, make in PROMISES.items():
            for solver in ("subspace", "sqp"):
                for level in (None, 0.95):
                    scores, proofs = _trained(solver, make(level), matrix, labels, groups, train, resplit)
                    true = constraint_gaps(make(None), labels, scores, sensitive_features=groups).iloc[0]
                    yield {
                        **{"set": data.name, "constraint": name, "solver": solver, "confidence": str(level)},
                        "within ε": float(true.estimate <= true.asked),
                        "gap": true.estimate,
                        "accuracy": float(np.mean((scores > 0) == labels)),
                        "proven": np.mean([one.holds for one in proofs]) if proofs else np.nan,
                        "bound": proofs[0].bound if proofs else np.nan,
                        "bound true": float(true.estimate <= proofs[0].bound) if proofs else np.nan,
                    }


def _trained(
    solver: str,
    constraint: Constraint,
    matrix: npt.NDArray[np.float64],
    labels: npt.NDArray[np.bool_],
    groups: pd.DataFrame,
    train: npt.NDArray[np.int64],
    seed: int,
) -> tuple[npt.NDArray[np.float64], list[Proof]]:
    """Scores of everybody, and what the training rows prove."""
    with warnings.catch_warnings():
        # Slices too small, bounds out of reach: the table says how that ends.
        warnings.simplefilter("ignore")
        if solver == "subspace":
            model = SplitTableClassifier(VerticalClassifier(constraint=constraint, encoder=RAW), parties=3)
            model.fit(matrix[train], labels[train], sensitive_features=groups.iloc[train].to_numpy())
            return model.decision_function(matrix), model.classifier_.proofs_
        clients = np.random.default_rng(seed).integers(4, size=len(train))
        across = HorizontalClassifier(solver="sqp", constraint=constraint, encoder=RAW)
        across.fit(matrix[train], labels[train], sensitive_features=groups.iloc[train], clients=clients)
        return across.decision_function(matrix), across.proofs_


def confident(found: pd.DataFrame, title: str) -> Table:
    """Each set, constraint and solver on a line, without and with confidence."""
    table = Table(title=title, title_justify="left")
    for name in ("set", "constraint", "solver"):
        table.add_column(name)
    for name in ("within ε", "with", "points lost", "true gap", "with", "proven", "bound", "true"):
        table.add_column(name, justify="right")
    means = found.groupby(["set", "constraint", "solver", "confidence"], sort=False).mean(numeric_only=True)
    for key, part in means.groupby(level=[0, 1, 2], sort=False):
        plain, sure = part.xs("None", level=3).iloc[0], part.xs("0.95", level=3).iloc[0]
        lost = 100 * (plain["accuracy"] - sure["accuracy"])
        cells = [plain["within ε"], sure["within ε"], lost, plain["gap"], sure["gap"]]
        cells += [sure["proven"], sure["bound"], sure["bound true"]]
        table.add_row(*key, *map(_cell, cells))
    sure = found[found["confidence"] == "0.95"]
    for solver, part in sure.groupby("solver", sort=False):
        said = part[["proven", "bound", "bound true"]].mean()
        table.add_row("all", "", solver, "", _cell(part["within ε"].mean()), "", "", "", *map(_cell, said))
    return table


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
