"""Gaps between groups, of an estimate and of many resamples at once: arrays of group means, (..., groups)."""

from __future__ import annotations

from typing import cast

import numpy as np

from evenhand.arrays import Array
from evenhand.errors import InputError


def widest(means: list[Array]) -> Array:
    """Largest gap between any two groups, over all entries of ``means``."""
    return cast(Array, np.max([np.ptp(mean, axis=-1) for mean in means], axis=0))


def at_least(means: list[Array], estimates: list[Array]) -> Array:
    """The estimated gap less the largest gap between the groups' deviations from the estimate, floored at 0."""
    deviations = [mean - estimate for mean, estimate in zip(means, estimates, strict=True)]
    return np.maximum(widest(estimates) - widest(deviations), 0)


def check_resampling(level: float, repeats: int) -> None:
    if not 0 < level < 1:
        raise InputError(f"level is {level}: give a number between 0 and 1, such as 0.95")
    if repeats < 1:
        raise InputError(f"repeats is {repeats}: give at least 1 (1000 is usual)")
