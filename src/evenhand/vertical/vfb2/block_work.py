"""A party's updates: arithmetic between two changes of its state, which may go on while it takes other messages."""

from __future__ import annotations

from collections.abc import Callable

from evenhand.arrays import Array
from evenhand.protocol.roles import Sends, Task


class BlockWork(Task):
    """Updates of a party's block. Several of them may work on one block at once, without a lock.

    Parameters
    ----------
    update
        What to call for each; it returns the multiplications done.
    updates
        Steps with their ϑ.
    """

    def __init__(self, update: Callable[[int, Array], float], sends: Sends, updates: list[tuple[int, Array]]) -> None:
        self.sends = sends
        self.updates = updates
        self.effort = 0.0
        self._update = update

    def run(self) -> None:
        for step, theta in self.updates:
            self.effort += self._update(step, theta)
