"""When `exchange = "embedding"` pays: generated labels with more and more of an interaction across parties.

Three parties of three columns, 2,000 people to train with, and 4,000 new ones. The log-odds are
a·(x₁ + x₂) + b·(u₁u₂ + v₂v₃), with an index for the party of each column. Each cell is AUC on new people; `best` is
that of the true log-odds.

    python benchmarks/learners_interactions.py [--seeds 20 21]
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier

from evenhand import VerticalClassifier
from evenhand.solvers import Learners

ROWS, SHOWN = 6000, 2000
CASES = ((1.0, 0.0), (1.0, 0.25), (1.0, 0.5), (1.0, 1.0), (0.0, 1.5))
WAYS = {
    "sums, masked": ("scores", "masked"),
    "embedding, masked": ("embedding", "masked"),
    "embedding, unmasked": ("embedding", "none"),
}


def case(main: float, product: float, seed: int) -> dict[str, float]:
    random = np.random.default_rng(seed)
    one, two, three = (random.normal(size=(ROWS, 3)) for _ in range(3))
    odds = main * (one[:, 0] + two[:, 0]) + product * (one[:, 1] * two[:, 1] + two[:, 2] * three[:, 0])
    labels = (odds + 0.7 * random.logistic(size=ROWS) > 0).astype(int)
    shown = np.arange(ROWS) < SHOWN
    found = {"best": odds[~shown]}
    for name, (exchange, protection) in WAYS.items():
        model = VerticalClassifier(
            solver=Learners(exchange=exchange),  # type: ignore[arg-type]
            model="mlp",
            max_rounds=5,
            protection=protection,
            random_state=0,
        )
        model.fit([part[shown] for part in (one, two, three)], labels[shown])
        found[name] = model.decision_function([part[~shown] for part in (one, two, three)])
    pooled = MLPClassifier((32, 16), early_stopping=True, random_state=0, max_iter=100)
    rows = np.hstack([one, two, three])
    found["pooled MLP"] = pooled.fit(rows[shown], labels[shown]).predict_proba(rows[~shown])[:, 1]
    return {name: float(roc_auc_score(labels[~shown], scores)) for name, scores in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[20, 21])
    seeds = parser.parse_args().seeds
    shown = Table("a, b", "best", *WAYS, "pooled MLP", title=f"AUC on new people, mean of {len(seeds)} seeds")
    for weights in CASES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = [case(*weights, seed) for seed in seeds]
        means = {name: np.mean([one[name] for one in found]) for name in found[0]}
        shown.add_row(f"{weights[0]:g}, {weights[1]:g}", *(f"{mean:.4f}" for mean in means.values()))
    Console(width=100).print(shown)


if __name__ == "__main__":
    main()
