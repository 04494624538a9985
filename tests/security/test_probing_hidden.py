"""A server that probes single rows behind hidden derivatives: the party's random audit with the dealer refuses it."""

from __future__ import annotations

import numpy as np
import pytest
from vertical.contract import CLOCK

from evenhand.errors import ProtocolError
from evenhand.privacy.fixed_products import ProductGrid
from evenhand.privacy.pairwise import stream
from evenhand.protocol.job import Job
from evenhand.protocol.roles import Role
from evenhand.runtime.inprocess import InProcess
from evenhand.vertical.problem import PartyColumns
from evenhand.vertical.protected import dealing
from evenhand.vertical.protected.flatness import BLOCKS, FEW, MANY, ONE, answer_of, block_sums, is_chosen
from evenhand.vertical.protected.sharing_server import SharedServer
from evenhand_reproductions.in_memory import Holdings

pytest.importorskip("nacl")
ROWS = 600


def roles() -> list[Role]:
    rng = np.random.default_rng(1)
    tables = [rng.standard_normal((ROWS, 2)) for _ in range(3)]
    parties = [PartyColumns(f"p{place}", table, place == 0) for place, table in enumerate(tables)]
    labels = np.where(sum(table[:, 0] for table in tables) + rng.logistic(size=ROWS) > 0, 1.0, -1.0)
    server, others = Holdings.of(
        Job(solver="subspace", protection="dealer", max_rounds=4, tol=0.0), parties, labels
    ).roles()
    return [server, *others]


@pytest.mark.parametrize("huge", [1.0, 2.0**30])
def test_a_hidden_probe_of_one_row_is_refused_where_the_coin_falls(
    huge: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dealing, "is_chosen", lambda secret, number: True)
    monkeypatch.setattr(dealing, "LEAST_AUDITED", 1)
    one_hot = np.zeros(ROWS)
    one_hot[7] = huge
    proceed = SharedServer.proceed

    def probing(self: SharedServer) -> object:
        if self._waiting is not None:
            body = {**self._waiting.body, "nu": one_hot}
            self._waiting = type(self._waiting)(self._waiting.sender, self._waiting.receiver, self._waiting.kind, body)
        return proceed(self)

    monkeypatch.setattr(SharedServer, "proceed", probing)
    with pytest.raises(ProtocolError, match="concentrate on a few rows"):
        InProcess(roles(), CLOCK).run()


def test_honest_derivatives_pass_every_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dealing, "is_chosen", lambda secret, number: True)
    monkeypatch.setattr(dealing, "LEAST_AUDITED", 1)
    runtime = InProcess(roles(), CLOCK)
    runtime.run()
    kinds = [entry.kind for entry in runtime.transcript]
    assert kinds.count("audit") == kinds.count("audited") >= 4


def test_the_coin_chooses_about_one_exchange_of_eight() -> None:
    chosen = [is_chosen(bytes([seed]) * 32, number) for seed in range(10) for number in range(100)]
    assert 90 < sum(chosen) < 160


def test_small_tables_are_not_audited_because_sums_would_tell_the_dealer_labels() -> None:
    runtime = InProcess(roles(), CLOCK)
    runtime.run()
    assert "audit" not in {entry.kind for entry in runtime.transcript}


@pytest.mark.parametrize(("rows", "told"), [(1, {ONE}), (2, {ONE, FEW}), (4, {ONE, FEW}), (600, {MANY})])
def test_answers_tell_few_rows_from_many(rows: int, told: set[int]) -> None:
    """The dealer sees sums of ν by block only; its words and the party's add up to them."""
    found = set()
    for seed in range(50):
        rng = np.random.default_rng(seed)
        nu = np.zeros(ROWS)
        nu[rng.choice(ROWS, rows, replace=False)] = rng.choice([-0.5, 0.5], rows) / ROWS
        words = ProductGrid(ROWS).nu(nu, 0)
        hidden, key = stream(bytes([seed]) * 32, "b", ROWS), bytes([seed]) * 32
        sums = block_sums(words - hidden, key) + block_sums(hidden, key)
        np.testing.assert_array_equal(sums, block_sums(words, key))
        found.add(answer_of(sums, ROWS))
    assert found <= told


def test_a_probe_that_hides_among_numbers_beyond_the_columns_is_found() -> None:
    """Multiples of 2⁴⁷ change no product with columns that are multiples of 2¹⁷, and would flatten the sums."""
    nu = np.zeros(ROWS)
    nu[3] = 0.5 / ROWS
    for seed in range(20):
        key = bytes([seed]) * 32
        padded = ProductGrid(ROWS).nu(nu, 0) + (stream(key, "padding", ROWS) << np.uint64(47))
        assert answer_of(block_sums(padded, key), ROWS) == ONE


def test_block_sums_are_the_sums_of_all_rows_with_their_signs() -> None:
    drawn = stream(bytes(32), "blocks", 700)
    words = np.arange(700, dtype=np.uint64)
    signs = np.where(drawn >> np.uint64(63), 1, -1)
    place = (drawn & np.uint64(BLOCKS - 1)).astype(np.int64)
    expected = [int((signs * np.arange(700))[place == block].sum()) for block in range(BLOCKS)]
    assert block_sums(words, bytes(32)).view(np.int64).tolist() == expected
