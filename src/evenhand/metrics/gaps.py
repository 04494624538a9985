"""Gaps between groups: in an estimate, in many resamples at once, and in the population.

Group means are arrays (..., groups), one for each attribute that is compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from evenhand.arrays import Array
from evenhand.constraints.confidence import critical_value
from evenhand.errors import InputError


def widest(means: list[Array]) -> Array:
    """Return the largest gap between any two groups, over all entries of ``means``."""
    return cast(Array, np.max([np.ptp(mean, axis=-1) for mean in means], axis=0))


def at_least(means: list[Array], estimates: list[Array]) -> Array:
    """Return the estimated gap less the largest gap of the groups' deviations from the estimate, at least 0."""
    deviations = [mean - estimate for mean, estimate in zip(means, estimates, strict=True)]
    return np.maximum(widest(estimates) - widest(deviations), 0)


@dataclass(frozen=True)
class Gap:
    """A gap, with its bound in the population.

    Attributes
    ----------
    estimate
        The largest difference of two groups' means.
    standard_error
        Of that difference.
    bound
        No difference in the population is larger, at the requested confidence.
    attribute, groups
        Places of the attribute and of the two groups with the largest difference.
    comparisons
        Pairs of groups that were compared, over all attributes.
    """

    estimate: float
    standard_error: float
    bound: float
    attribute: int
    groups: tuple[int, int]
    comparisons: int


def worst_gap(means: list[Array], variances: list[Array], level: float, most: float = np.inf) -> Gap:
    """Return the widest gap with its standard error, and max (|difference| + z·SE) over all pairs of groups.

    z is for all pairs at once, so the bound holds for the worst pair in the population.

    Parameters
    ----------
    means, variances
        (groups,) for each attribute: the groups' means, and the variances of these means.
    most
        Largest possible gap: 1 for rates.
    """
    places, differences, errors = [], [], []
    for attribute, (mean, variance) in enumerate(zip(means, variances, strict=True)):
        one, other = np.triu_indices(len(mean), 1)
        places += [(attribute, (int(a), int(b))) for a, b in zip(one, other, strict=True)]
        differences.append(np.abs(mean[one] - mean[other]))
        errors.append(np.sqrt(variance[one] + variance[other]))
    difference, error = np.concatenate(differences), np.concatenate(errors)
    z = critical_value(level, len(places))
    worst = int(np.argmax(difference))
    bound = min(float(np.max(difference + z * error)), most)
    return Gap(float(difference[worst]), float(error[worst]), bound, *places[worst], len(places))


def check_resampling(level: float, repeats: int) -> None:
    critical_value(level, 1)
    if repeats < 1:
        raise InputError(f"repeats is {repeats}: give at least 1 (1000 is usual)")
