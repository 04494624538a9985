"""Partitions of rows among clients: every row once, sizes as promised, skew as asked for."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.errors import DataError, InputError
from evenhand_reproductions.data.clients import (
    clients_by_column,
    dirichlet_clients,
    iid_clients,
    rows_of_clients,
    skewed_clients,
)

SEEDS = st.integers(0, 2**32 - 1)


def _shares(labels: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """The mix of classes of each client."""
    counts = pd.crosstab(numbers, labels).to_numpy()
    return counts / counts.sum(axis=1, keepdims=True)


@st.composite
def labels_and_clients(draw: st.DrawFn) -> tuple[list[int], int]:
    labels = draw(st.lists(st.integers(0, 5), min_size=1, max_size=120))
    return labels, draw(st.integers(1, len(labels)))


@given(given_rows=labels_and_clients(), alpha=st.sampled_from([5e-324, 1e-6, 0.2, 1.0, 5.0, 1e3, 1e308]), seed=SEEDS)
def test_dirichlet_uses_every_row_once_in_balanced_sizes(
    given_rows: tuple[list[int], int], alpha: float, seed: int
) -> None:
    labels, clients = given_rows
    numbers = dirichlet_clients(labels, clients, alpha, seed)
    rows = rows_of_clients(numbers, clients)
    assert sorted(np.concatenate(rows)) == list(range(len(labels)))
    sizes = [part.size for part in rows]
    assert max(sizes) - min(sizes) <= 1
    np.testing.assert_array_equal(numbers, dirichlet_clients(labels, clients, alpha, seed))


@settings(max_examples=10)
@given(seed=SEEDS)
def test_large_alpha_approaches_the_mix_of_the_whole(seed: int) -> None:
    """Also where classes are of very different sizes."""
    labels = np.repeat(["a", "b", "c"], [6000, 3000, 1000])
    shares = _shares(labels, dirichlet_clients(labels, 10, 1e6, seed))
    # 1,000 rows a client: five standard deviations of a share are below 0.08.
    np.testing.assert_allclose(shares, np.tile([0.6, 0.3, 0.1], (10, 1)), atol=0.08)


@settings(max_examples=10)
@given(seed=SEEDS)
def test_small_alpha_approaches_one_class_a_client(seed: int) -> None:
    labels = np.repeat(np.arange(10), 500)
    skewed = _shares(labels, dirichlet_clients(labels, 10, 1e-3, seed)).max(axis=1)
    mild = _shares(labels, dirichlet_clients(labels, 10, 1.0, seed)).max(axis=1)
    even = _shares(labels, dirichlet_clients(labels, 10, 1e3, seed)).max(axis=1)
    # Ten clients and ten classes of one client's size: a client is short of its class only where another had it.
    assert np.median(skewed) > 0.7
    assert skewed.mean() > mild.mean() > even.mean()
    assert even.max() < 0.25


def test_mixes_have_the_moments_of_the_distribution() -> None:
    """While no class has run out, the mixes of two equal classes are Beta(α, α)."""
    labels = np.repeat([0, 1], 20_000)
    shares = np.concatenate([_shares(labels, dirichlet_clients(labels, 200, 2.0, seed))[:, 0] for seed in range(20)])
    # Beta(2, 2): mean 1/2 and variance 1/20; the draw of 200 rows adds (1/4 - 1/20)/200. The last clients differ.
    assert np.mean(shares) == pytest.approx(0.5, abs=1e-12)
    assert np.var(shares) == pytest.approx(0.051, rel=0.1)


def test_classes_run_out_gracefully() -> None:
    """One row of a rare class, and clients that all want the same class."""
    labels = ["common"] * 99 + ["rare"]
    for seed in range(20):
        sizes = np.bincount(dirichlet_clients(labels, 7, 1e-4, seed), minlength=7)
        assert sorted(sizes) == [14, 14, 14, 14, 14, 15, 15]


def test_labels_may_be_anything_that_sorts() -> None:
    numbers = dirichlet_clients([0, 1, 1, 0, 1, 0, 0, 1], 3, 0.5, 4)
    for labels in (
        list("baabaabb"),
        pd.Series([False, True, True, False, True, False, False, True], index=range(8, 0, -1)),
    ):
        other = dirichlet_clients(labels, 3, 0.5, 4)
        assert sorted(np.bincount(other)) == sorted(np.bincount(numbers)) == [2, 3, 3]
    np.testing.assert_array_equal(numbers, dirichlet_clients(pd.Series(list("abbabaab")), 3, 0.5, 4))


@pytest.mark.parametrize("alpha", [0.0, -1.0, np.nan, np.inf])
def test_alpha_out_of_range(alpha: float) -> None:
    with pytest.raises(InputError, match="alpha is"):
        dirichlet_clients([0, 1], 1, alpha, 0)


@given(rows=st.integers(1, 500), seed=SEEDS, data=st.data())
def test_iid_clients_are_balanced(rows: int, seed: int, data: st.DataObject) -> None:
    clients = data.draw(st.integers(1, rows))
    numbers = iid_clients(rows, clients, seed)
    sizes = np.bincount(numbers, minlength=clients)
    assert numbers.shape == (rows,)
    assert sizes.max() - sizes.min() <= 1
    np.testing.assert_array_equal(numbers, iid_clients(rows, clients, seed))


def test_iid_clients_are_dealt_at_random() -> None:
    labels = np.repeat([0, 1], 5000)
    shares = _shares(labels, iid_clients(10_000, 5, seed=1))
    np.testing.assert_allclose(shares, 0.5, atol=0.06)
    assert (iid_clients(10_000, 5, seed=1) != iid_clients(10_000, 5, seed=2)).mean() > 0.7


@given(
    clients=st.integers(1, 40), spare=st.integers(0, 500), skew=st.floats(0, 8), minimum=st.integers(1, 5), seed=SEEDS
)
def test_skewed_sizes_fall_off_and_keep_the_minimum(
    clients: int, spare: int, skew: float, minimum: int, seed: int
) -> None:
    rows = clients * minimum + spare
    numbers = skewed_clients(rows, clients, skew, seed, minimum=minimum)
    sizes = np.bincount(numbers, minlength=clients)
    assert sizes.sum() == numbers.size == rows
    assert sizes.min() >= minimum
    assert np.all(np.diff(sizes) <= 1), "larger clients come first, up to the rounding"
    np.testing.assert_array_equal(numbers, skewed_clients(rows, clients, skew, seed, minimum=minimum))


def test_skewed_sizes_follow_the_power_law() -> None:
    sizes = np.bincount(skewed_clients(11_004, 4, 1.0, 0))
    weights = 1 / np.arange(1, 5)
    np.testing.assert_allclose(sizes - 1, 11_000 * weights / weights.sum(), atol=1)
    assert np.ptp(np.bincount(skewed_clients(1_000, 4, 0.0, 0))) == 0


@pytest.mark.parametrize("options", [{"skew": -0.1}, {"skew": np.nan}, {"skew": 1.0, "minimum": 0}])
def test_skewed_arguments_out_of_range(options: dict[str, float]) -> None:
    with pytest.raises(InputError):
        skewed_clients(10, 2, seed=0, **options)  # type: ignore[arg-type]


def test_a_column_names_the_clients() -> None:
    numbers, names = clients_by_column(pd.Series(["York", "Bath", "York", "Ely"], index=[9, 8, 7, 6]))
    assert names == ("Bath", "Ely", "York")
    assert numbers.tolist() == [2, 0, 2, 1]
    assert [rows.tolist() for rows in rows_of_clients(numbers)] == [[1], [3], [0, 2]]


@pytest.mark.parametrize("column", [["York", None], [1.0, np.nan]])
def test_rows_without_a_client(column: list[object]) -> None:
    with pytest.raises(DataError, match="1 of 2 rows have no value"):
        clients_by_column(pd.Series(column))


def test_no_rows_at_all() -> None:
    with pytest.raises(DataError, match="no rows"):
        clients_by_column([])
    with pytest.raises(DataError, match="no rows"):
        dirichlet_clients([], 1, 1.0, 0)


def test_more_clients_than_rows() -> None:
    message = "2 rows cannot be shared between 3 clients so that each gets at least 1; use fewer clients"
    for share in (lambda: iid_clients(2, 3, 0), lambda: dirichlet_clients([0, 1], 3, 1.0, 0)):
        with pytest.raises(DataError, match=message):
            share()
    with pytest.raises(DataError, match="at least 4"):
        skewed_clients(11, 3, 1.0, 0, minimum=4)
    with pytest.raises(InputError, match="clients is 0"):
        iid_clients(2, 0, 0)


def test_a_client_with_no_rows_is_refused() -> None:
    with pytest.raises(DataError, match=r"2 of 4 clients have no rows \(number 1, 3\)"):
        rows_of_clients([0, 2, 0], clients=4)
    with pytest.raises(DataError, match=r"1 of 3 clients have no rows \(number 1\)"):
        rows_of_clients([0, 2, 0])


@pytest.mark.parametrize("numbers", [[0.0, 1.0], [], [[0, 1]], [-1, 0], [0, 5]])
def test_numbers_that_are_none(numbers: list[float]) -> None:
    with pytest.raises(DataError, match="client numbers"):
        rows_of_clients(numbers, clients=2)
