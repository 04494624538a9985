"""Test AUC of linear models over standardised numbers, curves and bins, beside LightGBM on the pooled table.

At most 20,000 rows of each public table, their columns split among four parties, three splits into 70 % training and
30 % test rows; without a constraint and under equalized odds of the first sensitive attribute (error rates within
0.02). Printed are means over the splits, rounds, and the largest exact gap of the test rows under the constraint.

    python benchmarks/curves.py [--source FOLDER] [--splits 3]
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from rich.console import Console
from rich.table import Table
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from evenhand import EqualizedOdds, VerticalClassifier
from evenhand.data import PartyEncoder, load
from evenhand.data.tables.columns import NumbersRule
from evenhand.metrics import constraint_gaps

SETS = ("give-me-some-credit", "credit-default", "adult", "compas", "german")
CONSTRAINT = EqualizedOdds(0.02, measure="error")
ROWS, PARTIES = 20_000, 4


def pooled_auc(train: pd.DataFrame, test: pd.DataFrame, labels: np.ndarray, unseen: np.ndarray) -> float:
    """Return the test AUC of LightGBM with its defaults for tables of this size."""
    train, test = train.copy(), test.copy()
    for name in train.columns:
        if not pd.api.types.is_numeric_dtype(train[name]):
            train[name] = train[name].astype("category")
            test[name] = pd.Categorical(test[name], categories=train[name].cat.categories)
    model = LGBMClassifier(verbose=-1, n_jobs=1, learning_rate=0.05, num_leaves=15, random_state=0)
    return float(roc_auc_score(unseen, model.fit(train, labels).predict_proba(test)[:, 1]))


def measure(name: str, source: Path | None, seed: int) -> dict[str, list[float]]:
    """Fit one split; return AUC without and with the constraint, rounds of both, and the gap."""
    data = load(name, source=source)
    labels = (data.label == data.positive).to_numpy().astype(int)
    rows = np.random.default_rng(seed).permutation(len(labels))[:ROWS]
    train, test = train_test_split(rows, test_size=0.3, random_state=seed, stratify=labels[rows])
    frame, groups = data.frame.reset_index(drop=True), data.sensitive.iloc[:, [0]].reset_index(drop=True)
    parts = np.array_split(np.arange(frame.shape[1]), PARTIES)
    tables = {part: [frame.iloc[chosen, some] for some in parts] for part, chosen in (("train", train), ("test", test))}
    found = {}
    for numbers in get_args(NumbersRule):
        encoder = PartyEncoder(numbers=numbers)
        plain = VerticalClassifier(encoder=encoder, random_state=0).fit(tables["train"], labels[train])
        fair = VerticalClassifier(encoder=encoder, constraint=CONSTRAINT, random_state=0)
        fair.fit(tables["train"], labels[train], sensitive_features=groups.iloc[train])
        scores = [model.decision_function(tables["test"]) for model in (plain, fair)]
        gap = constraint_gaps(CONSTRAINT, labels[test], scores[1], sensitive_features=groups.iloc[test])
        aucs = [float(roc_auc_score(labels[test], one)) for one in scores]
        found[numbers] = [*aucs, plain.n_iter_, fair.n_iter_, float(gap["estimate"].iloc[0])]
    best = pooled_auc(frame.iloc[train], frame.iloc[test], labels[train], labels[test])
    return {**found, "LightGBM, pooled": [best, np.nan, np.nan, np.nan, np.nan]}


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--source", type=Path, default=None)
    options.add_argument("--splits", type=int, default=3)
    asked = options.parse_args()
    warnings.simplefilter("ignore")
    table = Table("table", "numbers", "AUC", "AUC, fair", "rounds", "rounds, fair", "test gap, fair")
    for name in SETS:
        splits = [measure(name, asked.source, seed) for seed in range(asked.splits)]
        for numbers in splits[0]:
            auc, fair, rounds, more, gap = np.mean([one[numbers] for one in splits], axis=0)
            cells = [f"{auc:.4f}"] if np.isnan(fair) else [f"{auc:.4f}", f"{fair:.4f}", f"{rounds:.1f}", f"{more:.1f}"]
            table.add_row(name, numbers, *cells, *([] if np.isnan(gap) else [f"{gap:.4f}"]))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
