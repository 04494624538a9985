"""The steps of an epoch at one party of VFB²: the rows of each, and its progress."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from evenhand.arrays import Integers
from evenhand.errors import ProtocolError
from evenhand.vertical.vfb2.plan import VFB2Plan
from evenhand.vertical.vfb2.sampler import RowSampler

UNASKED, ASKED, ADDED, HEARD = 0, 1, 2, 3
"""Progress of a step at a party: not requested, requested, added to the sum, ϑ received."""


class EpochSteps:
    """The steps of the present epoch. Before the first epoch there are none.

    Attributes
    ----------
    batches
        Rows of each step as indices into the party's block. −1 fills up the last.
    rows
        The same by row number, as in messages.
    progress
        Progress of each step.
    """

    state_fields: ClassVar = {"progress": bytearray}

    def __init__(self, plan: VFB2Plan) -> None:
        self._plan = plan
        self._dominators = [plan.names[place] for place in plan.active]
        self.batches: Integers = np.zeros((0, plan.batch_size), dtype=np.int64)
        self.rows = self.batches
        # A bytearray, because access to single entries is several times as fast as in an array.
        self.progress = bytearray()

    def __len__(self) -> int:
        return len(self.progress)

    def begin(self, sampler: RowSampler, round_number: int) -> None:
        self._draw(sampler, round_number)
        self.progress = bytearray(len(self.batches))

    def _draw(self, sampler: RowSampler, round_number: int) -> None:
        size = self._plan.batch_size
        places = sampler.places(round_number, self._plan.options.share_of_rows(round_number))
        self.batches = np.full((-(-len(places) // size), size), -1, dtype=np.int64)
        self.batches.ravel()[: len(places)] = places
        self.rows = np.where(self.batches >= 0, self._plan.order[self.batches], -1)

    def known(self, step: int) -> int:
        """Return the step if the epoch has it; raise otherwise."""
        if not 0 <= step < len(self.progress):
            raise ProtocolError(f"this epoch has {len(self)} steps, but a message names step {step}; it is refused")
        return step

    def has_rows(self, step: int, rows: Integers) -> bool:
        """Return whether a step has these rows, given as in messages."""
        return rows.tobytes() == self.rows[step].tobytes()

    def dominator(self, step: int) -> int:
        """Return the dominator of a step, as an index among the active parties, which launch steps in turn."""
        return step % len(self._dominators)

    def dominator_name(self, step: int) -> str:
        return self._dominators[step % len(self._dominators)]

    def redraw(self, sampler: RowSampler | None, round_number: int) -> None:
        """Draw the rows of a restored state again. They follow from the round."""
        self.batches = np.zeros((0, self._plan.batch_size), dtype=np.int64)
        self.rows = self.batches
        if sampler is not None and round_number > 0:
            self._draw(sampler, round_number)
