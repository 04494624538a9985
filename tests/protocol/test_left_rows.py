"""Alignment that keeps all rows of the label holder, plainly and privately, and what is said about presence."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.faults import Faults, FaultyInProcess

from evenhand.auditing.views import listening
from evenhand.errors import DataError, ProtocolError, RunError
from evenhand.privacy.hidden_align import ENOUGH, HOLDERS_IDS, TWICE_BLINDED_IDS
from evenhand.privacy.private_align import PrivateAlignParty, PrivateAlignServer
from evenhand.protocol.align import COMMON_ROWS, AlignParty
from evenhand.protocol.presence import HELD_OUT, PRESENCE, PresenceParty, PresenceServer
from evenhand.runtime.inprocess import InProcess
from evenhand.training.vertical_sources import Alignment, common_rows

FAULTS = Faults(drop=0.2, duplicate=0.2, delay=1.0, crashes={"server": [1, 2], "shop": [0, 1]}, save_every=1, seed=3)


def _aligned(ids: dict[str, pd.Index], how: str, faulty: bool = False) -> dict[str, np.ndarray]:
    alignment = Alignment(list(ids), "bank", how)  # type: ignore[arg-type]
    server, parties = alignment.server(), [alignment.party(name, index) for name, index in ids.items()]
    (FaultyInProcess([server, *parties], FAULTS) if faulty else InProcess([server, *parties])).run()
    if server.problem:
        raise DataError(server.problem)
    return {party.name: party.places for party in parties}  # type: ignore[misc]


@pytest.mark.parametrize(
    ("how", "faulty"),
    [("left", False), ("left", True), ("private-left", False), ("hidden-left", False), ("hidden-left", True)],
)
def test_all_rows_of_the_holder_are_kept_and_others_are_found_by_id(how: str, faulty: bool) -> None:
    ids = {
        "shop": pd.Index(["d", "x", "b", "a"]),
        "bank": pd.Index(["a", "b", "c", "d"]),
        "phone": pd.Index(["c", "y", "z"]),
    }
    places = _aligned(ids, how, faulty)
    people = ids["bank"][places["bank"]]
    assert sorted(people) == ["a", "b", "c", "d"]
    if how == "left":
        assert list(people) == list(ids["bank"])
    for name, where in places.items():
        for person, place in zip(people, where, strict=True):
            assert (ids[name][place] if place >= 0 else None) == (person if person in ids[name] else None)


@given(st.lists(st.sets(st.integers(0, 8)), min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_whatever_the_overlap_and_the_order(sets: list[set[int]], random: object) -> None:
    ids = {}
    for name, people in zip(("shop", "bank", "phone", "clinic"), sets, strict=False):
        order = sorted(people)
        random.shuffle(order)  # type: ignore[attr-defined]
        ids[name] = pd.Index(order, dtype=np.int64)
    if any(not set(ids["bank"]) & set(index) for index in ids.values()):
        with pytest.raises(DataError):
            common_rows(ids, "left", "bank")
        return
    found = common_rows(ids, "left", "bank")
    everywhere = all(set(index) == set(ids["bank"]) for index in ids.values())
    people = list(ids["bank"][found["bank"]])
    assert people == list(ids["shop" if everywhere else "bank"]), "the order of equal ids is that of ids = equal"
    for name, places in found.items():
        assert [int(ids[name][one]) if one >= 0 else None for one in places] == [
            one if one in ids[name] else None for one in people
        ]


def test_repeated_ids_are_refused() -> None:
    for who in ("bank", "shop"):
        ids = {"bank": pd.Index(["a", "b"]), "shop": pd.Index(["a", "b"])}
        ids[who] = pd.Index(["a", "b", "a"])
        with pytest.raises(DataError, match=f"{who} has an id more than once"):
            _aligned(ids, "left")
        with pytest.raises(DataError, match=f"{who} has an id more than once"):
            _aligned(ids, "private-left")


@pytest.mark.parametrize("how", ["left", "private-left"])
def test_a_party_without_any_of_the_rows_ends_the_run(how: str) -> None:
    ids = {"bank": pd.Index(["a", "b"]), "shop": pd.Index(["a", "z"]), "phone": pd.Index(["x", "y"])}
    with pytest.raises(DataError, match="no id of bank is at phone"):
        _aligned(ids, how)
    few = Alignment(["bank", "shop"], "bank", how, least=2)  # type: ignore[arg-type]
    server, parties = few.server(), [few.party(name, ids[name]) for name in ("bank", "shop")]
    InProcess([server, *parties]).run()
    assert server.problem == "fewer than 2 ids of bank are at shop"
    assert all(party.places is None for party in parties)


def test_a_holder_without_ids_is_refused() -> None:
    with pytest.raises(DataError, match="bank has no ids by which rows of shop can be found"):
        common_rows({"bank": 3, "shop": pd.Index(["a", "b", "c"])}, "left", "bank")
    assert list(common_rows({"bank": 3, "shop": 3}, "left", "bank")["shop"]) == [0, 1, 2]


def test_places_of_rows_that_a_party_lacks_are_taken_only_if_the_job_says_so() -> None:
    places = np.array([1, -1, 0])
    message = COMMON_ROWS.message("server", "shop", places=places)
    lacking = AlignParty("shop", pd.Index(["a", "b"]), lacking=True)
    lacking.receive(message)
    assert np.array_equal(lacking.places, places)  # type: ignore[arg-type]
    private = PrivateAlignParty("shop", pd.Index(["a", "b"]), ["bank", "shop"], lacking=True)
    private.receive(message)
    assert list(private.places >= 0) == [True, False, True]  # type: ignore[operator]
    for party in (AlignParty("shop", pd.Index(["a", "b"])), PrivateAlignParty("shop", pd.Index(["a"]), ["b", "shop"])):
        with pytest.raises(ProtocolError, match="is told of others"):
            party.receive(message)
    # The label holder has all its rows, and no row of it may be left out.
    alignment = Alignment(["bank", "shop"], "bank", "left")
    with pytest.raises(ProtocolError, match="told to take 1 of its 2 rows"):
        alignment.party("bank", pd.Index(["a", "b"])).receive(COMMON_ROWS.message("server", "bank", places=[0]))
    for wrong in ([-2], [0, 0], [2]):
        with pytest.raises(ProtocolError):
            AlignParty("shop", pd.Index(["a", "b"]), lacking=True).receive(
                COMMON_ROWS.message("server", "shop", places=wrong)
            )


def test_the_holder_learns_who_has_its_rows_and_others_what_is_held_out() -> None:
    held = {"shop": np.array([True, False, True]), "phone": np.array([False, False, True])}
    test = np.array([False, True, False])
    server = PresenceServer("bank", list(held), held, test)
    bank, shop, phone = PresenceParty("bank", 3, ["shop", "phone"]), PresenceParty("shop", 3), PresenceParty("phone", 3)
    FaultyInProcess([server, bank, shop, phone], FAULTS).run()
    assert all(np.array_equal(bank.held[name], bits) for name, bits in held.items())
    assert np.array_equal(shop.held_out, test)
    assert np.array_equal(phone.held_out, test)
    with pytest.raises(ProtocolError, match="takes no 'presence'"):
        PresenceParty("shop", 3).receive(PRESENCE.message("server", "shop", held=np.zeros((0, 3))))
    with pytest.raises(ProtocolError):
        PresenceParty("shop", 3).receive(HELD_OUT.message("server", "shop", held_out=np.zeros(4)))


def test_points_that_the_private_server_sees_are_all_it_answers_by() -> None:
    """The label holder's rows come in the order of their points, which says nothing of the table's order."""
    ids = {"bank": pd.Index([f"p{number}" for number in range(40)]), "shop": pd.Index(["p3", "p30", "p7"])}
    server = PrivateAlignServer(["bank", "shop"], holder="bank", left=True)
    InProcess([server, *(Alignment(["bank", "shop"], "bank", "private-left").party(*one) for one in ids.items())]).run()
    assert len(server.places["bank"]) == 40
    assert int((server.places["shop"] >= 0).sum()) == 3


IDS = {"bank": pd.Index(["a", "b", "c"]), "shop": pd.Index(["c", "x"]), "phone": pd.Index(["a", "b", "z"])}


def test_hidden_presence_is_in_no_message_to_the_server_or_the_holder() -> None:
    """Whoever is at the shop, the server and the holder get the same messages but for points of another key."""
    seen = {}
    for people in (["c", "x"], ["a", "y"]):
        alignment = Alignment(list(IDS), "bank", "hidden-left")
        server = alignment.server()
        parties = [alignment.party(name, ids) for name, ids in (IDS | {"shop": pd.Index(people)}).items()]
        transcript = listening()
        InProcess([server, *parties], transcript=transcript).run()
        assert transcript.messages
        told = [one for one in transcript.messages if one.receiver in ("server", "bank")]
        seen[people[0]] = [
            (one.sender, one.kind, {key: value.tolist() for key, value in one.body.items() if key != "points"})
            for one in sorted(told, key=lambda one: (one.sender, one.kind))
        ]
        assert not hasattr(server, "places")
        holders = next(party for party in parties if party.name == "bank")
        assert sorted(vars(holders)["_answered"]) == ["phone", "shop"]
    assert seen["c"] == seen["a"]


def test_hidden_presence_with_too_few_rows_ends_without_counts() -> None:
    alignment = Alignment(list(IDS), "bank", "hidden-left", least=2)
    server, parties = alignment.server(), [alignment.party(*one) for one in IDS.items()]
    InProcess([server, *parties]).run()
    assert server.problem == "fewer than 2 ids of bank are at shop"
    assert all(party.places is None and party.problem == server.problem for party in parties)


def test_lists_of_guesses_and_foreign_answers_are_refused_under_hidden_presence() -> None:
    alignment = Alignment(["bank", "shop"], "bank", "hidden-left", most_ids=2)
    with pytest.raises(RunError, match=r"shop has 3 ids, and bank compares its 3 with at most 2"):
        InProcess(
            [
                alignment.server(),
                *(alignment.party(*one) for one in (IDS | {"shop": IDS["phone"]}).items() if one[0] != "phone"),
            ]
        ).run()
    alignment = Alignment(["bank", "shop"], "bank", "hidden-left")
    shop, bank = alignment.party("shop", IDS["shop"]), alignment.party("bank", IDS["bank"])
    own = next(iter(shop.start()))
    back = next(iter(bank.receive(own)))
    twice = np.repeat(back["points"][:1], 2, axis=0)
    with pytest.raises(ProtocolError, match="returns other ids"):
        shop.receive(TWICE_BLINDED_IDS.message("bank", "shop", points=back["points"][:1]))
    with pytest.raises(ProtocolError, match="takes no 'own-blinded-ids'"):
        bank.receive(own)
    shop.receive(TWICE_BLINDED_IDS.message("bank", "shop", points=twice))
    holders = next(one for one in bank.start() if one.kind == HOLDERS_IDS.kind)
    with pytest.raises(ProtocolError, match="returns an id of shop twice"):
        shop.receive(holders)
    guess = np.repeat(holders["points"][:1], 1000, axis=0)
    shop = alignment.party("shop", IDS["shop"])
    shop.receive(HOLDERS_IDS.message("bank", "shop", points=guess))
    with pytest.raises(ProtocolError, match="one of its ids more than once"):
        shop.receive(TWICE_BLINDED_IDS.message("bank", "shop", points=back["points"]))
    with pytest.raises(ProtocolError, match="takes no 'enough-rows'"):
        alignment.server().receive(ENOUGH.message("phone", "server", enough=1))
