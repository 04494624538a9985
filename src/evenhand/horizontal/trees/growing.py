"""Grow a tree level by level: the server has histograms of its nodes, a client has the node of each of its rows.

Both have the same tree: the server sends the splits, and clients repeat them.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from evenhand.arrays import Array, Booleans, Integers
from evenhand.horizontal.trees.splits import Splits
from evenhand.models.binned_trees import LEAF, SIDES, BinnedTree


class LevelTree:
    """Nodes so far; the root is node 0."""

    state_fields: ClassVar = {"columns": Integers, "left": Integers, "sides": Booleans}

    def __init__(self) -> None:
        self.columns: Integers = np.array([LEAF])
        self.left: Integers = np.zeros(1, dtype=np.int64)
        self.sides: Booleans = np.zeros((1, SIDES), dtype=bool)

    def split(self, nodes: Integers, columns: Integers, sides: Booleans) -> Integers:
        """Split these leaves, and return the left child of each; the right child is the next node."""
        left = len(self.columns) + 2 * np.arange(len(nodes))
        self.columns[nodes], self.left[nodes], self.sides[nodes] = columns, left, sides
        self.columns = np.concatenate([self.columns, np.full(2 * len(nodes), LEAF)])
        self.left = np.concatenate([self.left, np.zeros(2 * len(nodes), dtype=np.int64)])
        self.sides = np.concatenate([self.sides, np.zeros((2 * len(nodes), SIDES), dtype=bool)])
        return left

    @property
    def leaves(self) -> Integers:
        """Nodes that are leaves, in order."""
        return np.flatnonzero(self.columns == LEAF)

    def finished(self, values: Array) -> BinnedTree:
        """Return the tree with values of the leaves, in order; there may be more values than leaves."""
        ends = self.leaves
        whole = np.zeros(len(self.columns))
        whole[ends] = values[: len(ends)]
        return BinnedTree(self.columns, self.left, self.sides, whole)


class Frontier:
    """Nodes of the last level of a growing tree, with their summed histograms."""

    state_fields: ClassVar = {"nodes": Integers, "sums": Integers, "level": int}

    def __init__(self, nodes: Integers, sums: Integers, level: int = 0) -> None:
        self.nodes = nodes
        self.sums = sums
        self.level = level

    def chosen(self, splits: Splits, room: int) -> Integers:
        """Return the nodes to split: those with a positive gain, at most `room`, with the largest gains."""
        order = np.argsort(-splits.gains, kind="stable")[: max(room, 0)]
        kept: Integers = np.sort(order)
        return kept[splits.gains[kept] > 0.0]

    def smaller_right(self, splits: Splits, chosen: Integers, first: Integers) -> Booleans:
        """Return whether the right child has fewer rows, for each split node; the other child's histogram follows."""
        found = np.zeros(len(chosen), dtype=bool)
        for place, node in enumerate(chosen):
            column = splits.columns[node]
            counts = self.sums[node, first[column] : first[column + 1], 2]
            right = counts[splits.sides[node, : len(counts)]].sum()
            found[place] = 2 * right < counts.sum()
        return found

    def below(self, chosen: Integers, left: Integers, smaller_right: Booleans, asked: Integers) -> Frontier:
        """Return the next level: `asked` has histograms of the smaller children, and the others are the differences."""
        parents = self.sums[chosen]
        others = parents - asked
        right = smaller_right[:, None, None]
        pairs = np.stack([np.where(right, others, asked), np.where(right, asked, others)], axis=1)
        nodes = np.stack([left, left + 1], axis=1)
        return Frontier(nodes.ravel(), pairs.reshape(-1, *parents.shape[1:]), self.level + 1)
