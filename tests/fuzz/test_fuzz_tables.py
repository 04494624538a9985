"""A slice of the sweep over what reads tables; the whole of it is a command of its own."""

from __future__ import annotations

import random

import pytest
from fuzz.tables import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_any_input_is_taken_or_refused_with_an_error_of_ours(name: str) -> None:
    taken = [TARGETS[name](random.Random(f"{name} {seed}")) for seed in range(200)]
    # Inputs that are all refused, or all taken, would show little.
    assert 5 < sum(taken) < 195
