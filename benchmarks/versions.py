"""Compare the speed and results of this tree with those of another checkout, in one run.

Both trees run the same fits in alternation, each in its own process. Processor seconds are printed with the ratio
new / old; below 1 this tree is faster. Models must agree: the last column is the largest difference of scores.

    git worktree add ../old 1618950
    python benchmarks/versions.py --old ../old
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

SCORES = 200
"""Scores that are compared."""


def table(rows: int, columns: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return correlated columns, labels and a sensitive attribute that predicts the label."""
    random = np.random.default_rng(seed)
    group = random.integers(0, 2, rows)
    features = random.normal(size=(rows, columns)) @ random.normal(size=(columns, columns)) / columns**0.5
    features[:, 0] += 0.8 * group
    score = features @ random.normal(size=columns) / columns**0.5 + 0.6 * group - 0.5
    labels = (score + random.logistic(size=rows) > 0).astype(int)
    return features, labels, group


def cases() -> dict[str, Any]:
    """Return the fits by name; each returns a fitted estimator and what it scores."""
    from evenhand import EqualizedOdds, EqualOpportunity, HorizontalClassifier, VerticalClassifier
    from evenhand.privacy import Dealer

    features, labels, group = table(20_000, 40, 0)
    blocks = np.array_split(features, 4, axis=1)
    clients = np.arange(len(labels)) % 8
    exact = EqualizedOdds(0.02, measure="error")

    def vertical(rows: int = 20_000, **settings: Any) -> Any:
        own = [block[:rows] for block in blocks]
        model = VerticalClassifier(random_state=0, **settings)
        return model.fit(own, labels[:rows], sensitive_features=group[:rows]), [block[:SCORES] for block in own]

    def horizontal(rows: int = 20_000, **settings: Any) -> Any:
        model = HorizontalClassifier(random_state=0, **settings)
        model.fit(features[:rows], labels[:rows], sensitive_features=group[:rows], clients=clients[:rows])
        return model, features[:SCORES]

    return {
        "subspace, equalized odds": lambda: vertical(constraint=exact),
        "subspace, dealer": lambda: vertical(
            4_000, constraint=EqualOpportunity(0.02), protection=Dealer(allow_experimental=True)
        ),
        "vertical trees, equalized odds": lambda: vertical(8_000, model="trees", constraint=exact),
        "fairvfl, 200 rounds": lambda: vertical(
            4_000, solver="fairvfl", constraint=EqualOpportunity(0.02), max_rounds=200
        ),
        "vfb2-svrg": lambda: vertical(4_000, solver="vfb2-svrg", max_rounds=20),
        "sqp, equalized odds": lambda: horizontal(constraint=exact),
        "prox-al": lambda: horizontal(500, solver="prox-al", constraint=EqualOpportunity(0.02)),
        "horizontal trees": lambda: horizontal(8_000, model="trees", constraint=exact),
        "fairfedavgalm, 10 rounds": lambda: horizontal(
            4_000, solver="fairfedavgalm", constraint=EqualOpportunity(0.02), max_rounds=10
        ),
    }


def run(name: str) -> None:
    """Fit one case twice, and print the processor seconds of the second fit and some scores."""
    import warnings

    warnings.simplefilter("ignore")
    fit = cases()[name]
    fit()
    start = time.process_time()
    model, rows = fit()
    seconds = time.process_time() - start
    print(json.dumps({"seconds": seconds, "scores": np.asarray(model.decision_function(rows)).tolist()}))


def child(tree: Path, name: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--run", name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{tree}: {name} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, help="the other checkout")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        run(given.run)
        return
    if given.old is None:
        parser.error("--old names the other checkout")
    new = Path(__file__).resolve().parents[1]
    print(f"{'fit':34} {'old, s':>8} {'new, s':>8} {'new/old':>8} {'scores differ by':>17}")
    for name in cases():
        found = [(child(given.old.resolve(), name), child(new, name)) for _ in range(given.repeats)]
        old, now = (statistics.median(pair[side]["seconds"] for pair in found) for side in (0, 1))
        apart = np.abs(np.subtract(found[0][0]["scores"], found[0][1]["scores"])).max()
        print(f"{name:34} {old:8.2f} {now:8.2f} {now / old:8.2f} {apart:17.1e}", flush=True)


if __name__ == "__main__":
    main()
