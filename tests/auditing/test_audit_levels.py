"""What an audit finds at each level: labels at `none`, sums at `masked`, and nothing beyond the floor without ν."""

from __future__ import annotations

from typing import Any

import pytest
from test_audit_vertical import audited, best

from evenhand.auditing.findings import Audit
from evenhand.privacy import Dealer

pytest.importorskip("nacl")
LEVELS: dict[str, Any] = {"none": "none", "masked": "masked", "dealer": Dealer(allow_experimental=True)}


@pytest.fixture(scope="module")
def levels() -> dict[str, Audit]:
    return {level: audited(solver="subspace", protection=given) for level, given in LEVELS.items()}


def test_every_level_is_named_in_what_it_found(levels: dict[str, Audit]) -> None:
    assert [found.plain()["protection"] for found in levels.values()] == list(LEVELS)


@pytest.mark.parametrize(("level", "told"), [("none", True), ("masked", True), ("dealer", False)])
def test_labels_are_told_as_long_as_nu_is_sent(levels: dict[str, Audit], level: str, told: bool) -> None:
    found = [one for one in levels[level].findings if one.who == "shop" and one.target == "each person's label"]
    assert any(one.value.value == 1.0 for one in found) == told
    assert all(one.lift.value < 0.05 for one in found) or told


def test_no_level_sends_a_gradient(levels: dict[str, Audit]) -> None:
    assert not any(one.message == "gradient" for found in levels.values() for one in found.findings)


@pytest.mark.parametrize("level", LEVELS)
def test_runs_are_repeated_without_a_person_at_every_level(levels: dict[str, Audit], level: str) -> None:
    assert any(one.attack == "differencing" for one in levels[level].findings)


def test_a_sum_tells_less_of_who_is_alike(levels: dict[str, Audit]) -> None:
    assert best(levels["none"], "bank (server)", "equal in every column of social").value.value == 1.0
    (several,) = (
        one
        for one in levels["masked"].by_participant()["bank (server)"]
        if "equal in every column of social" in one.target and one.message == "sum of direction"
    )
    assert several.value.value < 0.95


def test_the_closing_exchange_is_part_of_the_audit(levels: dict[str, Audit]) -> None:
    found = {one.message: one for one in levels["masked"].findings if one.attack == "distinct values"}
    assert best(levels["none"], "bank (server)", "equal in every column of social").value.value == 1.0
    # Its sum over passive parties is all that the server learns.
    assert found["sum of partial-scores"].value.value < 0.95
    assert "partial-scores" not in found


def test_masked_words_tell_nothing(levels: dict[str, Audit]) -> None:
    found = [one for level in ("masked", "dealer") for one in levels[level].findings if one.attack == "words"]
    assert found
    assert not any(one.real for one in found)
