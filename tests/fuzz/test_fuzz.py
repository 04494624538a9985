"""A slice of `make fuzz`, by seeds and by hypothesis, which likes corners and makes what fails small."""

from __future__ import annotations

import random
import warnings
from contextlib import suppress

import pytest
from fuzz.run import TARGETS, fed, tally
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenhand.errors import EvenhandError, EvenhandWarning

LITTLE = settings(max_examples=15, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("name", TARGETS)
def test_any_input_is_taken_or_refused_with_an_error_of_ours(name: str) -> None:
    outcomes = [fed(name, f"{name} {seed}") for seed in range(100)]
    # Inputs that are all refused, or all taken, would show little.
    assert 3 < outcomes.count("accepted") < 97
    assert set(outcomes) == {"accepted", "refused"}, [outcome for outcome in outcomes if len(outcome) > 10][:1]


@pytest.mark.parametrize("name", TARGETS)
@LITTLE
@given(rng=st.randoms(use_true_random=False))
def test_corners(name: str, rng: random.Random) -> None:
    # Where an input is made of what is too large even for that, the refusal comes earlier.
    with warnings.catch_warnings(), suppress(EvenhandError):
        warnings.simplefilter("ignore", EvenhandWarning)
        TARGETS[name](rng)


def test_other_errors_are_counted_and_told_with_their_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def target(rng: random.Random) -> bool:
        seed = rng.randrange(4)
        if seed == 0:
            raise KeyError("a traceback")
        return seed > 1

    monkeypatch.setitem(TARGETS, "made up", target)
    counts, told = tally("made up", range(100))
    assert set(counts) == {"accepted", "refused", "other errors"}
    assert sum(counts.values()) == 100
    assert "KeyError: 'a traceback'" in told[0]
    assert "made up" in told[0]
