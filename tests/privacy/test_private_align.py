"""Private alignment: the rows that all have, and nothing that lets anybody try out ids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from support.contracts import assert_malformed_is_refused, assert_same_state
from support.faults import Faults, FaultyInProcess

from evenhand.errors import DataError, ProtocolError
from evenhand.privacy.private_align import PrivateAlignParty, PrivateAlignServer, points_of, times
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import Role
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.inprocess import InProcess
from evenhand.training.vertical_sources import rows_by_id

IDS = {
    "bank": pd.Index([f"c{number}" for number in range(12)]),
    "shop": pd.Index([f"c{number}" for number in range(15, 3, -1)]),
    "phone": pd.Index([f"c{number}" for number in (5, 99, 7, 4, 11, 10, 55)]),
}


def roles(ids: dict[str, pd.Index], holder: str = "bank") -> tuple[PrivateAlignServer, list[PrivateAlignParty]]:
    ring = list(ids)
    parties = [PrivateAlignParty(name, one, ring, holds_labels=name == holder) for name, one in ids.items()]
    return PrivateAlignServer(ring, holder=holder), parties


def found(ids: dict[str, pd.Index], parties: Sequence[PrivateAlignParty]) -> list[list[str]]:
    return [list(ids[party.name][party.places]) for party in parties]


@pytest.mark.parametrize("names", [("bank",), ("bank", "shop"), ("bank", "shop", "phone"), ("phone", "bank", "shop")])
@pytest.mark.parametrize("faulty", [False, True])
def test_all_find_the_common_rows_in_one_order(names: tuple[str, ...], faulty: bool) -> None:
    ids = {name: IDS[name] for name in names}
    server, parties = roles(ids)
    everybody: list[Role] = [server, *parties]
    faults = Faults(drop=0.2, duplicate=0.2, corrupt=0.1, delay=0.5, crashes={"server": [0, 1], "bank": [0, 1]}, seed=2)
    (FaultyInProcess(everybody, faults) if faulty else InProcess(everybody)).run()
    orders = found(ids, parties)
    expected = set.intersection(*(set(one) for one in ids.values()))
    assert all(order == orders[0] for order in orders)
    assert set(orders[0]) == expected
    assert len(orders[0]) == len(expected)
    # The server finds the label holder's rows by id in a copy of its table, whatever the order of the copy.
    copy = IDS["bank"][np.random.default_rng(len(names)).permutation(len(IDS["bank"]))]
    assert list(copy[rows_by_id(copy, server.sent_by("bank"), "bank")]) == orders[0]


@pytest.mark.parametrize("kind", ["integers", "moments", "text"])
def test_ids_of_every_kind(kind: str) -> None:
    numbers = {"bank": [1, 2, 3, 10], "shop": [10, 3, 8]}
    make = {
        "integers": pd.Index,
        "moments": lambda days: pd.to_datetime(days, unit="D"),
        "text": lambda values: pd.Index([str(one) for one in values]),
    }
    ids = {name: make[kind](values) for name, values in numbers.items()}
    server, parties = roles(ids)
    InProcess([server, *parties]).run()
    orders = [[numbers[party.name][place] for place in party.places] for party in parties]
    assert orders[0] == orders[1]
    assert sorted(orders[0]) == [3, 10]


def test_no_message_holds_what_an_id_alone_gives() -> None:
    """Whoever guesses an id cannot find its unblinded point, nor a point blinded by keys of its own."""
    server, parties = roles(IDS)
    transcript = Transcript(keep_messages=True)
    InProcess([server, *parties], transcript=transcript).run()
    sent = {point.tobytes() for one in transcript.messages or [] if "points" in one.body for point in one["points"]}
    for name, ids in IDS.items():
        assert not sent & {point.tobytes() for point in points_of(ids)}
        for other in parties:
            # What another can make of a guess with its own key is nowhere to be found either.
            guesses = ids.difference(IDS[other.name])
            assert other.name == name or not sent & {one.tobytes() for one in times(other._key, points_of(guesses))}


def test_two_runs_have_other_keys_and_the_same_order_of_rows() -> None:
    one, other = (roles(IDS)[1][1] for _ in range(2))
    assert one.start()[0]["points"].tobytes() != other.start()[0]["points"].tobytes()
    orders = []
    for _ in range(3):
        server, parties = roles(IDS)
        InProcess([server, *parties]).run()
        orders.append(found(IDS, parties)[1])
    assert orders[0] == orders[1] == orders[2]
    # Integers are in the order of their values, which a party knows of its own.
    numbers = {"bank": pd.Index([7, 3, 5, 1]), "shop": pd.Index([5, 7, 1, 9])}
    server, parties = roles(numbers)
    InProcess([server, *parties]).run()
    assert found(numbers, parties)[1] == [1, 5, 7]


def test_nothing_in_common_and_ids_twice_are_told() -> None:
    ids = {"bank": pd.Index(["a", "b"]), "shop": pd.Index(["c"])}
    server, parties = roles(ids)
    InProcess([server, *parties]).run()
    assert server.problem == "no id is common to all"
    assert [party.problem for party in parties] == ["no id is common to all"] * 2
    with pytest.raises(DataError, match="shop has an id more than once"):
        PrivateAlignParty("shop", pd.Index(["a", "a"]), ["bank", "shop"])


def test_malformed_and_out_of_turn_messages_are_refused() -> None:
    server, parties = roles(IDS)
    transcript = Transcript(keep_messages=True)
    InProcess([server, *parties], transcript=transcript).run()
    fresh_server, fresh = roles(IDS)
    everybody: dict[str, Role] = {"server": fresh_server, **{party.name: party for party in fresh}}
    messages = transcript.messages or []
    assert_malformed_is_refused(everybody, messages)
    passed = next(one for one in messages if one.kind == "blinded-ids" and one.receiver == "shop")
    shop = everybody["shop"]
    for points in (np.zeros((2, 32)), np.full((2, 32), 255)):
        before = shop.snapshot()
        with pytest.raises(ProtocolError, match="not points of the group"):
            shop.receive(Message("bank", "shop", "blinded-ids", {**passed.body, "points": points.astype(np.uint8)}))
        assert_same_state(shop.snapshot(), before)
    shop.receive(passed)
    with pytest.raises(ProtocolError, match="out of turn"):
        shop.receive(passed)
    for first, then in (("labelled-ids", "fully-blinded-ids"), ("fully-blinded-ids", "labelled-ids")):
        fresh_server, _ = roles(IDS)
        told = {one.kind: one for one in messages if one.kind == "labelled-ids" or one.sender == "phone"}
        fresh_server.receive(told[first])
        fewer = {name: array[:-1] if array.ndim == 2 else array for name, array in told[then].body.items()}
        before = fresh_server.snapshot()
        with pytest.raises(ProtocolError, match="different numbers of ids"):
            fresh_server.receive(Message(told[then].sender, "server", then, fewer))
        assert_same_state(fresh_server.snapshot(), before)
