"""Grow a tree across parties at the server, level by level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array, Booleans, Integers
from evenhand.models.across import LEAF, CrossTree

NOWHERE = 255
"""Number of a row in a node that is not split any more."""


class GrowingTree:
    """The node of each row, and the nodes that may still be split.

    Attributes
    ----------
    nodes
        (k, 4), in the format of `CrossTree`.
    place
        Each row's node.
    frontier
        Nodes of the last level; empty when the tree is complete.
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
        """Split the nodes of the frontier, each by the party with the largest gain.

        If there is no room for all new leaves, the nodes with the largest gains are split.

        Parameters
        ----------
        gains, numbers
            (parties, nodes): gain of each party's offer for each node, and the index of the offer among the party's.
        right
            For each party, which rows its offers send right.
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
        """Each row's leaf, numbered from zero, and the node of each leaf."""
        ends = np.flatnonzero(self.nodes[:, 0] == LEAF)
        number = np.zeros(len(self.nodes), dtype=np.uint8)
        number[ends] = np.arange(len(ends))
        return number[self.place], ends


def kept_splits(trees: Sequence[CrossTree], place: int) -> Integers:
    """Return the sorted indices of a party's splits that occur in some tree."""
    found = [tree.nodes[tree.nodes[:, 0] == place, 1] for tree in trees]
    return np.sort(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)


def renumbered(tree: CrossTree, taken: Sequence[Integers]) -> CrossTree:
    """Return the same tree, with splits renumbered among those that their owners keep."""
    nodes = tree.nodes.copy()
    for place, numbers in enumerate(taken):
        own = nodes[:, 0] == place
        nodes[own, 1] = np.searchsorted(numbers, nodes[own, 1])
    return CrossTree(nodes, tree.values)
