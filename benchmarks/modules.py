"""Measure torch modules of one's own at the solvers' defaults, beside Adam on the pooled rows.

Digits are scikit-learn's (8 × 8, ten classes, and odd against even for constraints). Faces are generated: an oval with
eyes, a mouth and hair at random places and brightness, and noise; the label is the length of the hair, and the group
goes with the brightness and partly with the label. Five clients share the rows by chance, or by label (Dirichlet, .5).
Nothing is given but the module, the solver's name, 30 rounds and the constraint.

With --rates the constraint is equalized odds of error rates within .05, in place of each solver's own.

Asked: at most 3 points below pooled Adam (30 epochs, step .001, batches of 128) for FedAvg. Under a constraint on the
loss the gap is printed too, because accuracy may pay for it.

    python benchmarks/modules.py [--seeds 3] [--rounds 30] [--only digits faces] [--solvers fedavg fairfedavgalm fpfl]
        [--rates]
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from torch import nn

from evenhand import EqualizedOdds, GroupAgainstOverall, HorizontalClassifier, LossParity

CLIENTS = 5
CONSTRAINTS: dict[str, Any] = {
    "fedavg": None,
    "fairfed": None,
    "fairfedavgalm": LossParity(0.05),
    "fpfl": GroupAgainstOverall(0.05),
}


class Images(NamedTuple):
    """Images, labels and groups."""

    images: np.ndarray
    labels: np.ndarray
    groups: np.ndarray


def digits(seed: int) -> Images:
    images, digit = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    groups = np.where(rng.random(len(digit)) < np.where(digit % 3 == 0, 0.7, 0.3), "a", "b")
    return Images(images.reshape(-1, 1, 8, 8).astype(np.float32), digit, groups)


def faces(seed: int, count: int = 1500, side: int = 24) -> Images:
    """Draw faces; long hair is label 1."""
    rng = np.random.default_rng([seed, 7])
    labels = rng.integers(0, 2, count)
    groups = np.where(rng.random(count) < np.where(labels == 1, 0.65, 0.35), "a", "b")
    rows, columns = np.mgrid[:side, :side]
    images = np.empty((count, 1, side, side), dtype=np.float32)
    for place in range(count):
        middle = side / 2 + rng.normal(0, 1.5, 2)
        size = side * rng.uniform(0.24, 0.34)
        down, across = (rows - middle[0]) / size, (columns - middle[1]) / size
        skin = rng.normal(0.65 if groups[place] == "a" else 0.45, 0.12)
        hair = rng.normal(0.3, 0.12)
        picture = np.full((side, side), rng.uniform(0, 1), dtype=np.float64)
        long_hair = (np.abs(across) < 1.3) & (down > -1.3) & (down < (1.3 if labels[place] else -0.3))
        picture[long_hair] = hair
        picture[down**2 / 1.3 + across**2 < 0.9] = skin
        for spot in ((-0.2, -0.35), (-0.2, 0.35), (0.5, 0.0)):
            picture[(down - spot[0]) ** 2 + (across - spot[1]) ** 2 < 0.03] = 0.05
        images[place, 0] = 255.0 * (picture + rng.normal(0, 0.12, picture.shape))
    return Images(images, labels, groups)


def network(shape: tuple[int, ...], outputs: int, seed: int) -> nn.Module:
    """A small convolutional network, as a user would write it; inputs are not scaled."""
    torch.manual_seed(seed)
    half = shape[1] // 2
    return nn.Sequential(
        nn.Conv2d(shape[0], 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * half * half, outputs),
    )


def pooled(data: Images, train: np.ndarray, outputs: int, seed: int) -> np.ndarray:
    """Train with Adam on the pooled rows; return the predicted classes of the other rows."""
    module = network(data.images.shape[1:], max(outputs, 2), seed)
    optimiser = torch.optim.Adam(module.parameters(), 1e-3)
    images, labels = torch.from_numpy(data.images[train]), torch.from_numpy(data.labels[train])
    torch.manual_seed(seed)
    for _ in range(30):
        for batch in torch.randperm(len(images)).split(128):
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(images[batch]), labels[batch]).backward()
            optimiser.step()
    with torch.no_grad():
        return module(torch.from_numpy(data.images[~train])).argmax(dim=1).numpy()


def dealt(labels: np.ndarray, split: str, rng: np.random.Generator) -> np.ndarray:
    if split == "chance":
        return rng.integers(0, CLIENTS, len(labels))
    shares = rng.dirichlet(np.full(CLIENTS, 0.5), labels.max() + 1)
    return np.array([rng.choice(CLIENTS, p=shares[label]) for label in labels])


def error_gap(decided: np.ndarray, data: Images, here: np.ndarray) -> float:
    wrong = decided != data.labels[here]
    rates = [wrong[data.groups[here] == one].mean() for one in np.unique(data.groups)]
    return float(max(rates) - min(rates))


def measured(data: Images, solver: str, split: str, seed: int, rounds: int) -> dict[str, float]:
    """Train at the defaults, and pooled; return accuracies, gaps and seconds."""
    rng = np.random.default_rng([seed, 3])
    train = rng.random(len(data.labels)) < 0.7
    clients = dealt(data.labels, split, rng)
    outputs = int(data.labels.max()) + 1
    found = pooled(data, train, outputs, seed)
    constraint: Any = CONSTRAINTS[solver]
    model = HorizontalClassifier(
        solver=solver,
        constraint=constraint,
        model=lambda: network(data.images.shape[1:], 1 if outputs == 2 else outputs, seed),
        max_rounds=rounds,
        random_state=seed,
    )
    groups = data.groups[train] if constraint is not None or solver == "fairfed" else None
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(data.images[train], data.labels[train], sensitive_features=groups, clients=clients[train])
    decided = model.predict(data.images[~train])
    truth = data.labels[~train]
    return {
        "pooled": float((found == truth).mean()),
        "accuracy": float((decided == truth).mean()),
        "gap pooled": error_gap(found, data, ~train),
        "gap": error_gap(decided, data, ~train),
        "seconds": time.process_time() - start,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument(
        "--only", nargs="+", choices=["digits", "parity", "faces"], default=["digits", "parity", "faces"]
    )
    parser.add_argument("--rates", action="store_true", help="bound error rates instead of losses")
    parser.add_argument("--solvers", nargs="+", choices=list(CONSTRAINTS), default=["fedavg", "fairfedavgalm", "fpfl"])
    given = parser.parse_args()
    if given.rates:
        CONSTRAINTS.update(dict.fromkeys(("fairfedavgalm", "fpfl"), EqualizedOdds(0.05, measure="error")))
    table = Table(
        "images",
        "clients by",
        "solver",
        "pooled Adam",
        "accuracy",
        "points below",
        "asked",
        "gap pooled",
        "gap",
        "CPU s",
    )
    for name in given.only:
        for split in ("chance", "label"):
            for solver in given.solvers:
                if name == "digits" and CONSTRAINTS[solver] is not None:
                    continue
                lines = []
                for seed in range(given.seeds):
                    data = faces(seed) if name == "faces" else digits(seed)
                    data = data._replace(labels=data.labels % 2) if name == "parity" else data
                    lines.append(measured(data, solver, split, seed, given.rounds))
                mean = {key: float(np.mean([line[key] for line in lines])) for key in lines[0]}
                below = 100 * max(line["pooled"] - line["accuracy"] for line in lines)
                table.add_row(
                    name,
                    split,
                    solver,
                    *(f"{mean[key]:.3f}" for key in ("pooled", "accuracy")),
                    f"{100 * (mean['pooled'] - mean['accuracy']):.1f} (most {below:.1f})",
                    "≤ 3" if CONSTRAINTS[solver] is None else "",
                    f"{mean['gap pooled']:.3f}",
                    f"{mean['gap']:.3f}",
                    f"{mean['seconds']:.0f}",
                )
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
