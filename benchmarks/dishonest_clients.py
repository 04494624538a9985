"""What one dishonest client of eight does to the exact gap and the accuracy, under each rule of aggregation.

The client makes up ten times its rows. It flips all its labels, or swaps its groups to break the constraint. Quality is
measured on all clients' true rows. Run `python benchmarks/dishonest_clients.py --seeds 3`.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import pandas as pd

from evenhand.constraints.kinds import Constraint, DemographicParity, EqualOpportunity
from evenhand.horizontal.problem import ClientRows
from evenhand.protocol.job import Job
from evenhand_reproductions.in_memory import train_clients

CLIENTS, ROWS, MADE_UP = 8, 1000, 10
RULES = ("mean", "median", "trimmed", "clipped")
LIES = ("", "labels", "groups")
CONSTRAINTS: tuple[Constraint, ...] = (DemographicParity(0.05), EqualOpportunity(0.02))


def client(seed: int, place: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return one client's true features, labels and groups."""
    rng = np.random.default_rng([seed, place])
    inside = rng.random(ROWS) < 0.4
    features = rng.normal(size=(ROWS, 4)) + np.outer(0.8 * inside, [1.0, 0.0, 0.0, 0.0])
    score = features @ [1.0, -0.8, 0.5, 0.0] + 0.6 * inside + rng.logistic(size=ROWS)
    return features, np.where(score > 0.3, 1.0, -1.0), np.where(inside, "a", "b")


def outcome(constraint: Constraint, rule: str, lie: str, seed: int) -> tuple[float, float]:
    """Return the exact gap and the accuracy on the true rows."""
    true, told = [client(seed, place) for place in range(CLIENTS)], []
    for place, (features, labels, groups) in enumerate(true):
        times = MADE_UP if place == 0 and lie else 1
        said = -labels if place == 0 and lie == "labels" else labels
        named = np.where(groups == "a", "b", "a") if place == 0 and lie == "groups" else groups
        frame = pd.DataFrame({"group": np.tile(named, times)})
        told.append(ClientRows(f"c{place}", np.tile(features, (times, 1)), np.tile(said, times), frame))
    options = {"aggregation": rule, "report_every": 0, "batch_size": 256, "local_epochs": 1}
    job = Job(solver="fairfedavgalm", constraints=(constraint,), max_rounds=80, seed=seed, options=options)
    model = train_clients(job, told, groups={"group": ("a", "b")}).model
    features, labels, groups = (np.concatenate(parts) for parts in zip(*true, strict=True))
    decided = model.predict(features) > 0
    counted = labels > 0 if constraint.kind == "equal-opportunity" else np.ones(len(labels), dtype=bool)
    rates = [decided[counted & (groups == one)].mean() for one in ("a", "b")]
    return abs(float(rates[0] - rates[1])), float((decided == (labels > 0)).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(parser.parse_args().seeds)
    warnings.simplefilter("ignore")
    print("largest change over seeds of the exact gap and of the accuracy, by one lying client of eight")
    for constraint in CONSTRAINTS:
        for rule in RULES:
            clean = [outcome(constraint, rule, "", seed) for seed in seeds]
            cells = [f"gap {np.mean([gap for gap, _ in clean]):.3f}"]
            for lie in LIES[1:]:
                lied = [outcome(constraint, rule, lie, seed) for seed in seeds]
                gap = max(abs(one[0] - other[0]) for one, other in zip(lied, clean, strict=True))
                accuracy = max(abs(one[1] - other[1]) for one, other in zip(lied, clean, strict=True))
                cells.append(f"{lie}: gap moves {gap:.3f}, accuracy {accuracy:.3f}")
            print(f"{constraint.kind:20} {rule:8} {'   '.join(cells)}")


if __name__ == "__main__":
    main()
