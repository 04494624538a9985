"""Steps of VFB²'s theorems: closed forms, and conditions written once more from the paper."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evenhand.errors import InputError
from evenhand_reproductions.vfb2.theorem_steps import NoStepError, ProblemConstants, theorem_step

EASY = ProblemConstants(
    smoothness=1.0,
    convexity=0.5,
    gradient_bound=1e-6,
    rows=1000,
    parties=2,
    read_delay=0,
    message_delay=0,
    visit=1,
)


def test_closed_forms() -> None:
    # Theorem 1: ε (μ / (96 G L²))^(1/3) with μ / (96 G L²) = 1/8; Theorem 4: ε / (L q G).
    of = replace(EASY, smoothness=2.0, convexity=1.0, gradient_bound=8.0 / 384.0)
    assert theorem_step(1, of, accuracy=0.1) == pytest.approx(0.05)
    assert theorem_step(4, of, accuracy=0.1) == pytest.approx(0.1 / (2.0 * 2 * 8.0 / 384.0))


@pytest.mark.parametrize(("theorem", "most", "rows"), [(5, 8, 20), (6, 20, 180)])
def test_the_longest_m0_that_the_delay_allows(theorem: int, most: int, rows: int) -> None:
    of = replace(EASY, read_delay=3, smoothness=2.0)
    m0 = theorem_step(theorem, of) * 2.0 * 1000

    def allowed(value: float) -> bool:
        limit = min(1000.0**2 / (rows * value**2), (1 - most * value) / (40 * value**2))
        return value < 1 / most and limit > 9.0

    assert allowed(m0)
    assert not allowed(1.02 * m0)


def test_conditions_of_theorem_2_hold_at_the_step_and_not_beyond() -> None:
    accuracy = 0.1
    step = theorem_step(2, EASY, accuracy)

    def allowed(g: float) -> bool:
        c = (g + 1.0) * g**2 / 2
        rho = g * 0.5 / 2 - 16 * c / 0.5
        second = rho > 0 and 8 * c / (rho * 0.5) <= 0.05
        return second and g**2 * (28 * c + 5 * g) * 36e-6 / (rho * (1 - 2 * g**2)) <= accuracy / 8

    assert allowed(step)
    assert not allowed(1.05 * step)


def test_theorem_3_has_no_step_where_the_limit_of_its_condition_is_too_large() -> None:
    """2304 τ G L² / (μ³ (1 − ρ)) with 1 − ρ < 1/n."""
    accuracy = 0.1
    bound = 2304 * 1e-6 / 0.5**3 * 1000
    assert bound > accuracy / 2
    with pytest.raises(NoStepError):
        theorem_step(3, EASY, accuracy)
    quiet = replace(EASY, gradient_bound=1e-6 * accuracy / 4 / bound)
    step = theorem_step(3, quiet, accuracy)
    assert 0 < step < 1e-3


def test_problems_that_a_theorem_is_not_about() -> None:
    with pytest.raises(InputError, match="strongly convex"):
        theorem_step(2, replace(EASY, convexity=0.0))
    with pytest.raises(InputError, match="choose 1 to 6"):
        theorem_step(7, EASY)
