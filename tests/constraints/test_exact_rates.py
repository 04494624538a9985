"""Bounds moved by the difference of exact and smooth rates: tighter and wider, damped, and what counts as right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.constraints.proving import ShiftedBounds
from evenhand.constraints.slices import Bounds
from evenhand.errors import InputError

ONE = np.array([True])


def shifted(epsilon: float = 0.1, grain: float = 0.001) -> ShiftedBounds:
    return ShiftedBounds(Bounds([-epsilon], [epsilon]), ONE, np.array([grain]))


def test_margins_are_a_twentieth_or_one_person_and_never_more_than_half() -> None:
    assert shifted().margin[0] == pytest.approx(0.005)
    assert shifted(grain=0.02).margin[0] == pytest.approx(0.02)
    assert shifted(grain=0.5).margin[0] == pytest.approx(0.05)
    one_sided = ShiftedBounds(Bounds([-np.inf], [0.2]), ONE, np.array([0.0]))
    assert one_sided.margin[0] == pytest.approx(0.01)
    assert one_sided.bounds.lower[0] == -np.inf
    assert one_sided.bounds.upper[0] == pytest.approx(0.19)


@given(gap=st.floats(-0.3, 0.3), start=st.floats(-0.3, 0.3))
def test_a_steady_difference_is_made_up_for_in_either_direction(gap: float, start: float) -> None:
    """A model that sits on the moved bound ends with its exact rate a margin inside the one asked for."""
    found = shifted()
    found.shift[:] = start
    for _ in range(40):
        smooth = found.bounds.upper
        exact = smooth + gap
        found.follow(exact, smooth)
    exact = found.bounds.upper + gap
    assert exact[0] == pytest.approx(0.095, abs=1e-9)
    assert found.excess(exact) == 0.0
    assert found.right(exact, np.array([[1.0], [0.0]]))


def test_an_answer_that_overshoots_is_followed_more_slowly() -> None:
    """The exact rate answers a change of the smooth one four times over, which full pace would never settle."""
    found = shifted()
    for _ in range(60):
        smooth = found.bounds.upper
        found.follow(4.0 * smooth, smooth)
    assert 4.0 * found.bounds.upper[0] == pytest.approx(0.095, abs=1e-6)
    assert found.pace[0] < 0.6
    found.begin()
    assert found.pace[0] == 0.6


def test_what_holds_and_uses_its_room_is_right() -> None:
    found, pushed, free = shifted(), np.array([[1.0], [0.0]]), np.zeros((2, 1))
    for value, with_push, without in ((0.097, True, True), (0.101, False, False), (0.08, False, True)):
        exact = np.array([value])
        assert found.right(exact, pushed) is with_push
        assert found.right(exact, free) is without
        assert found.excess(exact) == pytest.approx(max(value - 0.1, 0.0))


def test_losses_and_equalities_keep_their_bounds() -> None:
    asked = Bounds([-0.1, 0.0, -0.1], [0.1, 0.0, 0.1])
    found = ShiftedBounds(asked, np.array([False, True, True]), np.full(3, 0.001))
    found.follow(np.full(3, 0.4), np.full(3, 0.1))
    np.testing.assert_allclose(found.bounds.upper, [0.1, 0.0, 0.1 - 0.005 - 0.18])
    np.testing.assert_array_equal(found.meant(np.full(3, 0.4), np.full(3, 0.1)), [0.1, 0.1, 0.4])
    assert found.excess(np.array([9.0, 9.0, 0.1])) == 0.0
    smooth_only = ShiftedBounds(asked, np.ones(3, dtype=bool), np.zeros(3), exact_rates=False)
    assert not smooth_only.exact.any()
    with pytest.raises(InputError, match="exact_rates needs an epsilon above zero"):
        ShiftedBounds(asked, np.ones(3, dtype=bool), np.zeros(3), exact_rates=True)
