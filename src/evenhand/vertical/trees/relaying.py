"""Grow trees of one party inside a coarse partition by another party: some of their interaction, in two rounds.

Every party grows a tree of few leaves, its *cells*. Each party then receives the cells of one other party, a different
one each time, and grows a tree in each cell. Together they form trees that cross two parties: first the cells of the
giver, then the leaves of the taker.
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
"""Maximum number of cells of a party: two bits a row."""
RELAYING = 2
"""Value of `across` in derivatives that ask for cells."""


def leaves_inside(leaves: int) -> int:
    """Return the maximum number of leaves in one cell; over all cells a byte numbers them."""
    return max(min(leaves // 2, 256 // RELAY_CELLS), 2)


def are_cells(message: Message) -> bool:
    """Return whether a message contains valid cells."""
    count = message.integer("count")
    return 0 < count <= RELAY_CELLS and bool((message["cells"] < count).all())


class Relay:
    """The cells of all parties, and which party grows inside the cells of which.

    Attributes
    ----------
    cells
        (parties, n): each row's cell.
    counts
        Number of cells of each party.
    shift
        Offset from each taker to its giver in the order of parties.
    """

    state_fields: ClassVar = {"cells": npt.NDArray[np.uint8], "counts": Integers, "shift": int}

    def __init__(self, cells: npt.NDArray[np.uint8], counts: Integers, shift: int) -> None:
        self.cells, self.counts, self.shift = cells, counts, shift

    @classmethod
    def of(cls, answers: Sequence[Message], turn: int) -> Relay:
        """Build from the cells of all parties; `turn` is the number of relays before."""
        cells = np.array([answer["cells"] for answer in answers])
        counts = np.array([answer.integer("count") for answer in answers])
        return cls(cells, counts, 1 + turn % (len(answers) - 1))

    def giver(self, place: int) -> int:
        return (place + self.shift) % len(self.cells)

    def told(self, place: int) -> tuple[int, npt.NDArray[np.uint8]]:
        """Return the cells inside which a party grows."""
        giver = self.giver(place)
        return int(self.counts[giver]), self.cells[giver]

    def fits(self, place: int, message: Message, leaves: int) -> bool:
        """Return whether a taker's message contains valid leaves in its cells."""
        (count, cells), counts = self.told(place), message["counts"]
        if len(counts) != count or ((counts < 1) | (counts > leaves_inside(leaves))).any():
            return False
        return bool((message["leaves"] < counts[cells]).all())

    def leaves(self, answers: Sequence[Message]) -> tuple[npt.NDArray[np.uint8], Integers]:
        """Return each row's leaf in each taker's tree, over all cells, as (n, parties), and each tree's leaf count."""
        found = []
        for place, answer in enumerate(answers):
            first = np.concatenate([[0], np.cumsum(answer["counts"])[:-1]])
            found.append((first[self.told(place)[1]] + answer["leaves"]).astype(np.uint8))
        return np.stack(found, axis=1), np.array([answer["counts"].sum() for answer in answers])

    def tree(self, place: int, counts: Integers, cells_split: int, first_split: int, values: Array) -> CrossTree:
        """Return a taker's tree.

        Parameters
        ----------
        counts
            Number of leaves in each cell.
        cells_split, first_split
            Index of the giver's cells among its splits, and of the first tree in them among the taker's splits.
        values
            Values of all leaves, cell after cell.
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
