"""Every attack beats chance by far where it must succeed, and does nothing against answers of other people."""

from __future__ import annotations

import pytest

from evenhand.auditing import controls
from evenhand.errors import RunError


@pytest.mark.parametrize("attack", controls.CONTROLS)
def test_an_attack_succeeds_on_its_control_and_fails_on_permuted_answers(attack: str) -> None:
    found = controls.outcome(attack)
    assert found.value >= 0.5 * (1.0 + found.floor)
    assert abs(found.permuted - found.floor) < 0.1


def test_an_attack_that_fails_on_its_control_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(controls.CONTROLS, "dull", lambda: controls.Trial(0.55, 0.5, 0.5))
    with pytest.raises(RunError, match=r"'dull' reaches 0\.55 on its control"):
        controls.outcome("dull")
