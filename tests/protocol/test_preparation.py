"""Enrolling, aligning and agreeing: exchanges between roles, whatever is faulty under way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.faults import Faults, FaultyInProcess

from evenhand.errors import DataError, ProtocolError
from evenhand.protocol.agree import AgreeClient, AgreeServer, LabelParty, LabelServer
from evenhand.protocol.align import COMMON_ROWS, AlignParty, AlignServer, id_sums
from evenhand.protocol.enrol import ACCEPTED, EnrolParty, EnrolServer
from evenhand.protocol.job import Job
from evenhand.protocol.messages import Message, as_bytes
from evenhand.protocol.roles import Role
from evenhand.protocol.terms import VerticalTerms
from evenhand.protocol.versions import own_version
from evenhand.runtime.inprocess import InProcess
from evenhand.training.vertical_sources import align

VERSION = as_bytes(own_version().to_text())
TERMS = VerticalTerms(Job("subspace"), {"bank": "active", "shop": "passive"}, 0)
FAULTS = Faults(drop=0.2, duplicate=0.2, delay=1.0, crashes={"server": [1, 2], "shop": [0, 1]}, save_every=1, seed=3)


def run(roles: Sequence[Role], faulty: bool = False) -> InProcess:
    runtime = FaultyInProcess(roles, FAULTS) if faulty else InProcess(roles)
    runtime.run()
    return runtime


def enrol(terms: VerticalTerms = TERMS, faulty: bool = False, **party: Any) -> tuple[EnrolServer, list[EnrolParty]]:
    parties = [EnrolParty(name, VerticalTerms, **(party if name == "shop" else {})) for name in ("bank", "shop")]
    server = EnrolServer(terms)
    run([server, *parties], faulty)
    return server, parties


@pytest.mark.parametrize("faulty", [False, True])
def test_terms_are_offered_and_accepted(faulty: bool) -> None:
    server, parties = enrol(faulty=faulty)
    assert server.refusals == {}
    assert [party.terms for party in parties] == [TERMS, TERMS]
    assert [party.outcome for party in parties] == ["", ""]


@pytest.mark.parametrize("faulty", [False, True])
def test_whoever_refuses_says_why_and_all_are_told(faulty: bool) -> None:
    server, parties = enrol(faulty=faulty, policy=lambda terms: f"{terms.job.solver} is not for us")
    assert server.refusals == {"shop": "subspace is not for us"}
    assert {party.outcome for party in parties} == {"shop: subspace is not for us"}


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        (VerticalTerms(Job("fairvfl"), TERMS.participants, 7), "job: the offered terms differ"),
        (VerticalTerms(TERMS.job, {"bank": "active", "shop": "active"}, 7), "participants: the offered terms differ"),
    ],
)
def test_a_draft_that_became_something_else_is_refused(terms: VerticalTerms, reason: str) -> None:
    assert enrol(VerticalTerms(TERMS.job, TERMS.participants, 7, {"sex": ("f", "m")}), draft=TERMS)[0].refusals == {}
    assert enrol(terms, draft=TERMS)[0].refusals["shop"].startswith(reason)


def test_an_acceptance_of_other_terms_is_refused() -> None:
    server = EnrolServer(TERMS)
    server.start()
    for wrong in (
        ACCEPTED.message("shop", "server", terms=as_bytes("0" * 32), version=VERSION),
        ACCEPTED.message("telecom", "server", terms=as_bytes(TERMS.digest), version=VERSION),
    ):
        with pytest.raises(ProtocolError):
            server.receive(wrong)
    server.receive(ACCEPTED.message("shop", "server", terms=as_bytes(TERMS.digest), version=VERSION))
    with pytest.raises(ProtocolError):
        server.receive(ACCEPTED.message("shop", "server", terms=as_bytes(TERMS.digest), version=VERSION))


# -- aligning


def aligned(ids: Mapping[str, pd.Index | int], how: Any = "equal", faulty: bool = False) -> tuple[AlignServer, Any]:
    parties = {name: AlignParty(name, one) for name, one in ids.items()}
    server = AlignServer(list(ids), how)
    run([server, *parties.values()], faulty)
    return server, parties


@pytest.mark.slow
@given(st.lists(st.sets(st.text(max_size=3)), min_size=1, max_size=4), st.booleans())
def test_the_common_rows_are_those_of_align(groups: list[set[str]], faulty: bool) -> None:
    ids = {f"p{k}": pd.Index(sorted(group, reverse=k % 2 == 1), dtype=object) for k, group in enumerate(groups)}
    server, parties = aligned(ids, "inner", faulty)
    common = set.intersection(*groups)
    assert bool(server.problem) == (not common)
    if common:
        expected = align([pd.DataFrame(index=index) for index in ids.values()], list(ids), how="inner")[0].index
        for name, party in parties.items():
            assert list(ids[name][party.places]) == list(expected)


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=30, unique=True), st.data())
def test_any_order_is_brought_to_the_first(ids: list[int], data: st.DataObject) -> None:
    other = pd.Index(data.draw(st.permutations(ids)))
    server, parties = aligned({"bank": pd.Index(ids), "shop": other})
    assert server.problem == ""
    assert list(other[parties["shop"].places]) == ids


def test_who_lacks_whose_rows_is_told_to_their_owner() -> None:
    server, parties = aligned({"bank": pd.Index([1, 2, 3, 4]), "shop": pd.Index([4, 3, 5])})
    assert server.problem == "shop lacks 2 of bank's 4 ids; bank lacks 1 of shop's 3 ids"
    assert list(parties["bank"].unmatched) == [0, 1]
    assert list(parties["shop"].unmatched) == [2]
    assert parties["bank"].places is None


@pytest.mark.parametrize(
    ("ids", "problem"),
    [
        ({"bank": pd.Index([1, 2]), "shop": pd.Index(["1", "2"])}, "different kinds"),
        ({"bank": pd.Index(["a", "a"]), "shop": pd.Index(["a", "b"])}, "bank has an id more than once"),
        ({"bank": pd.Index(["a"]), "shop": pd.Index(["b"])}, "shop lacks 1 of bank's 1 ids"),
        ({"bank": pd.Index(["a", "b"]), "shop": 3}, "shop has 3 rows, bank has 2"),
        ({"bank": 2, "shop": 3}, "shop has 3 rows, bank has 2"),
    ],
)
def test_rows_that_cannot_be_aligned(ids: dict[str, pd.Index | int], problem: str) -> None:
    assert problem in aligned(ids)[0].problem


def test_tables_without_ids_are_taken_as_they_come() -> None:
    server, parties = aligned({"bank": 3, "shop": pd.Index(["c", "a", "b"]), "telecom": pd.Index(["a", "b", "c"])})
    assert server.problem == ""
    assert list(parties["bank"].places) == [0, 1, 2]
    assert list(parties["telecom"].places) == [2, 0, 1]


def test_rows_that_the_party_does_not_have_are_refused() -> None:
    party = AlignParty("bank", pd.Index([1, 2]))
    for places in ([2], [-1]):
        with pytest.raises(ProtocolError, match="is told of others"):
            party.receive(COMMON_ROWS.message("server", "bank", places=places))
    assert not party.done


@pytest.mark.parametrize(
    "ids",
    [
        pd.Index([1, 2, 2**63 - 1]),
        pd.Index([0.5, -1.0, 3.0]),
        pd.Index(["a", "", "ä"]),
        pd.Index([b"a", b"", b"c"]),
        pd.CategoricalIndex(["a", "b", "c"]),
        pd.date_range("2020-01-01", periods=3),
        pd.Index(pd.date_range("2020-01-01", periods=3).date),
    ],
)
def test_sums_tell_ids_apart(ids: pd.Index) -> None:
    kind, sums = id_sums(ids)
    assert sums.shape == (3, 2)
    assert len({tuple(row) for row in sums.tolist()}) == 3
    assert (id_sums(ids[::-1])[0], id_sums(ids[::-1])[1].tolist()) == (kind, sums[::-1].tolist())


@pytest.mark.parametrize("ids", [pd.Index([1, "a"]), pd.interval_range(0, 3), pd.Index([2**70, 1])])
def test_ids_of_no_kind_are_refused(ids: pd.Index) -> None:
    with pytest.raises(DataError, match="the ids are"):
        id_sums(ids)


# -- agreeing


@pytest.mark.parametrize("faulty", [False, True])
def test_summaries_are_put_together_in_the_order_of_clients(faulty: bool) -> None:
    def combine(summaries: Mapping[str, Any]) -> dict[str, Any]:
        return {"order": list(summaries), "rows": sum(one["rows"] for one in summaries.values())}

    clients = [AgreeClient(name, {"rows": rows}) for name, rows in (("shop", 3), ("bank", 4))]
    server = AgreeServer(["shop", "bank"], combine)
    run([server, *clients], faulty)
    assert server.agreed == {"order": ["shop", "bank"], "rows": 7}
    assert [client.agreed for client in clients] == [server.agreed, server.agreed]


@pytest.mark.parametrize("text", [b"\xff", b"[1]", b"{", b"[" * 100_000])
def test_a_summary_that_is_no_table_is_refused_and_changes_nothing(text: bytes) -> None:
    server = AgreeServer(["bank"], dict)
    before = server.snapshot()
    with pytest.raises(ProtocolError):
        server.receive(Message("bank", "server", "summary", {"summary": np.frombuffer(text, dtype=np.uint8)}))
    assert server.snapshot() == before


@pytest.mark.parametrize("faulty", [False, True])
def test_further_active_parties_get_labels_and_groups(faulty: bool) -> None:
    labels, codes = np.array([1.0, -1.0, 1.0]), {"sex": np.array([0, 1, 1]), "race": np.array([2, 0, 1])}
    party = LabelParty("shop", 3, ["sex", "race"])
    run([LabelServer(["shop"], labels, codes), party], faulty)
    np.testing.assert_array_equal(party.labels, labels)
    assert {name: list(code) for name, code in party.codes.items()} == {"sex": [0, 1, 1], "race": [2, 0, 1]}
