"""Trees of a party that are grown inside a coarse partition of another's: some of their interaction, in two rounds.

Everybody grows a tree of few leaves, its cells. Each is then told those of one other party, another one every time, and
grows a tree in each cell. Together they are trees that cross two parties: first the giver's cells, then the taker's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array, Integers
from evenhand.models.across import LEAF, CrossTree
from evenhand.protocol.messages import Message

RELAY_CELLS = 4
"""Most cells that a party tells: two bits a row."""
RELAYING = 2
"""What derivatives say in `across` where cells are wanted."""


def leaves_inside(leaves: int) -> int:
    """Most leaves of a tree in one cell, where whole trees have so many; over all cells they are numbered by a byte."""
    return max(min(leaves // 2, 256 // RELAY_CELLS), 2)


def are_cells(message: Message) -> bool:
    """Whether what a party says are cells."""
    count = message.integer("count")
    return 0 < count <= RELAY_CELLS and bool((message["cells"] < count).all())


class Relay:
    """Everybody's cells, and who grows inside whose.

    Attributes
    ----------
    cells
        (parties, n): each row's cell.
    counts
        Of each party's cells.
    shift
        How far on in the order of parties the giver of each is.
    """

    state_fields: ClassVar = {"cells": npt.NDArray[np.uint8], "counts": Integers, "shift": int}

    def __init__(self, cells: npt.NDArray[np.uint8], counts: Integers, shift: int) -> None:
        self.cells, self.counts, self.shift = cells, counts, shift

    @classmethod
    def of(cls, answers: Sequence[Message], turn: int) -> Relay:
        """From everybody's cells; `turn` is the number of relays before."""
        cells = np.array([answer["cells"] for answer in answers])
        counts = np.array([answer.integer("count") for answer in answers])
        return cls(cells, counts, 1 + turn % (len(answers) - 1))

    def giver(self, place: int) -> int:
        return (place + self.shift) % len(self.cells)

    def told(self, place: int) -> tuple[int, npt.NDArray[np.uint8]]:
        """The cells inside which a party grows."""
        giver = self.giver(place)
        return int(self.counts[giver]), self.cells[giver]

    def fits(self, place: int, message: Message, leaves: int) -> bool:
        """Whether what a taker says are leaves in its cells."""
        (count, cells), counts = self.told(place), message["counts"]
        if len(counts) != count or ((counts < 1) | (counts > leaves_inside(leaves))).any():
            return False
        return bool((message["leaves"] < counts[cells]).all())

    def leaves(self, answers: Sequence[Message]) -> tuple[npt.NDArray[np.uint8], Integers]:
        """(n, parties): each row's leaf in the tree of each taker, over all cells; and how many leaves each has."""
        found = []
        for place, answer in enumerate(answers):
            first = np.concatenate([[0], np.cumsum(answer["counts"])[:-1]])
            found.append((first[self.told(place)[1]] + answer["leaves"]).astype(np.uint8))
        return np.stack(found, axis=1), np.array([answer["counts"].sum() for answer in answers])

    def tree(self, place: int, counts: Integers, cells_split: int, first_split: int, values: Array) -> CrossTree:
        """A taker's tree.

        Parameters
        ----------
        counts
            Leaves in each cell.
        cells_split, first_split
            The number of the giver's cells among its splits, and of the first tree in them among the taker's.
        values
            Of all leaves, cell after cell.
        """
        cells = len(counts)
        nodes, found = [[self.giver(place), cells_split, 1, cells]], [np.zeros(1)]
        following, split, value = cells + 1, first_split, 0
        below: list[Array] = []
        for count in counts:
            own = values[value : value + count]
            value += count
            if count == 1:
                nodes.append([LEAF, 0, 0, 0])
                found.append(own)
                continue
            nodes.append([place, split, following, following + count - 1])
            found.append(np.zeros(1))
            below.append(own)
            following, split = following + count, split + 1
        leaves = sum(len(one) for one in below)
        whole = np.array(nodes + [[LEAF, 0, 0, 0]] * leaves, dtype=np.int64)
        return CrossTree(whole, np.concatenate([*found, *below]))
