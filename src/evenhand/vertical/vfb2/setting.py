"""What all roles of a VFB² run know about it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from evenhand.arrays import Integers
from evenhand.privacy.masks import largest, mask_states
from evenhand.vertical.vfb2.interleaver import FRACTION_BITS
from evenhand.vertical.vfb2.options import Rule, VFB2Options
from evenhand.vertical.vfb2.sampler import RowSampler
from evenhand.vertical.vfb2.staleness import most_stale

OF_NORMS, OF_SCORES = 0, 1
"""What a look is at."""
NORM_BITS = 36
"""Fraction bits of squared norms, which may be far larger than scores and need not be as exact."""


@dataclass(frozen=True)
class Setting:
    """The parties and the rules of a run.

    Attributes
    ----------
    names
        All parties.
    active
        The places of those that hold labels: the dominators.
    seed
        Of visits, and of masks in simulation.
    """

    names: tuple[str, ...]
    active: tuple[int, ...]
    options: VFB2Options
    rule: Rule
    batch_size: int
    seed: int
    rows: int
    constraints: int

    @cached_property
    def sizes(self) -> dict[str, int]:
        delays = most_stale(self.options, len(self.active)) + 1
        return {"rows": self.rows, "constraints": self.constraints, "batch": self.batch_size, "delays": delays}

    @cached_property
    def order(self) -> Integers:
        """Rows in the order in which epochs go through them, a run at a time: parties store them so."""
        return RowSampler.with_chances(np.full(self.rows, 1.0 / self.rows), self.options.sampling, self.seed).order

    @cached_property
    def largest_score(self) -> float:
        """Beyond which a partial score cannot be masked."""
        return largest(len(self.names), FRACTION_BITS)

    def mask_state(self, place: int) -> Any:
        """Where a party's stream of masks starts; the same as where one loop plays all parties."""
        return mask_states(self.seed, len(self.names) + 1)[place : place + 1].copy()
