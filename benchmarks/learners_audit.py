"""What columns of learners disclose: the server's best guess of each passive party's columns, by model and protection.

Three parties of 600 generated people, two rounds of two models. Each cell has R² of the columns from one column of
outputs, and from everything that the server received, by the attack that finds most. The floor is R² from its own
columns.

    python benchmarks/learners_audit.py [--rounds 2] [--models NAME ...]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.ensemble import RandomForestRegressor
from sklearn.neighbors import KNeighborsRegressor

import evenhand
from evenhand import VerticalClassifier
from evenhand.models import LinearLearner, NetworkLearner, Resampled
from evenhand.solvers import Learners

ROWS, PASSIVE = 600, ("shop", "social")
MODELS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "linear": (LinearLearner, {}),
    "network": (NetworkLearner, {}),
    "network, 8 features": (NetworkLearner, {"features": 8}),
    "network, embedding": (NetworkLearner, {"exchange": "embedding"}),
    "forest": (lambda: RandomForestRegressor(30, min_samples_leaf=5), {}),
    "neighbours": (lambda: Resampled(KNeighborsRegressor(15)), {}),
}


def tables() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return each party's columns, numbers and zeros or ones, and the labels."""
    random = np.random.default_rng(0)
    columns = random.normal(size=(ROWS, 7))
    columns[:, 3:] = columns[:, 3:] > 0
    labels = np.where(columns @ random.normal(size=7) + random.logistic(size=ROWS) > 0, "yes", "no")
    return {"bank": columns[:, :2], "shop": columns[:, 2:4], "social": columns[:, 4:]}, labels


def found(name: str, protection: str, rounds: int) -> list[str]:
    made, options = MODELS[name]
    given, labels = tables()
    estimator = VerticalClassifier(
        solver=Learners(folds=2, patience=9, **options),
        model=made(),
        max_rounds=rounds,
        tol=0.0,
        protection=protection,
        random_state=0,
    )
    findings = evenhand.audit(estimator, given, labels).by_participant()["bank (server)"]
    cells = []
    for party in PASSIVE:
        of_columns = [one for one in findings if one.target == f"the columns of {party}"]
        single = [one.value.value for one in of_columns if one.sequence == 1 and "outputs" in one.message]
        floor = max(max(one.floors.values()) for one in of_columns)
        cells.append(f"{max(single):.2f}, {max(one.value.value for one in of_columns):.2f} ({floor:.2f})")
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    asked = parser.parse_args()
    shown = Table("model", "protection", *(f"columns of {one}" for one in PASSIVE), title="R²: one column, all (floor)")
    for name in asked.models:
        for protection in ("none", "masked"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                shown.add_row(name, protection, *found(name, protection, asked.rounds))
    Console(width=110).print(shown)


if __name__ == "__main__":
    main()
