"""Rows and columns as the FairVFL paper divides them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from evenhand.data import PartyEncoder
from evenhand.data.public.loaders import Dataset
from evenhand.errors import InputError
from evenhand_reproductions.data.splits import PAPER_ROWS, PARTY_SIZES, papers_split, party_sizes

FEATURES = {"adult": 104, "compas": 26, "communities-crime": 99}


def test_party_sizes_of_the_papers() -> None:
    for version in PARTY_SIZES:
        assert {name: sum(sizes) for name, sizes in PARTY_SIZES[version].items()} == FEATURES
    assert party_sizes("adult") == party_sizes("adult", "first") == (19, 17, 17, 17, 17, 17)
    assert party_sizes("compas") == (16, 2, 2, 2, 2, 2)
    assert party_sizes("crime", "first") == (19, 16, 16, 16, 16, 16)
    with pytest.raises(InputError, match="german"):
        party_sizes("german")
    with pytest.raises(InputError, match="journal and first"):
        party_sizes("adult", "second")


@pytest.mark.parametrize("name", PAPER_ROWS)
def test_papers_split_counts(name: str) -> None:
    train, test = papers_split(name, seed=3)
    assert (train.size, test.size) == PAPER_ROWS[name]
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(sum(PAPER_ROWS[name])))
    assert np.array_equal(train, papers_split(name, seed=3)[0])
    assert not np.array_equal(train, papers_split(name, seed=4)[0])


def test_papers_split_of_a_set_they_do_not_split() -> None:
    with pytest.raises(InputError, match="do not split german"):
        papers_split("german", 0)


@pytest.mark.parametrize("seed", range(5))
def test_any_training_draw_gives_the_papers_features(load_set: Callable[[str], Dataset], seed: int) -> None:
    """One country has one row: its column must be there whether that row is drawn for training or not."""
    data = load_set("adult")
    train, test = papers_split("adult", seed)
    encoder = PartyEncoder().fit(data.frame.loc[train])
    assert encoder.transform(data.frame.loc[test]).shape == (5_222, 104)
