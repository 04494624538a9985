"""Vertical splits and the hold-out of rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import InputError
from evenhand.jobs.tables import held_out
from evenhand_reproductions.data.splits import split_columns


@given(st.integers(1, 60), st.data())
def test_split_columns_is_a_partition(count: int, data: st.DataObject) -> None:
    parties = data.draw(st.integers(1, count))
    shares = split_columns(count, parties, seed=data.draw(st.integers(0, 2**32)))
    assert sorted(np.concatenate(shares)) == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert all(np.all(np.diff(share) > 0) for share in shares)


def test_split_columns_by_sizes_names_and_frames() -> None:
    names = [f"f{k}" for k in range(26)]
    shares = split_columns(names, (16, 2, 2, 2, 2, 2), seed=0)
    assert [share.size for share in shares] == [16, 2, 2, 2, 2, 2]
    same = split_columns(pd.DataFrame(columns=names), (16, 2, 2, 2, 2, 2), seed=0)
    assert all(np.array_equal(a, b) for a, b in zip(shares, same, strict=True))


@pytest.mark.parametrize("parties", [(3, 3), (5, 0), (6, -1), (), 0, 6])
def test_shares_that_do_not_fit(parties: int | tuple[int, ...]) -> None:
    with pytest.raises(InputError):
        split_columns(5, parties, seed=0)


@given(st.lists(st.one_of(st.integers(), st.text()), unique_by=str, max_size=40), st.integers(0, 2**64), st.randoms())
def test_held_out_does_not_depend_on_order_or_company(ids: list[object], seed: int, random: object) -> None:
    shuffled = list(ids)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    whole = dict(zip(map(str, ids), held_out(ids, 0.3, seed), strict=True))
    part = shuffled[: len(shuffled) // 2]
    assert all(whole[str(one)] == out for one, out in zip(part, held_out(part, 0.3, seed), strict=True))


def test_held_out_share_and_seed() -> None:
    ids = pd.RangeIndex(20_000)
    first, second = held_out(ids, 0.2, seed=1), held_out(ids, 0.2, seed=2)
    # Five standard deviations of a binomial share.
    margin = 5 * (0.2 * 0.8 / len(ids)) ** 0.5
    assert abs(first.mean() - 0.2) < margin
    assert abs((first & second).mean() - 0.04) < margin, "two seeds draw independently"


def test_held_out_is_the_same_on_every_machine() -> None:
    """A change here would leak test rows into training between parties of different versions."""
    ids = ["anna", "bert", "cleo", "dora", 1, 2, 3, 4]
    out = ["anna", 1, 2, 3, 4]
    assert [one for one, held in zip(ids, held_out(ids, 0.5, 7), strict=True) if held] == out


def test_numbers_of_any_type_agree() -> None:
    assert np.array_equal(held_out(list(range(50)), 0.5, 0), held_out(np.arange(50, dtype=np.int32), 0.5, 0))


@pytest.mark.parametrize("fraction", [0.0, 1.0, -1.0, float("nan")])
def test_fraction_out_of_range(fraction: float) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        held_out([1, 2], fraction, 0)
