"""What follows from the terms of a VFB² run for all its roles."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from evenhand.arrays import Integers
from evenhand.privacy.fixed_point import largest
from evenhand.privacy.masks import mask_states
from evenhand.protocol.terms import VerticalTerms
from evenhand.vertical.messages import message_sizes
from evenhand.vertical.vfb2.interleaver import FRACTION_BITS
from evenhand.vertical.vfb2.options import METHODS, VFB2Options
from evenhand.vertical.vfb2.sampler import RowSampler
from evenhand.vertical.vfb2.staleness import most_stale

OF_NORMS, OF_SCORES = 0, 1
"""What a full pass sums."""
LAST, LAST_AT_KEPT = 1, 2
"""How a run ends: where the parties are, or at the weights that they were last told to keep."""
NORM_BITS = 36
"""Fraction bits of squared norms, which may be far larger than scores and need not be as exact."""
ROWS_IN_A_MESSAGE = 64
"""Where the job leaves it open: enough that a step is more arithmetic than message."""


class Setting:
    """The parties and the rules of a run.

    Parameters
    ----------
    rows_in_a_message
        Rows in a step where the job leaves it open.

    Attributes
    ----------
    names
        All parties.
    active
        The places of those that hold labels: the dominators.
    on_rates
        Whether a constraint is on a rate rather than on the loss.
    seed
        Of the rows that are drawn, and of masks in simulation.
    sizes
        Of messages.
    """

    def __init__(self, terms: VerticalTerms, rows_in_a_message: int = ROWS_IN_A_MESSAGE) -> None:
        self.names = terms.names
        self.active = tuple(terms.names.index(name) for name in terms.active)
        self.rule, self._only_active_move = METHODS[terms.job.solver]
        self.on_rates = any(row.measure.name != "loss" for row in terms.constraint_rows)
        self.options = VFB2Options(**terms.job.options).resolved(self.rule, self.on_rates)
        self.batch_size = self.options.rows_in_a_message(otherwise=rows_in_a_message)
        self.seed = terms.job.seed
        self.rows = terms.n_rows
        delays = most_stale(self.options, len(self.active)) + 1
        self.sizes = {**message_sizes(terms), "batch": self.batch_size, "delays": delays}

    def moves(self, place: int) -> bool:
        """Whether a party's block is updated: in AFSVRG-VP only those of parties that hold labels are."""
        return place in self.active or not self._only_active_move

    @cached_property
    def order(self) -> Integers:
        """Rows in the order in which epochs go through them, a run at a time: parties store them so."""
        return RowSampler.with_chances(np.full(self.rows, 1.0 / self.rows), self.options.sampling, self.seed).order

    @cached_property
    def largest_score(self) -> float:
        """Beyond which a partial score cannot be masked."""
        return largest(len(self.names), FRACTION_BITS)

    def mask_state(self, place: int) -> Any:
        """Where a party's stream of masks starts; the same as in the compiled loop."""
        return mask_states(self.seed, len(self.names) + 1)[place : place + 1].copy()
