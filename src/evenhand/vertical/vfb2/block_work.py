"""Arithmetic between two changes of a party's state. It may run while the party handles other messages."""

from __future__ import annotations

from collections.abc import Callable

from evenhand.arrays import Array
from evenhand.protocol.roles import Sends, Task
from evenhand.vertical.vfb2.aggregation import Sums


class BlockWork(Task):
    """Updates of a party's block, followed by scorings. Several tasks may work on one block at once, without a lock.

    Parameters
    ----------
    update, score
        Functions to call for each. Both return the number of multiplications.
    updates
        Steps with their ϑ.
    scorings
        Steps with the masks for their rows.

    Attributes
    ----------
    scored
        Steps with their masks and masked scores.
    """

    def __init__(
        self,
        update: Callable[[int, Array], float],
        score: Callable[[int, Sums], float],
        sends: Sends,
        updates: list[tuple[int, Array]],
        scorings: list[tuple[int, Sums]],
    ) -> None:
        self.sends = sends
        self.updates = updates
        self.scorings = scorings
        self.scored: list[tuple[int, Sums, Sums]] = []
        self.effort = 0.0
        self._update = update
        self._score = score

    def run(self) -> None:
        for step, theta in self.updates:
            self.effort += self._update(step, theta)
        for step, masks in self.scorings:
            sums = masks.copy()
            self.effort += self._score(step, sums)
            self.scored.append((step, masks, sums))
