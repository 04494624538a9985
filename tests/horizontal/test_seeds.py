"""Random numbers of a client: those that everybody can work out, and those that nobody else can."""

from __future__ import annotations

from typing import Any

import numpy as np

from evenhand.horizontal.problem import generator, secret_generator

MODEL = np.arange(4.0)


def drawn(secret: bytes | None, round_number: int = 1, *asked: Any, seed: int = 7, name: str = "north") -> Any:
    return secret_generator(secret, seed, name, round_number, "protection", *asked).standard_normal(3)


def test_without_a_secret_they_follow_from_the_seed() -> None:
    np.testing.assert_array_equal(drawn(None, 1, MODEL), generator(7, "north", 1, "protection").standard_normal(3))


def test_with_a_secret_they_repeat_for_the_same_question_and_for_no_other() -> None:
    first = drawn(b"a" * 32, 1, MODEL)
    np.testing.assert_array_equal(drawn(b"a" * 32, 1, MODEL.copy()), first)
    # The seed is everybody's, and does nothing.
    np.testing.assert_array_equal(drawn(b"a" * 32, 1, MODEL, seed=8), first)
    others = [
        drawn(b"b" * 32, 1, MODEL),
        drawn(b"a" * 32, 2, MODEL),
        drawn(b"a" * 32, 1, MODEL, name="south"),
        # Two answers of one round with the same noise would tell what their difference is.
        drawn(b"a" * 32, 1, MODEL + 1e-9),
        drawn(b"a" * 32, 1, MODEL[:2], MODEL[2:]),
        drawn(None, 1, MODEL),
    ]
    assert not any(np.array_equal(other, first) for other in others)
