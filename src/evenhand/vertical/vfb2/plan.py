"""What all roles of a VFB² run derive from its terms."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from evenhand.arrays import Integers
from evenhand.privacy.fixed_point import largest
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.problem import message_sizes
from evenhand.vertical.vfb2.kernels import FRACTION_BITS
from evenhand.vertical.vfb2.options import METHODS, VFB2
from evenhand.vertical.vfb2.sampler import RowSampler

OF_NORMS, OF_SCORES = 0, 1
"""What a full pass sums."""
LAST, LAST_AT_KEPT = 1, 2
"""How a run ends: at the present weights, or at the weights that parties were last told to keep."""
NORM_BITS = 36
"""Fraction bits of squared norms. These may be far larger than scores, and need less precision."""


class VFB2Plan:
    """The parties and the rules of a run.

    Parameters
    ----------
    in_one_loop
        Whether one compiled loop does the work of all parties.

    Attributes
    ----------
    names
        All parties.
    active
        Indices of the parties that hold labels: the dominators.
    on_rates
        Whether a constraint bounds a rate rather than the loss.
    seed
        Seed of the drawn rows.
    sizes
        Sizes of the arrays in messages.
    """

    def __init__(self, terms: VerticalTerms, *, in_one_loop: bool = False) -> None:
        self.names = terms.names
        self.active = tuple(terms.names.index(name) for name in terms.active)
        self.rule, self._only_active_move = METHODS[terms.job.solver]
        self.on_rates = any(row.measure.name != "loss" for row in terms.inequalities)
        given = terms.job.settings(VFB2)
        self.options = given.resolved(self.rule, self.on_rates, len(self.active), in_one_loop=in_one_loop)
        self.batch_size = int(self.options.batch_size)
        self.seed = terms.job.seed
        self.rows = terms.n_rows
        self.sizes = {**message_sizes(terms), "batch": self.batch_size, "delays": self.options.delay + 1}

    def moves(self, place: int) -> bool:
        """Return whether a party's block is updated. AFSVRG-VP updates only those of parties that hold labels."""
        return place in self.active or not self._only_active_move

    @cached_property
    def order(self) -> Integers:
        """Rows in the order in which epochs go through them, a run at a time. Parties store them in this order."""
        return RowSampler.with_chances(np.full(self.rows, 1.0 / self.rows), self.options.sampling, self.seed).order

    @cached_property
    def largest_score(self) -> float:
        """Largest partial score that can be masked."""
        return largest(len(self.names), FRACTION_BITS)
