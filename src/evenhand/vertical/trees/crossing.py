"""A tree that crosses parties while it is being grown, level by level, at the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array, Booleans, Integers
from evenhand.models.across import LEAF, CrossTree

NOWHERE = 255
"""The number of a row whose node is not split any more."""


class GrowingTree:
    """Which node each row is in, and which nodes may yet be split.

    Attributes
    ----------
    nodes
        (k, 4), as `CrossTree` has them.
    place
        Each row's node.
    frontier
        The nodes of the last level; empty when the tree is done.
    """

    state_fields: ClassVar = {"nodes": Integers, "place": Integers, "frontier": Integers, "level": int}

    def __init__(self, rows: int) -> None:
        self.nodes: Integers = np.array([[LEAF, 0, 0, 0]])
        self.place: Integers = np.zeros(rows, dtype=np.int64)
        self.frontier: Integers = np.zeros(1, dtype=np.int64)
        self.level = 0

    @property
    def numbers(self) -> npt.NDArray[np.uint8]:
        """Each row's number among the nodes of the frontier."""
        number = np.full(len(self.nodes), NOWHERE, dtype=np.uint8)
        number[self.frontier] = np.arange(len(self.frontier))
        return number[self.place]

    def split(self, gains: Array, right: Sequence[Booleans], numbers: Integers, most_leaves: int, depth: int) -> None:
        """Split the nodes of the frontier, each by the party that gains most; the best ones, if leaves are few.

        Parameters
        ----------
        gains, numbers
            (parties, nodes): of each party's offer for each node, and the offer's number among the party's.
        right
            Of each party, which rows its offers send right.
        """
        owner, gain = gains.argmax(axis=0), gains.max(axis=0)
        room = most_leaves - int((self.nodes[:, 0] == LEAF).sum())
        order = np.argsort(-gain, kind="stable")
        chosen = np.sort(order[: max(room, 0)])
        chosen = chosen[gain[chosen] > 0.0]
        children = []
        for place in chosen:
            node, left = self.frontier[place], len(self.nodes)
            self.nodes[node] = owner[place], numbers[owner[place], place], left, left + 1
            self.nodes = np.concatenate([self.nodes, np.array([[LEAF, 0, 0, 0]] * 2)])
            here = np.flatnonzero(self.place == node)
            self.place[here] = left + right[owner[place]][here]
            children += [left, left + 1]
        self.level += 1
        full = len(self.nodes) // 2 + 1 >= most_leaves or (depth and self.level >= depth)
        self.frontier = np.array([] if full else children, dtype=np.int64)

    @property
    def leaves(self) -> tuple[npt.NDArray[np.uint8], Integers]:
        """Each row's leaf, numbered from zero, and the node that each leaf is."""
        ends = np.flatnonzero(self.nodes[:, 0] == LEAF)
        number = np.zeros(len(self.nodes), dtype=np.uint8)
        number[ends] = np.arange(len(ends))
        return number[self.place], ends


def kept_splits(trees: Sequence[CrossTree], place: int) -> Integers:
    """The numbers of a party's splits that are in some tree, in order."""
    found = [tree.nodes[tree.nodes[:, 0] == place, 1] for tree in trees]
    return np.sort(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)


def renumbered(tree: CrossTree, taken: Sequence[Integers]) -> CrossTree:
    """The same tree, with splits numbered among those that their owners keep."""
    nodes = tree.nodes.copy()
    for place, numbers in enumerate(taken):
        own = nodes[:, 0] == place
        nodes[own, 1] = np.searchsorted(numbers, nodes[own, 1])
    return CrossTree(nodes, tree.values)
