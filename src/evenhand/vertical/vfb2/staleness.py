"""How stale updates may be, how stale they were, and what waits so that none becomes too stale.

An update is *stale* by the number of earlier steps whose updates the party had not made when it scored the rows. The
paper assumes that this is bounded (VFB² Assumption 3); here it is made so, and alike whether everybody's work is done
in one loop (`interleaver`), by messages, or by threads:

- Steps have numbers, and the m active parties launch them in turn: party a the steps a, a + m, a + 2m, ...
- Step t is launched when ϑ of all steps before t − τ₁ have reached its dominator: what is read is behind by at most τ₁.
- A party scores step t when it has made its updates by all steps before t − τ₁ − τ₂: ϑ on its way adds at most τ₂.
- A party scores in the order of the steps, and updates in that order.

So the scoring of step t has seen all updates but at most τ₁ + τ₂, and those are the ones made between the scoring and
the update. With τ₁ = τ₂ = 0 nothing is stale: the steps follow upon each other as if there were one party.

**No deadlock.** Let t be the lowest step that somebody has not updated by. All before it are updated by everywhere, so
their ϑ have come: t may be launched, everybody may score it, and its ϑ is then sent to everybody.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.errors import ProtocolError


class Staleness:
    """One party's record of the steps of an epoch: asked for, scored, answered with ϑ, updated by.

    Parameters
    ----------
    limit
        τ₁ + τ₂.
    """

    state_fields: ClassVar = {
        "staleness": Integers,
        "_scored": int,
        "_released": int,
        "_asked": set[int],
        "_heard": dict[int, Array],
    }

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.staleness = np.zeros(limit + 1, dtype=np.int64)
        """How many updates were how stale, over the whole run."""
        self.updated = 0
        """All steps before this one have been updated by."""
        self._scored = 0
        """The next step to score."""
        self._released = 0
        """The next step to update by; updates of the last ones may still be under way."""
        self._asked: set[int] = set()
        self._under_way: set[int] = set()
        self._heard: dict[int, Array] = {}

    def begin_epoch(self) -> None:
        self.updated = self._scored = self._released = 0

    def ask(self, step: int) -> None:
        """Somebody wants the step scored."""
        self._asked.add(step)

    def to_score(self) -> list[int]:
        """The steps to score now; each counts as scored from here on."""
        steps = []
        while self._scored in self._asked and self._scored - self.updated <= self.limit:
            self._asked.remove(self._scored)
            self.staleness[self._scored - self.updated] += 1
            steps.append(self._scored)
            self._scored += 1
        return steps

    def hear(self, step: int, theta: Array) -> None:
        if not self._released <= step < self._scored or step in self._heard:
            raise ProtocolError(f"ϑ of step {step} is not expected; it is refused")
        self._heard[step] = theta

    def release(self) -> list[tuple[int, Array]]:
        """The updates that may be made now, in their order; `made` says when they are."""
        released: list[tuple[int, Array]] = []
        while self._released in self._heard:
            released.append((self._released, self._heard.pop(self._released)))
            self._under_way.add(self._released)
            self._released += 1
        return released

    @property
    def updating(self) -> bool:
        """Whether updates are under way."""
        return bool(self._under_way)

    def made(self, step: int) -> None:
        """The update is in the block."""
        self._under_way.remove(step)
        self.updated = min(self._under_way) if self._under_way else self._released

    def restored(self) -> None:
        """Nothing is under way: states are saved between two changes of the party's state."""
        self.updated, self._under_way = self._released, set()
