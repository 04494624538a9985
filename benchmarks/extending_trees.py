"""Can boosted trees go on from an earlier run when a party joins or leaves? Three ways, beside training anew.

Each party grows a tree on its own columns in every round, and the values of all new leaves are solved for jointly, as
the solver `trees` does it; this is a short version in one place, with one fold and no constraint. A run keeps the
rounds with the least loss on held-out rows. Then the last party joins, or leaves, and at most three rounds follow, of
which the held-out loss again chooses:

- continue: boost on with the parties that are there now, from the trees of the earlier run (less those of who left).
- newcomer: the new party grows three trees a round, alone.
- solve again: the values of all leaves of all trees are solved for, before the rounds (leaves) or after each (joins).

The numbers are the log-loss on test rows above that of a training anew, in thousandths of it: mean and worst. Last row:
another training anew, in which trees are grown on a random 90 % of the rows.

    python benchmarks/extending_trees.py [--source FOLDER] [--seeds N] [--rows N]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from lightgbm import LGBMRegressor
from overlap import INCOME, case
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit

LEAVES, LEAST, SHRINKAGE, RIDGE = 8, 20, 0.5, 5.0
MOST, PATIENCE, FOLLOWING = 12, 3, 3


class Boosted:
    """Trees of several parties: for each its party, the leaf of every row, and the leaves' values."""

    def __init__(self, tables: dict[str, np.ndarray], labels: np.ndarray, parts: tuple[np.ndarray, ...], seed: int):
        self.tables, self.labels, self.parts = tables, labels, parts
        share = (labels[parts[0]] > 0).mean()
        self.start = np.full(len(labels), np.log(share / (1.0 - share)))
        self.trees: list[tuple[str, sparse.csr_matrix, np.ndarray]] = []
        self.grows_on = parts[0] & (np.random.default_rng(seed).random(len(labels)) < (0.9 if seed else 1.0))

    def scores(self) -> np.ndarray:
        return self.start + sum((leaves @ values for _, leaves, values in self.trees), np.zeros(len(self.labels)))

    def loss(self, part: int) -> float:
        rows = self.parts[part]
        return float(np.logaddexp(0.0, -(self.labels * self.scores())[rows]).mean())

    def without(self, party: str | None) -> Boosted:
        found = Boosted(self.tables, self.labels, self.parts, 0)
        found.trees = [tree for tree in self.trees if tree[0] != party]
        return found

    def _solved(self, leaves: sparse.csr_matrix, scores: np.ndarray, start: np.ndarray) -> np.ndarray:
        rows = self.parts[0]
        inside, base, labels, count = leaves[rows], scores[rows], self.labels[rows], int(rows.sum())

        def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
            margins = labels * (base + inside @ values)
            slope = inside.T @ (-labels * expit(-margins)) / count + RIDGE * values / count
            return np.logaddexp(0.0, -margins).mean() + 0.5 * RIDGE * (values @ values) / count, slope

        return minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 60}).x

    def _take(self, parties: list[str], leaves: list[sparse.csr_matrix], values: np.ndarray) -> None:
        ends = np.cumsum([one.shape[1] for one in leaves])[:-1]
        self.trees += list(zip(parties, leaves, np.split(values, ends), strict=True))

    def boost(self, parties: list[str], times: int = 1) -> None:
        scores, rows = self.scores(), self.grows_on
        pull = expit(-self.labels * scores)
        curvature = np.maximum(pull * (1.0 - pull), 1e-6)
        grown, owners = [], [party for party in parties for _ in range(times)]
        for place, party in enumerate(owners):
            tree = LGBMRegressor(
                n_estimators=1, num_leaves=LEAVES, min_child_samples=LEAST, learning_rate=1.0, verbose=-1, n_jobs=1,
                colsample_bytree=1.0 if times == 1 else 0.7, random_state=place,
            )  # fmt: skip
            tree.fit(self.tables[party][rows], (self.labels * pull / curvature)[rows], sample_weight=curvature[rows])
            leaf = tree.predict(self.tables[party], pred_leaf=True).ravel()
            grown.append(sparse.csr_matrix((np.ones(len(leaf)), (np.arange(len(leaf)), leaf))))
        whole = sparse.hstack(grown, format="csr")
        self._take(owners, grown, SHRINKAGE * self._solved(whole, scores, np.zeros(whole.shape[1])))

    def solve_again(self) -> None:
        parties, leaves, values = (list(one) for one in zip(*self.trees, strict=True))
        self.trees = []
        self._take(parties, leaves, self._solved(sparse.hstack(leaves, format="csr"), self.start, np.hstack(values)))

    def keep_best(self, step: Callable[[], None], most: int, patience: int) -> Boosted:
        best, kept, futile = self.loss(1), list(self.trees), 0
        for _ in range(most):
            step()
            if (loss := self.loss(1)) < best:
                best, kept, futile = loss, list(self.trees), 0
            elif (futile := futile + 1) == patience:
                break
        self.trees = kept
        return self


def generated(seed: int, rows: int, shared: bool) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return four parties' columns, which share factors or do not, and labels with bent effects."""
    rng = np.random.default_rng(seed)
    factors, tables = rng.normal(size=(rows, 5)), {}
    for place in range(4):
        of_party = factors @ rng.normal(size=(5, 5)) if shared else rng.normal(size=(rows, 5))
        tables[f"p{place}"] = of_party + 0.7 * rng.normal(size=(rows, 5))
    if shared:
        scores = factors @ rng.normal(size=5) + 0.8 * np.abs(factors[:, 0])
    else:
        scores = sum(one @ (0.5 * rng.normal(size=5)) + np.abs(one[:, 0]) for one in tables.values()) - 4.0
    return tables, np.where(scores + 1.5 * rng.logistic(size=rows) > 0, 1.0, -1.0)


def public(name: str, source: Path | None, seed: int, rows: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    one = case(name, "random", source, seed, rows)
    found = {}
    for party, table in one.tables.items():
        numbers = [
            table[column] if pd.api.types.is_numeric_dtype(table[column]) else pd.factorize(table[column])[0]
            for column in table
        ]
        found[party] = np.column_stack(numbers).astype(float)
    return found, one.labels


def measured(tables: dict[str, np.ndarray], labels: np.ndarray, seed: int) -> dict[str, float]:
    draw = np.random.default_rng(seed).random(len(labels))
    parts = (draw < 0.55, (draw >= 0.55) & (draw < 0.7), draw >= 0.7)
    every = list(tables)
    few, last = every[:-1], every[-1]

    def trained(parties: list[str], sample: int = 0) -> Boosted:
        one = Boosted(tables, labels, parts, sample)
        return one.keep_best(lambda: one.boost(parties), MOST, PATIENCE)

    def following(run: Boosted, step: Callable[[Boosted], None]) -> float:
        return run.keep_best(lambda: step(run), FOLLOWING, FOLLOWING).loss(2)

    def boosted_and_solved(run: Boosted) -> None:
        run.boost(every)
        run.solve_again()

    whole, without = trained(every), trained(few)
    solved = whole.without(last)
    solved.solve_again()
    joined, left = whole.loss(2), without.loss(2)
    return {
        "joins: continue": following(without.without(None), lambda run: run.boost(every)) / joined - 1.0,
        "joins: newcomer": following(without.without(None), lambda run: run.boost([last], 3)) / joined - 1.0,
        "joins: solve again": following(without.without(None), boosted_and_solved) / joined - 1.0,
        "leaves: continue": following(whole.without(last), lambda run: run.boost(few)) / left - 1.0,
        "leaves: solve again": solved.loss(2) / left - 1.0,
        "leaves: solve again, continue": following(solved, lambda run: run.boost(few)) / left - 1.0,
        "anew, 90 % of the rows": trained(every, 1).loss(2) / joined - 1.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=5000)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = []
    for seed in range(given.seeds):
        sets = {"factors": generated(seed, given.rows, True), "independent": generated(seed, given.rows, False)}
        sets |= {name: public(name, given.source, seed, given.rows) for name in INCOME}
        lines += [measured(*one, seed) for one in sets.values()]
    table = 1000.0 * pd.DataFrame(lines)
    shown = pd.DataFrame(
        {"mean": table.mean(), "worst": table.max(), "within 1": (table <= 1.0).sum(), "of": len(table)}
    )
    print(shown.round(1).to_string())


if __name__ == "__main__":
    main()
