"""What gaps between groups some numbers of rows can prove, before anything is trained.

A gap of rates is proven to be within ε if |gap| + z·SE ≤ ε. With no gap at all what is left is z·SE, which depends on
the rates: least where nobody is decided wrongly, most where half of the people are.
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
    """Of rates of groups with these numbers of rows, for all pairs of groups at once; infinite where one has none."""
    pairs = list(combinations(counts, 2))
    z = critical_value(level, len(pairs))
    found = []
    for share in (0.0, 0.5):
        variances = [rate_variance([share * one for one in pair], pair).sum() for pair in pairs]
        found.append(z * float(np.sqrt(max(variances, default=np.inf))))
    return Provable(*found)
