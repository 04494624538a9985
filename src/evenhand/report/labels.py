"""Place labels of points in a column, so that none lies on another."""

from __future__ import annotations

from collections.abc import Sequence


def spread(heights: Sequence[float], step: float, low: float, high: float) -> list[float]:
    """Return a height for each label, near its point and at least a step from the others, from low to high.

    If they do not fit, the lowest ones stand below `low`.
    """
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    levels: list[float] = []
    for place in order:
        levels.append(max(heights[place], levels[-1] + step if levels else low))
    most = high
    for number in reversed(range(len(levels))):
        levels[number] = most = min(levels[number], most)
        most -= step
    found = [0.0] * len(heights)
    for place, level in zip(order, levels, strict=True):
        found[place] = level
    return found
