"""The papers' problems for benchmarks: encoded training rows, split over six parties as published."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from evenhand.data import PartyEncoder, load
from evenhand.vertical.problem import PartyColumns
from evenhand_reproductions.data.splits import papers_split, party_sizes, split_columns


@dataclass(frozen=True)
class Problem:
    """Training rows of one draw: the whole encoded matrix, its blocks at the parties, labels ±1 and groups."""

    matrix: Any
    parties: list[PartyColumns]
    labels: np.ndarray
    sensitive: pd.DataFrame


def problem(name: str, source: Path | None, seed: int = 10) -> Problem:
    data = load(name, source=source)
    train, _ = papers_split(name, seed=seed)
    matrix = PartyEncoder().fit_transform(data.frame.loc[train])
    labels = np.where(data.label.loc[train] == data.positive, 1.0, -1.0)
    shares = split_columns(matrix.shape[1], party_sizes(name), seed=seed)
    parties = [PartyColumns(f"party{k}", matrix[:, share], k == 0) for k, share in enumerate(shares)]
    return Problem(matrix, parties, labels, data.sensitive.loc[train])


def draw(name: str, source: Path | None, seed: int, *, parties: int = 4, most: int = 8000) -> tuple[Problem, Problem]:
    """Some rows of a set to train on and others to measure on, at most so many of each; columns at parties by lot.

    Groups are those of the set's first sensitive attribute.
    """
    data, random = load(name, source=source), np.random.default_rng(seed)
    order = random.permutation(len(data.frame))
    cut = min(most, int(0.7 * len(order)))
    train, test = order[:cut], order[cut : cut + most]
    encoder = PartyEncoder().fit(data.frame.iloc[train])
    labels = np.where(data.label == data.positive, 1.0, -1.0)
    shares = np.array_split(random.permutation(encoder.transform(data.frame.iloc[train[:1]]).shape[1]), parties)

    def part(rows: np.ndarray) -> Problem:
        matrix = encoder.transform(data.frame.iloc[rows])
        blocks = [PartyColumns(f"party{k}", matrix[:, share], k == 0) for k, share in enumerate(shares)]
        return Problem(matrix, blocks, labels[rows], data.sensitive.iloc[rows, :1].reset_index(drop=True))

    return part(train), part(test)


def arguments(description: str | None, parts: Sequence[str] = (), *, quick: bool = False) -> argparse.Namespace:
    """`parts` are what may be run alone, if anything; `quick` adds an option for fewer rows."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="local folder with the data files")
    if parts:
        parser.add_argument("--part", action="append", choices=parts, help="run this alone; may be repeated")
    if quick:
        parser.add_argument("--quick", action="store_true", help="fewer rows and attackers")
    return parser.parse_args()
