"""Measure how many leaves trees across columns need on small tables: AUC on new rows, without constraints.

Six generated families (`families.py`, and one with products of columns inside one party), 15 to 40 % positives, and the
public sets that are found. Four parties. LightGBM has all columns in one place and its default settings; `linear` is
`subspace`. The default of `leaves` is 4 up to 4,000 rows and 8 up to 16,000.

    python benchmarks/small_tables.py [--source FOLDER] [--draws 2] [--first 14000] [--rows 300 600 1000 2000]
        [--leaves 4 8 16] [--without-public]
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from families import FAMILIES, People, generated
from lightgbm import LGBMClassifier
from promises import public
from rich.console import Console
from rich.table import Table
from sklearn.metrics import roc_auc_score

from evenhand import VerticalClassifier
from evenhand.errors import NowhereFoundError
from evenhand.solvers import Trees

NEW = 3000
"""New rows of a generated table."""
RATES = (0.3, 0.4, 0.15)
PUBLIC = {"german": 667, "compas": 1500, "credit-default": 1500, "adult": 2000, "give-me-some-credit": 4000}
"""Training rows drawn from a public set."""


def products(random: np.random.Generator, group: np.ndarray, effects: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
    """Return columns that act together: products and conjunctions of columns of one party."""
    columns = random.normal(size=(len(group), 12)) + 0.4 * effects[group][:, None] * (random.random(12) < 0.4)
    both = (columns[:, 1] > 0) & (columns[:, 5] > 0) & (columns[:, 9] > -0.5)
    score = 1.2 * columns[:, 0] * columns[:, 4] + 1.5 * both + columns[:, 2] * (columns[:, 6] > 0)
    return pd.DataFrame(columns, columns=[f"x{one}" for one in range(12)]), score + 0.5 * effects[group]


FAMILIES["products"] = products


def pooled(train: People, new: People) -> float:
    table, other = (pd.concat(one.parts, axis=1) for one in (train, new))
    for name in table:
        if not pd.api.types.is_numeric_dtype(table[name]):
            table[name] = table[name].astype("category")
            other[name] = pd.Categorical(other[name], categories=table[name].cat.categories)
    model = LGBMClassifier(verbose=-1, n_jobs=1, random_state=0).fit(table, train.labels)
    return float(roc_auc_score(new.labels, model.predict_proba(other)[:, 1]))


def across(train: People, new: People, leaves: int | None) -> float:
    """Return the AUC of trees with so many leaves; None is the linear model."""
    kind = {} if leaves is None else {"model": "trees", "solver": Trees(leaves=leaves)}
    model = VerticalClassifier(random_state=0, pos_label=1, **kind).fit(train.parts, train.labels)
    return float(roc_auc_score(new.labels, model.decision_function(new.parts)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="local folder with the data files")
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--first", type=int, default=14000, help="seed of the first draw")
    parser.add_argument("--rows", type=int, nargs="+", default=[300, 600, 1000, 2000])
    parser.add_argument("--leaves", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--without-public", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    found = []

    def measure(table: str, rows: int, train: People, new: People) -> None:
        trees = {f"{leaves} leaves": across(train, new, leaves) for leaves in given.leaves}
        line = {"LightGBM, pooled": pooled(train, new), **trees, "linear": across(train, new, None)}
        found.append({"table": table, "rows": rows, **line})

    for seed in range(given.first, given.first + given.draws):
        for rows in given.rows:
            for family in FAMILIES:
                people = generated(family, rows + NEW, RATES[seed % len(RATES)], 2, seed)
                measure(family, rows, people.some(np.arange(rows)), people.some(np.arange(rows, rows + NEW)))
        for name, rows in {} if given.without_public else PUBLIC.items():
            try:
                people = public(name, given.source, seed)
            except NowhereFoundError:
                continue
            measure(name, rows, people.some(np.arange(rows)), people.some(np.arange(rows, len(people.labels))))
    frame = pd.DataFrame(found)
    is_public = frame["table"].isin(PUBLIC)
    shown = Table("", "draws", *frame.columns[2:], title="AUC on new rows")
    parts = [(f"generated, {rows:,} rows", part) for rows, part in frame[~is_public].groupby("rows")]
    parts += [(name, part) for name, part in frame[~is_public].groupby("table", sort=False)]
    parts += [("generated, all", frame[~is_public])]
    parts += [(f"{name}, {rows:,} rows", part) for (name, rows), part in frame[is_public].groupby(["table", "rows"])]
    for name, part in parts:
        shown.add_row(name, str(len(part)), *(f"{value:.4f}" for value in part.iloc[:, 2:].mean()))
    Console(width=140).print(shown)


if __name__ == "__main__":
    main()
