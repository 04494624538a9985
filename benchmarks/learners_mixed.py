"""A federation of images, a table and text: a label that needs all three, beside the same models pooled.

The images are scikit-learn's digits (8 × 8; their upper half), the table has ten numbers of which a few act through
steps and waves, and texts are generated: a document draws its words from one of four subjects, with many words common
to all. The label's log-odds are a sum of what the digit, the table and the subject say. `pooled` fits the same models
to the same working responses in one place with no messages, as an additive model: backfitting by turns, with the same
stopping on rows set aside.

    python benchmarks/learners_mixed.py [--seeds 10 11 12] [--rows 2400]
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from scipy.special import expit
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline

from evenhand import VerticalClassifier
from evenhand.data import PartyEncoder
from evenhand.models import NetworkLearner, RegressorLearner
from evenhand.models.learning.base import PartyLearner

WORDS, SUBJECTS = 400, 4


def tables(seed: int, rows: int) -> tuple[dict[str, Any], np.ndarray]:
    """Return each party's table, and labels 0 and 1."""
    random, digits = np.random.default_rng(seed), load_digits()
    places = random.permutation(np.arange(rows) % len(digits.target))
    images = digits.data[places] + random.normal(scale=1.0, size=(rows, 64))
    numbers = random.normal(size=(rows, 10))
    subject = random.integers(SUBJECTS, size=rows)
    shares = random.dirichlet(np.full(WORDS, 0.1), size=SUBJECTS)
    common = random.dirichlet(np.full(WORDS, 0.5))
    texts = [
        " ".join(f"w{word}" for word in random.choice(WORDS, 30, p=0.3 * shares[one] + 0.7 * common)) for one in subject
    ]
    score = 1.6 * np.where(digits.target[places] % 2 == 0, 1.0, -1.0) * (digits.target[places] < 8)
    score = score + 1.5 * np.sin(2.0 * numbers[:, 0]) + 1.2 * (numbers[:, 1] > 0.3) - 0.6
    score = score + 1.5 * np.array([1.0, -1.0, 0.5, -0.5])[subject]
    labels = (score + random.logistic(size=rows) * 0.7 > 0).astype(int)
    half = pd.DataFrame(images[:, :32] / 16.0, columns=[f"pixel{place}" for place in range(32)])
    frame = pd.DataFrame(numbers, columns=[f"x{place}" for place in range(10)])
    return {"table": frame, "images": half, "texts": pd.DataFrame({"text": texts})}, labels


def convolutions(width: int) -> Any:
    """Return a small convolutional network over half images."""
    import torch

    return torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 4, width // 4)),
        torch.nn.Conv2d(1, 8, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 8, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * width, 1),
    )


def models() -> dict[str, PartyLearner]:
    pipeline = make_pipeline(make_column_transformer((TfidfVectorizer(), "text")), Ridge(1.0))
    return {
        "table": RegressorLearner(HistGradientBoostingRegressor(max_iter=60, learning_rate=0.1)),
        "images": NetworkLearner(module=convolutions, epochs=10),
        "texts": RegressorLearner(pipeline, columns="raw"),
    }


def federated(given: dict[str, Any], labels: np.ndarray, train: np.ndarray, rounds: int = 6, **more: Any) -> np.ndarray:
    """Train across the three parties, under masks; return the scores of the other rows."""
    encoders = {"images": PartyEncoder(scale=False), "table": PartyEncoder()}
    estimator = VerticalClassifier(models=models(), encoder=encoders, max_rounds=rounds, random_state=0, **more)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit({name: one[train] for name, one in given.items()}, labels[train])
    return estimator.decision_function({name: one[~train] for name, one in given.items()})


def pooled(given: dict[str, Any], labels: np.ndarray, train: np.ndarray, rounds: int = 6) -> np.ndarray:
    """Fit the same models in one place by turns, each to the working response after the others; average five folds."""
    signs = np.where(labels > 0, 1.0, -1.0)
    columns = {name: one.to_numpy() if name != "texts" else one for name, one in given.items()}
    columns["table"] = (columns["table"] - columns["table"][train].mean(axis=0)) / columns["table"][train].std(axis=0)
    fold, total = np.random.default_rng(0).integers(5, size=len(labels)), np.zeros(len(labels))
    for aside in range(5):
        shown, scores = train & (fold != aside), np.zeros(len(labels))
        held, best = train & (fold == aside), (np.inf, np.zeros(len(labels)))
        for number in range(rounds):
            for name, learner in models().items():
                chance = expit(scores)
                curvature = np.maximum(chance * (1 - chance), 0.02)
                response = np.clip(((signs > 0) - chance) / curvature, -4.0, 4.0)
                rows = columns[name]
                fitted = learner.fit(
                    rows, response, np.where(shown, curvature, 0.0), warm=None, seed=number, features=1
                )
                scores = scores + 0.5 * fitted.outputs(rows)
            loss = float(np.logaddexp(0.0, -signs[held] * scores[held]).mean())
            best = min(best, (loss, scores), key=lambda one: one[0])
        total += best[1] / 5
    return total[~train]


def alone(given: dict[str, Any], labels: np.ndarray, train: np.ndarray, name: str) -> np.ndarray:
    """Train one party's model alone, as a linear probability."""
    rows = given[name] if name == "texts" else given[name].to_numpy()
    response = np.where(labels > 0, 1.0, -1.0)
    fitted = models()[name].fit(rows, response, train.astype(float), warm=None, seed=0, features=1)
    return fitted.outputs(rows)[~train]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[10, 11, 12])
    parser.add_argument("--rows", type=int, default=2400, help="number of people; 30 % of them are held out")
    asked, console = parser.parse_args(), Console()
    heads = ("federated", "pooled", "images alone", "table alone", "texts alone")
    shown, found = Table("seed", *heads, title="AUC on new people"), []
    for seed in asked.seeds:
        given, labels = tables(seed, asked.rows)
        train = np.random.default_rng(seed).random(len(labels)) < 0.7
        scores = [federated(given, labels, train), pooled(given, labels, train)]
        scores += [alone(given, labels, train, name) for name in ("images", "table", "texts")]
        found.append([roc_auc_score(labels[~train], one) for one in scores])
        shown.add_row(str(seed), *(f"{one:.4f}" for one in found[-1]))
    console.print(shown)
    apart = [one[0] - one[1] for one in found]
    console.print(f"federated − pooled (asked: at least −.01): {np.mean(apart):+.4f}, at worst {min(apart):+.4f}")


if __name__ == "__main__":
    main()
