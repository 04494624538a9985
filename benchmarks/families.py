"""Families of generated people for benchmarks of constraints: what columns look like, and how labels follow from them.

Each family draws other groups, columns and effects for each seed. Groups have unequal sizes and different rates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

PARTIES = 4


@dataclass(frozen=True)
class People:
    """Rows of one table, with columns in parts for the parties; labels are 0 and 1."""

    parts: list[pd.DataFrame]
    labels: np.ndarray
    groups: np.ndarray

    def some(self, rows: np.ndarray) -> People:
        return People([part.iloc[rows] for part in self.parts], self.labels[rows], self.groups[rows])


Drawn = tuple[pd.DataFrame, np.ndarray]
"""Columns, and the score that labels follow from."""


def plain(random: np.random.Generator, group: np.ndarray, effects: np.ndarray) -> Drawn:
    """Return a few columns with effects and many without; some depend a little on the group."""
    columns = random.normal(size=(len(group), 12)) + 0.5 * effects[group][:, None] * (random.random(12) < 0.4)
    score = columns[:, 0] + np.abs(columns[:, 4]) + columns[:, 8] + effects[group]
    columns[:, ::3] = np.exp(columns[:, ::3])
    return _named(columns), score


def shapes(random: np.random.Generator, group: np.ndarray, effects: np.ndarray) -> Drawn:
    """Return columns with effects that are steps, waves, plateaus and products, and gaps that say something."""
    columns = random.normal(size=(len(group), 10)) + 0.4 * effects[group][:, None] * (random.random(10) < 0.4)
    cuts = random.normal(scale=0.5, size=2)
    score = 1.5 * (columns[:, 0] > cuts[0]) + np.sin(2.0 * columns[:, 1]) + np.clip(columns[:, 2], cuts[1], 1.0)
    score += columns[:, 3] * columns[:, 4] + 0.7 * effects[group]
    missing = random.random(len(group)) < 1.0 / (1.0 + np.exp(2.0 - columns[:, 0]))
    columns[missing, 5] = np.nan
    return _named(columns), score


def proxies(random: np.random.Generator, group: np.ndarray, effects: np.ndarray) -> Drawn:
    """Return columns of which most tell the group, alone or together, and carry the effects."""
    centres = random.normal(size=(len(effects), 8))
    columns = 0.8 * centres[group] + random.normal(size=(len(group), 8))
    score = columns @ random.normal(scale=0.5, size=8) + 0.5 * effects[group]
    kind = np.where(random.random(len(group)) < 0.8, group, random.integers(len(effects), size=len(group)))
    frame = _named(columns)
    frame["area"] = np.array([f"a{one}" for one in kind])
    return frame, score


def tails(random: np.random.Generator, group: np.ndarray, effects: np.ndarray) -> Drawn:
    """Return amounts with heavy tails, some of them mostly zero; effects saturate."""
    base = random.standard_t(2.0, size=(len(group), 9)) + 0.4 * effects[group][:, None] * (random.random(9) < 0.5)
    score = np.tanh(base[:, 0]) + np.sign(base[:, 3]) * np.log1p(np.abs(base[:, 3])) + effects[group]
    amounts = np.sign(base) * np.expm1(np.minimum(np.abs(base), 12.0))
    amounts[:, 5:] *= random.random((len(group), 4)) < 0.2
    score += 0.8 * (amounts[:, 5] != 0.0)
    return _named(amounts), score


def levels(random: np.random.Generator, group: np.ndarray, effects: np.ndarray) -> Drawn:
    """Return categories with 4 to 100 levels of unequal size, and a few numbers."""
    frame = _named(random.normal(size=(len(group), 4)))
    score = frame["x0"].to_numpy() + effects[group]
    for count in (4, 20, 100):
        size = 1.0 / np.arange(1, count + 1)
        level = random.choice(count, len(group), p=size / size.sum())
        # Some levels are those of one group more than of others.
        level = np.where(random.random(len(group)) < 0.3, (level + 2 * group) % count, level)
        score = score + random.normal(scale=0.8, size=count)[level]
        frame[f"kind{count}"] = np.array([f"k{one}" for one in range(count)])[level]
    return frame, score


FAMILIES: dict[str, Callable[[np.random.Generator, np.ndarray, np.ndarray], Drawn]] = {
    "plain": plain,
    "shapes": shapes,
    "proxies": proxies,
    "tails": tails,
    "levels": levels,
}


def generated(family: str, rows: int, rate: float, groups: int, seed: int) -> People:
    """Draw people of a family with this share of positives; the columns are dealt over the parties."""
    random = np.random.default_rng(seed)
    shares = 0.7 ** np.arange(groups)
    group = random.choice(groups, rows, p=shares / shares.sum())
    frame, score = FAMILIES[family](random, group, 0.5 * random.normal(size=groups))
    score = score + random.logistic(size=rows)
    labels = (score > np.quantile(score, 1.0 - rate)).astype(int)
    parts = [frame.iloc[:, first::PARTIES] for first in range(PARTIES)]
    return People(parts, labels, np.array([f"g{one}" for one in group]))


def _named(columns: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(columns, columns=[f"x{place}" for place in range(columns.shape[1])])
