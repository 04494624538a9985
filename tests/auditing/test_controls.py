"""Every attack beats chance by far where it must succeed, and does nothing against answers of other people."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evenhand.auditing.attacks import HORIZONTAL, VERTICAL, Attack, outcome
from evenhand.auditing.cipher_attacks import by_noise
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


def test_covered_answers_have_no_noise_to_read() -> None:
    """The control of this attack is the same answer with nothing below the product."""
    rng = np.random.default_rng(0)
    column = np.rint(rng.standard_normal(1000) * 2.0**17)
    found = by_noise(column.astype(np.int64).view(np.uint64), rng)
    assert abs(np.corrcoef(found, column)[0, 1]) < 0.2
