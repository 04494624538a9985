"""Compute which gaps between groups can be proven from given numbers of rows, before training.

A gap of rates is proven to be within ε if |gap| + z·SE ≤ ε. Without a gap z·SE is left, which depends on the
rates: it is smallest for rates of zero, and largest for rates of one half.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from evenhand.constraints.confidence import LEVEL, critical_value, rate_variance


class Provable(NamedTuple):
    """The smallest gap that can be proven: with rates of zero at best, and of one half at worst."""

    best: float
    worst: float


def smallest_gap(counts: Sequence[int], level: float = LEVEL) -> Provable:
    """Return the smallest provable gap between groups of these sizes, for all pairs; infinite if one is empty."""
    pairs = list(combinations(counts, 2))
    z = critical_value(level, len(pairs))
    found = []
    for share in (0.0, 0.5):
        variances = [rate_variance([share * one for one in pair], pair).sum() for pair in pairs]
        found.append(z * float(np.sqrt(max(variances, default=np.inf))))
    return Provable(*found)
