"""The steps of an epoch, as one party of VFB² follows them: which rows each has, and how far it is."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from evenhand.arrays import Integers
from evenhand.errors import ProtocolError
from evenhand.vertical.vfb2.sampler import RowSampler
from evenhand.vertical.vfb2.setting import Setting

UNASKED, ASKED, ADDED, HEARD = 0, 1, 2, 3
"""How far a step is at a party: asked for its scores, has added them to the sum, has ϑ."""


class EpochSteps:
    """The steps of the present epoch; before the first there are none.

    Attributes
    ----------
    batches
        The rows of each step as places in the party's block; −1 fills up the last.
    rows
        The same by their own numbers, as messages have them.
    progress
        How far each step is.
    """

    state_fields: ClassVar = {"progress": bytearray}

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._dominators = [setting.names[place] for place in setting.active]
        self.batches: Integers = np.zeros((0, setting.batch_size), dtype=np.int64)
        self.rows = self.batches
        # Bytes, since single entries of them are read and written several times as fast as an array's.
        self.progress = bytearray()

    def __len__(self) -> int:
        return len(self.progress)

    def begin(self, sampler: RowSampler, round_number: int) -> None:
        self._draw(sampler, round_number)
        self.progress = bytearray(len(self.batches))

    def _draw(self, sampler: RowSampler, round_number: int) -> None:
        size = self._setting.batch_size
        places = sampler.places(round_number, self._setting.options.share_of_rows(round_number))
        self.batches = np.full((-(-len(places) // size), size), -1, dtype=np.int64)
        self.batches.ravel()[: len(places)] = places
        self.rows = np.where(self.batches >= 0, self._setting.order[self.batches], -1)

    def known(self, step: int) -> int:
        """The step, if the epoch has it."""
        if not 0 <= step < len(self.progress):
            raise ProtocolError(f"this epoch has {len(self)} steps, and none {step}; it is refused")
        return step

    def has_rows(self, step: int, rows: Integers) -> bool:
        """Whether a step's rows are these, as messages have them."""
        return rows.tobytes() == self.rows[step].tobytes()

    def dominator(self, step: int) -> int:
        """Whose step it is: a place among the active parties, who launch steps in turn."""
        return step % len(self._dominators)

    def dominator_name(self, step: int) -> str:
        return self._dominators[step % len(self._dominators)]

    def redraw(self, sampler: RowSampler | None, round_number: int) -> None:
        """Draw the rows of a restored state again: they follow from the round."""
        self.batches = np.zeros((0, self._setting.batch_size), dtype=np.int64)
        self.rows = self.batches
        if sampler is not None and round_number > 0:
            self._draw(sampler, round_number)
