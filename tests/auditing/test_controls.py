"""Every attack beats chance by far where it must succeed, and does nothing against answers of other people."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evenhand.auditing.attacks import HORIZONTAL, VERTICAL, Attack, outcome
from evenhand.auditing.controls import Trial
from evenhand.errors import RunError


@pytest.mark.parametrize("attack", [*VERTICAL, *HORIZONTAL], ids=lambda one: one.name)
def test_an_attack_succeeds_on_its_control_and_fails_on_permuted_answers(attack: Attack) -> None:
    found = outcome(attack)
    assert found.value >= 0.5 * (1.0 + found.floor)
    assert abs(found.permuted - found.floor) < 0.1


def test_an_attack_that_fails_on_its_control_is_not_used() -> None:
    dull = replace(VERTICAL[0], name="dull", control=lambda: Trial(0.55, 0.5, 0.5))
    with pytest.raises(RunError, match=r"'dull' reaches 0\.55 on its control"):
        outcome(dull)
