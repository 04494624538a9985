"""The table of who sees what is true of every message that a rehearsed run sends."""

from __future__ import annotations

from typing import Any

import pytest

from evenhand.horizontal.solvers import SOLVERS as HORIZONTAL
from evenhand.jobs.auditing import plan_of
from evenhand.jobs.horizontal.file import parse_horizontal
from evenhand.jobs.vertical.file import parse_vertical
from evenhand.report.disclosure import FAMILIES
from evenhand.report.who_sees import WAYS, at_levels
from evenhand.vertical.solvers import SOLVERS as VERTICAL

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


def assert_goes_as_said(kind: str, sender: str, receiver: str) -> None:
    begins, _, ends = WAYS[kind].partition(" → ")
    assert ("server" in begins) == (sender == "server"), (kind, sender)
    assert ("server" in ends) == (receiver == "server"), (kind, receiver)
    if "label holder" in begins or begins == "active parties":
        assert sender == "bank", kind
    if ends in ("passive parties", "active parties"):
        assert (receiver == "bank") == (ends == "active parties"), kind


@pytest.mark.parametrize("solver", [name for name in VERTICAL if not name.startswith("vfb2") or name == "vfb2-sgd"])
def test_messages_of_vertical_solvers_go_as_the_table_says(solver: str) -> None:
    for kind, sender, receiver in planned(vertical(solver)):
        assert_goes_as_said(kind, sender, receiver)


@pytest.mark.parametrize("solver", HORIZONTAL)
def test_messages_of_horizontal_solvers_go_as_the_table_says(solver: str) -> None:
    for kind, sender, receiver in planned(horizontal(solver, "none")):
        assert_goes_as_said(kind, sender, receiver)


@pytest.mark.parametrize("solver", ["sqp", "prox-al", "trees", "fairfed"])
def test_under_masks_no_answer_that_adds_up_leaves_a_client_as_it_is(solver: str) -> None:
    pytest.importorskip("nacl")
    adding = {one.kind for family in FAMILIES.values() for one in family if one.adds is not None}
    sent = planned(horizontal(solver, "masked"))
    assert not {kind for kind, _, _ in sent} & adding
    for kind, sender, receiver in sent:
        assert_goes_as_said(kind, sender, receiver)


def test_levels_say_what_becomes_of_a_message() -> None:
    kinds = {one.kind: one for family in FAMILIES.values() for one in family}
    assert at_levels(kinds["update"])[0] == "the server learns the sum over clients"
    assert at_levels(kinds["derivative"]) == ("as it is", "not sent to passive parties: each learns X_kᵀν")
    assert set(at_levels(kinds["direction"])) == {"the server learns the sum over passive parties"}
