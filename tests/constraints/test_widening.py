"""The search for wider bounds ends near the widest ones that hold."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand.constraints.proving import ShiftedBounds
from evenhand.constraints.slices import Bounds
from evenhand.constraints.widening import STEPS, UNBOUNDED, WidthSearch


@pytest.mark.parametrize("widest", [0.4, 1.0, 3.0, 12.0])
def test_the_search_ends_near_the_widest_bounds_that_hold(widest: float) -> None:
    search, tried = WidthSearch(excess=0.5, objective=9.0), []
    while search.open:
        width = min(search.width, 20.0)
        tried.append(width)
        search.take(max(width - widest, 0.0), 1.0 / width, width)
    assert len(tried) <= STEPS
    held = [width for width in tried if width <= widest]
    assert max(held) > 0.85 * widest
    assert search.excess == 0.0
    assert search.objective == 1.0 / max(held)


def test_it_ends_at_once_if_rates_need_no_bounds_and_where_nothing_is_left_to_gain() -> None:
    search = WidthSearch(excess=0.0, objective=2.0, gain=0.1)
    search.take(0.0, 1.0, 5.0)
    assert not search.open
    search = WidthSearch(excess=0.0, objective=2.0, gain=0.1)
    search.take(1.0, 1.95, 5.0)
    assert not search.open


def test_a_solution_under_wider_bounds_is_feasible_for_the_shifted_problem() -> None:
    bounds = Bounds(np.array([-0.1, -0.1, -np.inf]), np.array([0.1, 0.1, 0.3]))
    shifted = ShiftedBounds(bounds, np.array([True, True, True]), np.full(3, 1e-3))
    wide = shifted.widened(4.0)
    np.testing.assert_allclose(wide.upper, [0.4, 0.4, 1.2])
    np.testing.assert_allclose(wide.lower, [-0.4, -0.4, -np.inf])
    smooth, exact = np.array([0.4, -0.3, 0.9]), np.array([0.08, 0.02, 0.25])
    assert shifted.width(smooth) == pytest.approx(4.0)
    assert shifted.width(np.zeros(3)) <= 1.0 < UNBOUNDED
    multipliers = np.array([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert shifted.loose(exact, multipliers)
    assert not shifted.loose(np.array([0.095, 0.0, 0.0]), multipliers)
    shifted.hold(exact, smooth)
    assert shifted.bounds.violation(smooth) <= 1e-12
