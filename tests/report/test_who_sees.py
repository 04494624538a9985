"""Every message of a rehearsed run goes where its schema says, and levels of protection do what it says."""

from __future__ import annotations

from typing import Any

import pytest

from evenhand.jobs.auditing import plan_of
from evenhand.jobs.horizontal.file import parse_horizontal
from evenhand.jobs.vertical.file import parse_vertical
from evenhand.solvers.announcing import schemas, vocabularies
from evenhand.solvers.registry import HORIZONTAL, VERTICAL

FAIR = {"kind": "equal-opportunity", "epsilon": 0.1}


def planned(content: dict[str, Any]) -> set[tuple[str, str, str]]:
    parse = parse_horizontal if content["job"].get("split") == "horizontal" else parse_vertical
    return {(one.kind, one.sender, one.receiver) for one in plan_of(parse(content, "job"))}


def vertical(solver: str) -> dict[str, Any]:
    holder = {"name": "bank", "role": "active", "label": {"column": "y"}, "sensitive": ["s"]}
    parties = [{"table": "a.csv", "id": "i", **one} for one in (holder, {"name": "shop"}, {"name": "social"})]
    job: dict[str, Any] = {"solver": solver, "protection": "none"}
    return {"job": job if solver == "fedbcd" else job | {"constraint": FAIR}, "party": parties}


def horizontal(solver: str, protection: str) -> dict[str, Any]:
    job: dict[str, Any] = {"split": "horizontal", "solver": solver, "protection": protection}
    job |= {"constraint": FAIR} if HORIZONTAL[solver].takes_constraints else {}
    job |= {"model": "trees"} if solver == "trees" else {}
    data = {"label": {"column": "y"}, "sensitive": ["s"]}
    return {"job": job, "data": data, "client": [{"name": name, "table": "a.csv"} for name in ("a", "b", "c")]}


PARTIES = {"bank": "active", "shop": "passive", "social": "passive"}
CLIENTS = dict.fromkeys(("a", "b", "c"), "client")


def assert_goes_as_said(kind: str, sender: str, receiver: str, participants: dict[str, str]) -> None:
    direction = schemas()[kind].direction
    assert direction.allows(sender, receiver, participants), f"{kind} went from {sender} to {receiver}, not {direction}"


@pytest.mark.parametrize("solver", [name for name in VERTICAL if not name.startswith("vfb2") or name == "vfb2-sgd"])
def test_messages_of_vertical_solvers_go_as_the_table_says(solver: str) -> None:
    for kind, sender, receiver in planned(vertical(solver)):
        assert_goes_as_said(kind, sender, receiver, PARTIES)


@pytest.mark.parametrize("solver", HORIZONTAL)
def test_messages_of_horizontal_solvers_go_as_the_table_says(solver: str) -> None:
    for kind, sender, receiver in planned(horizontal(solver, "none")):
        assert_goes_as_said(kind, sender, receiver, CLIENTS)


@pytest.mark.parametrize("solver", ["sqp", "prox-al", "trees", "fairfed"])
def test_under_masks_no_answer_that_adds_up_leaves_a_client_as_it_is(solver: str) -> None:
    pytest.importorskip("nacl")
    adding = {one.kind for vocabulary in vocabularies() for one in vocabulary if one.adds is not None}
    sent = planned(horizontal(solver, "masked"))
    assert not {kind for kind, _, _ in sent} & adding
    for kind, sender, receiver in sent:
        assert_goes_as_said(kind, sender, receiver, CLIENTS)


def test_levels_say_what_becomes_of_a_message() -> None:
    kinds = schemas()
    assert kinds["update"].at_level("masked") == "the server learns the sum over clients"
    assert kinds["update"].at_level("dealer") == "–"
    assert kinds["derivative"].at_level("masked") == kinds["derivative"].at_level("none") == "as it is"
    for level in ("dealer", "encrypted"):
        assert kinds["derivative"].at_level(level) == (
            "not sent to passive parties: each gets a share of X_kᵀν, which is uniform"
        )
    for level in ("masked", "dealer", "encrypted"):
        assert kinds["direction"].at_level(level) == "the server learns the sum over passive parties"
    assert kinds["direction"].at_level("none") == "as it is"
    assert kinds["derivative"].with_label_privacy() == "from randomised responses"
    assert kinds["ids"].with_label_privacy() == "as it is"
