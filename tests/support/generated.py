"""Generated tables: money-like and indicator columns, factors that parties share, rare labels, several groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from evenhand.vertical.problem import PartyColumns

FACTORS = 6


@dataclass(frozen=True)
class Generated:
    """Standardised columns at parties, labels ±1 and groups."""

    parties: list[PartyColumns]
    labels: np.ndarray
    sensitive: pd.DataFrame


def generate(seed: int, *, least: int = 15000, most: int = 45000) -> Generated:
    """Draw a table: rows, columns, their kinds and correlations, parties and the rate of positives by the seed."""
    random = np.random.default_rng([seed, 77])
    rows, parties = int(random.integers(least, most)), int(random.integers(2, 6))
    factors, columns = random.normal(size=(rows, FACTORS)), []
    for _ in range(int(random.integers(6, 16))):
        chosen = random.normal(size=FACTORS) * (random.random(FACTORS) < 0.4)
        columns += _columns(random, factors @ chosen * random.uniform(0, 2) + random.normal(size=rows))
    matrix = np.array(columns, dtype=float).T
    matrix = matrix[:, matrix.std(axis=0) > 0]
    matrix = (matrix - matrix.mean(axis=0)) / matrix.std(axis=0)
    score = factors @ random.normal(size=FACTORS) * random.uniform(0.3, 1) + 0.3 * matrix[:, :5].sum(axis=1)
    score += random.logistic(size=rows)
    rate = random.choice([0.02, 0.05, 0.11, 0.3])
    labels = np.where(score > np.quantile(score, 1 - rate), 1.0, -1.0)
    groups = (factors[:, 0] + random.normal(size=rows) > 0).astype(int).astype(str)
    order = np.arange(matrix.shape[1])
    if random.random() >= 0.5:
        order = random.permutation(len(order))
    blocks = [
        PartyColumns(f"party{place}", np.asfortranarray(matrix[:, part]), place == 0)
        for place, part in enumerate(np.array_split(order, parties))
    ]
    return Generated(blocks, labels, pd.DataFrame({"s": groups}))


def _columns(random: np.random.Generator, latent: np.ndarray) -> list[Any]:
    """Turn a latent variable into money, itself, indicators of intervals, or a rare amount with its indicator."""
    kind = random.integers(0, 4)
    if kind == 0:
        return [np.floor(np.exp(random.uniform(1, 3) * latent / latent.std()))]
    if kind == 1:
        return [latent]
    if kind == 2:
        cuts = np.quantile(latent, np.sort(random.uniform(0.005, 0.995, int(random.integers(2, 12)))))
        return [np.digitize(latent, cuts) == place for place in range(len(cuts) + 1)]
    rare = latent > np.quantile(latent, 0.9)
    return [np.where(rare, np.exp(2 * latent), -1), rare]
