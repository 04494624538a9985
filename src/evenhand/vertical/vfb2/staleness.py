"""Bound the staleness of updates, and record it.

An update's *staleness* is the number of earlier steps that the party had not applied when it scored the rows. The
paper assumes that it is bounded (VFB² Assumption 3). Here the following rules enforce the bound, in one loop
(`interleaver`), with messages, and with threads:

- Steps have numbers, and the m active parties launch them in turn: party a the steps a, a + m, a + 2m, ...
- Step t is launched when ϑ of all steps before t − τ₁ have reached its dominator. Reads lag by at most τ₁.
- A party scores step t when it has made its updates by all steps before t − τ₁ − τ₂. ϑ in flight adds at most τ₂.
- A party scores in the order of the steps, and updates in that order.

So the scoring of step t misses at most τ₁ + τ₂ updates. Those are made between the scoring and the update. With
τ₁ = τ₂ = 0 nothing is stale: the steps run one after another, as with a single party.

**No deadlock.** Let t be the lowest step by which some party has not updated. All parties have updated by all steps
before it, so the ϑ of those have arrived. Hence t may be launched, all parties may score it, and its ϑ is then sent to
all of them.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from evenhand.arrays import Array, Integers
from evenhand.errors import ProtocolError


class Staleness:
    """One party's record of the steps of an epoch: requested, scored, answered with ϑ, updated by.

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
        """Histogram of the staleness of updates over the whole run."""
        self.updated = 0
        """The party has updated by all steps before this one."""
        self._scored = 0
        """The next step to score."""
        self._released = 0
        """The next step to update by. Updates of the last ones may still be in progress."""
        self._asked: set[int] = set()
        self._under_way: set[int] = set()
        self._heard: dict[int, Array] = {}

    def begin_epoch(self) -> None:
        self.updated = self._scored = self._released = 0

    def ask(self, step: int) -> None:
        """Note a request to score a step."""
        self._asked.add(step)

    def to_score(self) -> list[int]:
        """Return the steps to score now, and count them as scored."""
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
        """Return the updates that may be made now, in order. The caller reports each with `made`."""
        released: list[tuple[int, Array]] = []
        while self._released in self._heard:
            released.append((self._released, self._heard.pop(self._released)))
            self._under_way.add(self._released)
            self._released += 1
        return released

    @property
    def updating(self) -> bool:
        """Whether updates are in progress."""
        return bool(self._under_way)

    def made(self, step: int) -> None:
        """Note that an update is complete."""
        self._under_way.remove(step)
        self.updated = min(self._under_way) if self._under_way else self._released

    def restored(self) -> None:
        """Reset updates in progress: states are saved only when there are none."""
        self.updated, self._under_way = self._released, set()
