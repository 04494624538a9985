"""A row that is named twice passes for two people: whoever is told which rows to take refuses it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from evenhand.errors import ProtocolError
from evenhand.protocol.align import COMMON_ROWS, AlignParty, id_sums
from evenhand.protocol.asking import ASKED, TAKEN, AskedParty
from evenhand.protocol.messages import as_bytes

IDS = pd.Index([f"p{number}" for number in range(50)])


def parties() -> list[Any]:
    found: list[Any] = [AlignParty("shop", IDS)]
    try:
        from evenhand.privacy.private_align import PrivateAlignParty
    except ImportError:
        return found
    return [*found, PrivateAlignParty("shop", IDS, ["bank", "shop"])]


@pytest.mark.parametrize(
    "places",
    [
        np.repeat([7, 11], [29, 1]),
        np.r_[np.repeat(7, 20), np.arange(10, 40)],
        np.r_[np.arange(40), 0],
    ],
    ids=["two people for thirty", "one person among others", "the first again"],
)
def test_repeated_rows_are_refused(places: Any) -> None:
    for party in parties():
        party.start()
        with pytest.raises(ProtocolError, match="different ones; the message is refused"):
            party.receive(COMMON_ROWS.message("server", "shop", places=places))
        assert party.places is None
        assert not party.done


def test_any_order_of_distinct_rows_is_taken() -> None:
    for party in parties():
        party.start()
        party.receive(COMMON_ROWS.message("server", "shop", places=np.arange(30)[::-1].copy()))
        assert len(set(party.places.tolist())) == 30


@pytest.mark.parametrize("ids", [IDS, len(IDS)])
def test_where_all_have_the_same_rows_none_may_be_left_out(ids: Any) -> None:
    """A server that chooses the rows of an "equal" job chooses whom to ask about."""
    party = AlignParty("shop", ids, every=True)
    party.start()
    with pytest.raises(ProtocolError, match="all parties have the same rows"):
        party.receive(COMMON_ROWS.message("server", "shop", places=np.arange(30)))
    party.receive(COMMON_ROWS.message("server", "shop", places=np.arange(50)))
    assert party.done


def test_people_are_scored_once_a_question() -> None:
    party = AskedParty("shop", IDS)
    kind, sums = id_sums(IDS[:10])
    question = ASKED.message("server", "shop", kind=as_bytes(kind), sums=sums)
    party.receive(question)
    with pytest.raises(ProtocolError, match="different ones"):
        party.receive(TAKEN.message("server", "shop", places=np.array([3, 3, 3])))
    with pytest.raises(ProtocolError, match="at this point"):
        party.receive(question)
