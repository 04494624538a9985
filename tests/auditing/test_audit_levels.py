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
    found = best(levels[level], "shop", "label")
    assert (found.value.value == 1.0) == told
    assert (found.message == "gradient") == (not told)
    assert found.lift.value < 0.05 or told


def test_a_sum_tells_less_of_who_is_alike(levels: dict[str, Audit]) -> None:
    one, several = (
        best(levels[level], "bank (server)", "equal in every column of social") for level in ("none", "masked")
    )
    assert one.value.value == 1.0
    assert several.message == "sum of direction"
    assert several.value.value < 0.95


def test_rows_that_a_gradient_would_tell_are_counted(levels: dict[str, Audit]) -> None:
    found: Any = next(one for one in levels["dealer"].findings if one.attack == "leverage")
    assert found.value.value == 0.0
    assert not found.real
