"""One VFB² party's part in sums over all rows, behind masks (VFB² Algorithm 1).

Squared norms are summed once, before the first round. Scores are summed before every round.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from evenhand.arrays import Array
from evenhand.errors import ProtocolError
from evenhand.privacy.fixed_point import decode, largest
from evenhand.privacy.sum_trees import ROOT
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import SERVER
from evenhand.vertical.vfb2.aggregation import FULL_SUM, Aggregation, MaskStream, Passed
from evenhand.vertical.vfb2.batches import mask_values
from evenhand.vertical.vfb2.kernels import FRACTION_BITS
from evenhand.vertical.vfb2.messages import MASKED_TOTALS, TOTALS
from evenhand.vertical.vfb2.plan import NORM_BITS, OF_NORMS, VFB2Plan


class FullPass:
    """Masks the party's values of all rows, and passes sums on.

    Attributes
    ----------
    waits
        Whether a sum has been requested that the party has not contributed to yet. Updates of the epoch come first.
    """

    state_fields: ClassVar = {"waits": bool}

    def __init__(self, name: str, plan: VFB2Plan, masks: MaskStream, sums: Aggregation) -> None:
        self.waits = False
        self._name = name
        self._plan = plan
        self._masks = masks
        self._sums = sums

    def begin(self, message: Message, round_number: int, what: int) -> None:
        expected = message.integer("round") == round_number and message.integer("what") == what
        if self.waits or not expected:
            raise ProtocolError(f"{self._name} is in round {round_number} and cannot begin this full pass; refused")
        self.waits = True

    def answer(self, values: Array, round_number: int, what: int) -> list[Message] | None:
        """Return messages with the party's masked values, or None if a value is too large to be masked."""
        self.waits = False
        masks = self._masks.take(len(values))
        sums = np.empty_like(masks)
        bits = _fraction_bits(what)
        if not mask_values(values, 2.0**bits, largest(len(self._plan.names), bits), masks, sums):
            return None
        sends: list[Message] = []
        hidden = self._masks.agreed(sums, "total", round_number, what)
        for tree, part in enumerate((hidden, masks)):
            passed = self._sums.add(FULL_SUM, 0, tree, self._plan.names.index(self._name), part)
            sends += self._pass_on(tree, passed, round_number, what)
        return sends

    def add(self, message: Message, round_number: int, what: int) -> list[Message]:
        """Add a child's sum."""
        if message.integer("round") != round_number:
            raise ProtocolError(f"{self._name} is in round {round_number} and takes no sum of another; it is refused")
        tree, sender = message.integer("tree"), self._plan.names.index(message.sender)
        passed = self._sums.add(FULL_SUM, 0, tree, sender, message["sum"].view(np.uint64))
        return self._pass_on(tree, passed, round_number, what)

    def _pass_on(self, tree: int, passed: Passed | None, round_number: int, what: int) -> list[Message]:
        if passed is None:
            return []
        parent, values = passed
        if parent == ROOT:
            total = decode(values, _fraction_bits(what))
            return [TOTALS.message(self._name, SERVER, round=round_number, what=what, total=total)]
        body = {"round": round_number, "tree": tree, "sum": values.view(np.int64)}
        return [MASKED_TOTALS.message(self._name, self._plan.names[parent], **body)]


def _fraction_bits(what: int) -> int:
    return NORM_BITS if what == OF_NORMS else FRACTION_BITS
