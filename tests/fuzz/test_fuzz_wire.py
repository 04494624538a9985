"""A slice of the sweep over what decodes bytes from elsewhere; the soak has 10⁵ inputs each."""

from __future__ import annotations

import random

import pytest
from fuzz.wire import TARGETS


def sweep(name: str, count: int) -> int:
    return sum(TARGETS[name](random.Random(f"{name} {seed}")) for seed in range(count))


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_are_taken_or_refused_with_an_error_of_ours(name: str) -> None:
    # Inputs that are all refused, or all taken, would show little.
    assert 100 < sweep(name, 1500) < 1400


@pytest.mark.soak
@pytest.mark.parametrize("name", TARGETS)
def test_a_hundred_thousand_inputs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    taken = sweep(name, 100_000)
    with capsys.disabled():
        print(f"\n{name}: 100,000 inputs, {taken:,} taken")
