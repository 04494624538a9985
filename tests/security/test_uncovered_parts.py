"""What opens under masks has something of every passive party in it, also where a party has few columns.

The server's view is the sums that it opens. A sum that the columns of one passive party explain without rest is that
party's own part: the others have added nothing.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from evenhand.arrays import Array
from evenhand.errors import DataError
from evenhand.models import preconditioner
from evenhand.protocol.job import Job
from evenhand.protocol.messages import Message
from evenhand.vertical.problem import PartyColumns
from evenhand.vertical.protected.guarding import LEAST_ROWS
from evenhand.vertical.subspace import bands
from evenhand.vertical.subspace.server import SubspaceServer
from evenhand_reproductions.in_memory import train_vertical

ROWS = 400
UNCOVERED = 1e-7
"""Share of a sum's variance that the columns of one party leave, up to rounding."""
FAMILIES = {
    "a column and four": (1, 4),
    "two parties of one column": (1, 1),
    "the same column twice, and four": (-2, 4),
    "two columns twice each, and three": (-22, 3),
    "a column, four and six": (1, 4, 6),
}


def columns_of(width: int, factors: Array, rng: np.random.Generator) -> Array:
    copies = {-2: (1, 2), -22: (2, 2)}
    different, times = copies.get(width, (width, 1))
    own = factors @ rng.normal(size=(2, different)) + 0.7 * rng.normal(size=(len(factors), different))
    return np.repeat(own / own.std(axis=0), times, axis=1)


def opened(
    monkeypatch: pytest.MonkeyPatch, widths: tuple[int, ...], seed: int, *, classes: int = 2, **settings: Any
) -> tuple[list[Array], list[Array]]:
    """Train, and return what the server opened in each round, and the columns of each passive party."""
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(ROWS, 2))
    tables = [columns_of(width, factors, rng) for width in (2, *widths)]
    scores = np.hstack(tables) @ rng.normal(size=(sum(one.shape[1] for one in tables), classes - 1))
    labels = np.where(scores[:, 0] + rng.logistic(size=ROWS) > 0, 1.0, -1.0)
    if classes > 2:
        labels = np.argmax(np.c_[np.zeros(ROWS), scores] + rng.gumbel(size=(ROWS, classes)), axis=1).astype(float)
        settings["classes"] = tuple("abc"[:classes])
    found: list[Array] = []
    take = SubspaceServer._take_direction

    def recorded(server: SubspaceServer, place: int, message: Message) -> None:
        found.append(message["scores"].copy())
        take(server, place, message)

    monkeypatch.setattr(SubspaceServer, "_take_direction", recorded)
    job = Job("subspace", **{"protection": "masked", "max_rounds": 12, **settings})
    parties = [
        PartyColumns(name, one, active=name == "bank")
        for name, one in zip(("bank", "phone", "shop", "work"), tables, strict=False)
    ]
    train_vertical(job, parties, labels)
    return found, tables[1:]


def left(sums: Array, columns: Array) -> Array:
    """Return the share of each sum's variance that a party's columns do not explain."""
    sums, columns = (one - one.mean(axis=-1, keepdims=True) for one in (np.atleast_2d(sums), columns.T))
    basis = np.linalg.svd(columns, full_matrices=False)
    span = basis[2][basis[1] > 1e-9 * basis[1][0]]
    total = (sums**2).sum(axis=1)
    # A sum without any part is one that nobody adds to.
    rest = ((sums - sums @ span.T @ span) ** 2).sum(axis=1)
    return np.where(total > 0.0, rest / np.maximum(total, 1e-300), 1.0)


def uncovered(rounds: list[Array], tables: list[Array]) -> int:
    return int(sum((left(sums, one) < UNCOVERED).sum() for sums in rounds for one in tables))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_opened_sum_has_something_of_every_party(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(4):
        rounds, tables = opened(monkeypatch, FAMILIES[family], seed)
        assert sum(map(len, rounds)) >= 4
        assert uncovered(rounds, tables) == 0


@pytest.mark.parametrize("protection", ["dealer", "encrypted"])
def test_nor_on_shared_weights(protection: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds, tables = opened(monkeypatch, (1, 4), 0, protection=protection)
    assert uncovered(rounds, tables) == 0


def test_nor_with_several_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(3):
        rounds, tables = opened(monkeypatch, (1, 4), seed, classes=3)
        assert uncovered(rounds, tables) == 0


def test_nor_where_columns_are_too_many_for_a_spectrum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preconditioner, "LARGEST_SPECTRUM", 3)
    rounds, tables = opened(monkeypatch, (4, 6), 0)
    assert uncovered(rounds, tables) == 0
    # The two halves of the columns are not proportional to each other.
    assert all(min(left(sums[0], sums[1:].T)) > 1e-6 for sums in rounds)


def test_without_filling_the_server_reads_the_part_of_one_party(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "LEAST_PART", 0.0)
    rounds, tables = opened(monkeypatch, (1, 4), 0)
    assert uncovered(rounds, tables) == len(rounds)


def test_in_one_round_several_columns_cover_both_sums_and_their_combinations(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(4):
        rounds, tables = opened(monkeypatch, (3, 4), seed)
        for sums in rounds:
            assert min(least_left(sums, one) for one in tables) > UNCOVERED


def test_a_single_column_covers_no_more_than_one_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some combination of two sums is the other party's alone. The server does not know which (docs/privacy.md)."""
    rounds, tables = opened(monkeypatch, (1, 4), 0)
    assert max(least_left(sums, tables[1]) for sums in rounds) < UNCOVERED
    one_part, tables = opened(monkeypatch, (1, 4), 0, options={"bands": 1})
    pairs = [np.concatenate(pair) for pair in itertools.pairwise(one_part)]
    assert max(least_left(sums, tables[1]) for sums in pairs) < UNCOVERED


def least_left(sums: Array, columns: Array) -> float:
    """Return the least share that a party's columns leave of any combination of sums."""
    sums = sums - sums.mean(axis=1, keepdims=True)
    basis = np.linalg.svd(sums / np.linalg.norm(sums, axis=1, keepdims=True), full_matrices=False)
    centred = columns - columns.mean(axis=0)
    explained = np.linalg.svd(basis[2] @ np.linalg.qr(centred)[0], compute_uv=False)[0]
    return float(1.0 - explained**2)


@pytest.mark.parametrize("protection", ["masked", "dealer"])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_a_party_whose_columns_cover_nothing_is_refused(
    protection: str, as_sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    labels = rng.choice([-1.0, 1.0], size=ROWS)
    rare = np.zeros((ROWS, 2))
    rare[: LEAST_ROWS - 1, 0] = 1.0
    for table, said in (
        (np.ones((ROWS, 2)), "all its rows are equal"),
        (rare, "its columns differ in 4 of 400 rows only"),
    ):
        parties = [
            PartyColumns("bank", rng.normal(size=(ROWS, 2)), active=True),
            PartyColumns("phone", sp.csr_array(table) if as_sparse else table),
            PartyColumns("shop", rng.normal(size=(ROWS, 3))),
        ]
        with pytest.raises(DataError, match=f"phone: {said}|phone: column 0 belongs to 4 rows"):
            train_vertical(Job("subspace", protection=protection), parties, labels)  # type: ignore[arg-type]
        train_vertical(Job("subspace", protection="none", max_rounds=2), parties, labels)


def test_shares_do_not_depend_on_the_order_of_rows_and_differ_by_round_and_row() -> None:
    rng = np.random.default_rng(0)
    scores, nu, order = np.stack([np.zeros(ROWS), rng.normal(size=ROWS)]), rng.normal(size=ROWS), rng.permutation(ROWS)

    def share(number: int = 1, **changed: Array) -> float:
        combined = bands.filling(changed.get("scores", scores), number, changed.get("nu", nu))
        assert combined is not None
        assert combined.sum(axis=0).tolist() == pytest.approx([1.0, 1.0])
        return float(combined[0, 1])

    assert share() == pytest.approx(share(scores=scores[:, order], nu=nu[order]), abs=1e-9)
    others = [share(number) for number in range(2, 40)]
    assert min(others) < 0.3
    assert max(others) > 0.7
    flipped = scores.copy()
    flipped[1, :3] *= -1.0
    assert abs(share(scores=flipped) - share()) > 1e-3
    assert abs(share(scores=scores[:, order]) - share()) > 1e-3
