"""Every solver at its defaults on five tables: accuracy beside the pooled model's, positives predicted, exact gaps.

Adult, COMPAS, German credit, credit default and GiveMeSomeCredit, at most `--rows` rows of each, a quarter held out.
Columns are dealt to three parties or rows to eight clients, by chance; `--skewed` clients differ in how many of their
labels are positive (Dirichlet, α = 0.5). Nothing but the solver, the constraint and the seed is given. The
pooled model is scikit-learn's logistic regression on the same encoded columns. Measured on the held-out rows: accuracy,
the share of rows that are given the positive label, and the largest gap of the error rates that the constraint compares
(both labels' rates where there is no constraint). `prox-al` is left out under constraints: it takes minutes there.

    EVENHAND_DATA=FOLDER python benchmarks/defaults.py [--rows 12000] [--seeds 1] [--sets adult german] [--skewed]
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from evenhand import EqualizedOdds, EqualOpportunity, HorizontalClassifier, VerticalClassifier, solvers
from evenhand.data import load
from evenhand.data.tables.encoding import PartyEncoder

SETS = ("adult", "compas", "german", "credit-default", "give-me-some-credit")
VERTICAL = ("subspace", "fairvfl", "vfb2-svrg", "vfb2-saga", "vfb2-sgd")
HORIZONTAL = ("sqp", "fairfedavgalm", "fairalm", "fpfl")
PLAIN_VERTICAL = (*VERTICAL, "fedbcd")
PLAIN_HORIZONTAL = ("sqp", "prox-al", "fedavg", "fairfed")
CONSTRAINTS = {"none": None, "opportunity": EqualOpportunity(0.05, "error"), "odds": EqualizedOdds(0.05, "error")}
CLIENTS, PARTIES = 8, 3


def rows_of(name: str, most: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, pd.Series, np.ndarray]:
    """Columns, labels, the first sensitive attribute, and which rows are held out."""
    data = load(name)
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(data.frame))[:most]
    frame = data.frame.iloc[chosen].reset_index(drop=True)
    labels = np.where(np.asarray(data.label)[chosen] == data.positive, 1, 0)
    groups = data.sensitive.iloc[chosen, 0].reset_index(drop=True)
    return frame, labels, groups, np.arange(len(chosen)) % 4 == 0


def odds_gaps(labels: np.ndarray, decided: np.ndarray, groups: pd.Series) -> dict[int, float]:
    """By label: the largest difference of error rates between two groups."""
    table = pd.DataFrame({"label": labels, "wrong": decided != labels, "group": groups.to_numpy()})
    rates = table.groupby(["label", "group"])["wrong"].mean().unstack()
    return {int(label): float(row.max() - row.min()) for label, row in rates.iterrows()}


def measured(decided: np.ndarray, labels: np.ndarray, groups: pd.Series, constraint: str) -> dict[str, float]:
    gaps = odds_gaps(labels, decided, groups)
    gap = gaps[1] if constraint == "opportunity" else max(gaps.values())
    return {"accuracy": float((decided == labels).mean()), "positive": float(decided.mean()), "gap": gap}


def pooled(frame: pd.DataFrame, labels: np.ndarray, test: np.ndarray) -> np.ndarray:
    encoder = PartyEncoder(scale=True).fit(frame[~test])
    train, held = (sp.csr_matrix(encoder.transform(frame[rows])) for rows in (~test, test))
    return LogisticRegression(C=0.5, max_iter=2000).fit(train, labels[~test]).predict(held)


def skewed_clients(labels: np.ndarray, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(CLIENTS, 0.5), size=2)
    return np.array([rng.choice(CLIENTS, p=shares[label]) for label in labels])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=12_000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--solvers", nargs="+", default=None)
    parser.add_argument("--constraints", nargs="+", default=list(CONSTRAINTS), choices=CONSTRAINTS)
    parser.add_argument("--skewed", action="store_true", help="clients that differ in their labels")
    parser.add_argument("--options", type=json.loads, default={}, help="to try others than the defaults, as JSON")
    given = parser.parse_args()
    heads = ("pooled", "acc", "diff", "positive", "gap", "seconds")
    print(f"{'set':20} {'constraint':11} {'solver':14} " + " ".join(f"{head:>8}" for head in heads))
    for name in given.sets:
        for seed in range(given.seeds):
            frame, labels, groups, test = rows_of(name, given.rows, seed)
            rng = np.random.default_rng(seed)
            clients = skewed_clients(labels, seed) if given.skewed else rng.integers(CLIENTS, size=len(labels))
            parties = [list(part) for part in np.array_split(rng.permutation(frame.columns), PARTIES)]
            base = float((pooled(frame, labels, test) == labels[test]).mean())
            for constraint in given.constraints:
                plain = constraint == "none"
                vertical = () if given.skewed else (PLAIN_VERTICAL if plain else VERTICAL)
                for solver in (*vertical, *(PLAIN_HORIZONTAL if plain else HORIZONTAL)):
                    if given.solvers and solver not in given.solvers:
                        continue
                    settings: dict[str, Any] = {
                        "solver": (solvers.VERTICAL if solver in vertical else solvers.HORIZONTAL)[solver].options(
                            **given.options
                        ),
                        "constraint": CONSTRAINTS[constraint],
                        "random_state": seed,
                        "encoder": PartyEncoder(numbers="standard"),
                    }
                    start = time.process_time()
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        if solver in vertical:
                            tables = [frame[part] for part in parties]
                            model: Any = VerticalClassifier(**settings)
                            model.fit(
                                [one[~test] for one in tables],
                                pd.Series(labels)[~test],
                                sensitive_features=groups[~test],
                            )
                            decided = model.predict([one[test] for one in tables])
                        else:
                            model = HorizontalClassifier(**settings)
                            model.fit(
                                frame[~test], labels[~test], sensitive_features=groups[~test], clients=clients[~test]
                            )
                            decided = model.predict(frame[test])
                    seconds = time.process_time() - start
                    found = measured(np.asarray(decided), labels[test], groups[test], constraint)
                    accuracy = found["accuracy"]
                    cells = [100 * base, 100 * accuracy, 100 * (accuracy - base), 100 * found["positive"]]
                    numbers = " ".join(f"{value:8.2f}" for value in cells)
                    print(
                        f"{name:20} {constraint:11} {solver:14} {numbers} {found['gap']:8.3f} {seconds:8.1f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
