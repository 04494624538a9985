"""Public sets dealt to six parties so that every level of protection can be run on them."""

from __future__ import annotations

import numpy as np

from evenhand.arrays import Array, Integers, Matrix
from evenhand.data import PartyEncoder
from evenhand.data.public.loaders import Dataset
from evenhand_reproductions.data.splits import PAPER_ROWS, papers_split, party_sizes, split_columns
from evenhand_reproductions.experiments import FairVFLProblem

PARTIES = 6
LEAST_ROWS = 20
"""Columns that belong to fewer training rows are left out: their gradients would tell of single people."""
FARTHEST = 5.0
"""Standard deviations at which numbers are cut off, for the same reason."""
ROWS = (40_000, 10_000)
"""Training and test rows of sets that the papers do not split."""


def dealt(data: Dataset, seed: int) -> FairVFLProblem:
    """As FairVFL deals Adult and COMPAS; other sets in as equal shares as can be. The first party is active."""
    train, test = _rows(data, seed)
    encoder = PartyEncoder().fit(data.frame.loc[train])
    blocks = [np.clip(_dense(encoder.transform(data.frame.loc[rows])), -FARTHEST, FARTHEST) for rows in (train, test)]
    sizes = party_sizes(data.name) if data.name in PAPER_ROWS else PARTIES
    shares = [_usual(blocks[0], share) for share in split_columns(encoder.feature_names_out, sizes, seed)]
    signs = np.where(data.label == data.positive, 1, -1).astype(np.int64)
    return FairVFLProblem(
        name=data.name,
        seed=seed,
        all_active=False,
        train=[blocks[0][:, share] for share in shares],
        test=[blocks[1][:, share] for share in shares],
        labels=signs[train],
        test_labels=signs[test],
        groups=data.sensitive.loc[train].reset_index(drop=True),
        test_groups=data.sensitive.loc[test].reset_index(drop=True),
    )


def _rows(data: Dataset, seed: int) -> tuple[Integers, Integers]:
    if data.name in PAPER_ROWS:
        return papers_split(data.name, seed)
    order = np.random.default_rng(seed).permutation(len(data.frame)).astype(np.int64)
    return np.sort(order[: ROWS[0]]), np.sort(order[ROWS[0] : sum(ROWS)])


def _dense(matrix: Matrix) -> Array:
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, dtype=np.float64)


def _usual(columns: Array, share: Integers) -> Integers:
    """Those of a party's columns that no few rows have for themselves."""
    return np.array(
        [place for place in share if len(columns) - _commonest(columns[:, place]) >= LEAST_ROWS], dtype=np.int64
    )


def _commonest(column: Array) -> int:
    return int(np.unique(column, return_counts=True)[1].max())
