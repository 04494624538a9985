"""Grow trees level by level: sum histograms over bins, and split each node by the sums over clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numba
import numpy as np

from evenhand.arrays import Array, Booleans, Bytes, Integers
from evenhand.models.binned_trees import LEAF, SIDES, BinnedTree

UNIT = 2.0**-20
"""Unit of all sums. Sums of integers are equal in any order and for any partition of the rows, and can be masked."""
LARGEST = 2.0**20
"""Largest absolute value of a summand."""
CATEGORY_SMOOTHING = 10.0
"""Curvature that is added to that of a category before sorting, and to both sides of categorical splits.

Without it, a category with few rows could come first by chance. LightGBM does the same.
"""


def in_units(values: Array) -> Integers:
    """Round numbers to integer multiples of the unit."""
    return np.rint(np.clip(values, -LARGEST, LARGEST) / UNIT).astype(np.int64)


def histograms(
    bins: Bytes, first: Integers, node: Integers, gradient: Integers, curvature: Integers, nodes: int
) -> Any:
    """Return (nodes, all bins, 3): sums of both derivatives, and numbers of rows.

    Parameters
    ----------
    first
        First bin of each column among all bins; the last entry is the number of bins.
    node
        Node of each row; rows with values outside 0, ..., nodes − 1 are skipped.
    """
    return _histograms(bins, first, node, gradient, curvature, nodes)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _histograms(bins: Any, first: Any, node: Any, gradient: Any, curvature: Any, nodes: int) -> Any:
    sums = np.zeros((nodes, first[-1], 3), dtype=np.int64)
    for row in range(len(bins)):
        here = node[row]
        if 0 <= here < nodes:
            for column in range(bins.shape[1]):
                at = first[column] + bins[row, column]
                sums[here, at, 0] += gradient[row]
                sums[here, at, 1] += curvature[row]
                sums[here, at, 2] += 1
    return sums


@dataclass(frozen=True, eq=False)
class Splits:
    """Best split of each node: its gain (zero if there is none), its column, and the bins that go right."""

    gains: Array
    columns: Integers
    sides: Booleans


def best_splits(sums: Integers, first: Integers, categorical: Booleans, rows_a_leaf: int, l2: float) -> Splits:
    """Return the split of each node with the largest gain; among equals, the first column and cut."""
    nodes = len(sums)
    found = Splits(np.zeros(nodes), np.zeros(nodes, dtype=np.int64), np.zeros((nodes, SIDES), dtype=bool))
    for column, is_category in enumerate(categorical):
        part = sums[:, first[column] : first[column + 1]]
        derivatives: Array = np.multiply(part[..., :2], UNIT, dtype=np.float64)
        best = _of_categories if is_category else _of_numbers
        gains, sides = best(derivatives, part[..., 2], rows_a_leaf, l2)
        better = np.flatnonzero(gains > found.gains)
        found.gains[better], found.columns[better] = gains[better], column
        found.sides[better] = False
        found.sides[better, : sides.shape[1]] = sides[better]
    return found


def _of_numbers(sums: Array, counts: Integers, rows_a_leaf: int, l2: float) -> tuple[Array, Booleans]:
    """Find the best cut of ordered bins, with missing values on either side."""
    bins = sums.shape[1]
    lefts = np.cumsum(sums[:, 1:], axis=1), np.cumsum(counts[:, 1:], axis=1)
    tried = []
    for missing_left in (1, 0):
        left, rows = lefts[0] + missing_left * sums[:, :1], lefts[1] + missing_left * counts[:, :1]
        tried.append(_gains(left, rows, sums.sum(axis=1), counts.sum(axis=1), rows_a_leaf, l2))
    gains = np.concatenate(tried, axis=1)
    best = gains.argmax(axis=1)
    cut, missing_right = best % (bins - 1), best >= bins - 1
    sides = np.arange(bins) > cut[:, None] + 1
    sides[:, 0] = missing_right
    return gains.max(axis=1), sides


def _of_categories(sums: Array, counts: Integers, rows_a_leaf: int, l2: float) -> tuple[Array, Booleans]:
    """Find the best cut of bins sorted by the value each would have alone; bins without rows come last."""
    slope = sums[..., 0] / (sums[..., 1] + CATEGORY_SMOOTHING)
    order = np.argsort(np.where(counts > 0, slope, np.inf), axis=1, kind="stable")
    left = np.cumsum(np.take_along_axis(sums, order[..., None], axis=1), axis=1)
    rows = np.cumsum(np.take_along_axis(counts, order, axis=1), axis=1)
    gains = _gains(left, rows, sums.sum(axis=1), counts.sum(axis=1), rows_a_leaf, l2 + CATEGORY_SMOOTHING)
    sides = np.zeros(counts.shape, dtype=bool)
    after = np.arange(counts.shape[1]) > gains.argmax(axis=1)[:, None]
    np.put_along_axis(sides, order, after, axis=1)
    return gains.max(axis=1), sides


def _gains(left: Array, rows: Integers, whole: Array, all_rows: Integers, rows_a_leaf: int, l2: float) -> Array:
    """Return the gain of each cut, or zero if a side has too few rows."""
    right = whole[:, None] - left
    gains: Array = _worth(left, l2) + _worth(right, l2) - _worth(whole, l2)[:, None]
    fits = (rows >= rows_a_leaf) & (all_rows[:, None] - rows >= rows_a_leaf)
    return np.where(fits, np.maximum(gains, 0.0), 0.0)


def _worth(sums: Array, l2: float) -> Array:
    return sums[..., 0] ** 2 / (sums[..., 1] + l2 + 1e-12)


class LevelTrees:
    """Nodes so far of trees that grow at the same time, one for each model; the roots come first.

    Attributes
    ----------
    tree
        The tree of each node.
    """

    state_fields: ClassVar = {"columns": Integers, "left": Integers, "sides": Booleans, "tree": Integers}

    def __init__(self, trees: int = 1) -> None:
        self.columns: Integers = np.full(trees, LEAF)
        self.left: Integers = np.zeros(trees, dtype=np.int64)
        self.sides: Booleans = np.zeros((trees, SIDES), dtype=bool)
        self.tree: Integers = np.arange(trees)

    def split(self, nodes: Integers, columns: Integers, sides: Booleans) -> Integers:
        """Split these leaves, and return the left child of each; the right child is the next node."""
        left = len(self.columns) + 2 * np.arange(len(nodes))
        self.columns[nodes], self.left[nodes], self.sides[nodes] = columns, left, sides
        self.columns = np.concatenate([self.columns, np.full(2 * len(nodes), LEAF)])
        self.left = np.concatenate([self.left, np.zeros(2 * len(nodes), dtype=np.int64)])
        self.sides = np.concatenate([self.sides, np.zeros((2 * len(nodes), SIDES), dtype=bool)])
        self.tree = np.concatenate([self.tree, np.repeat(self.tree[nodes], 2)])
        return left

    @property
    def leaves(self) -> Integers:
        """Nodes that are leaves, in order."""
        return np.flatnonzero(self.columns == LEAF)

    @property
    def leaf_counts(self) -> Integers:
        """Number of leaves of each tree."""
        return np.bincount(self.tree[self.leaves])

    @property
    def leaf_numbers(self) -> Integers:
        """Index of each leaf among those of its tree; zero for other nodes."""
        found: Integers = np.zeros(len(self.columns), dtype=np.int64)
        for tree in range(len(self.leaf_counts)):
            ends = np.flatnonzero((self.columns == LEAF) & (self.tree == tree))
            found[ends] = np.arange(len(ends))
        return found

    def finished(self, values: Array) -> list[BinnedTree]:
        """Return the trees, with values (trees, most leaves) of their leaves in order."""
        whole = np.where(self.columns == LEAF, values[self.tree, self.leaf_numbers], 0.0)
        # Children are next to each other in a tree of its own as well.
        place = np.zeros(len(self.columns), dtype=np.int64)
        found = []
        for tree in range(len(values)):
            own = np.flatnonzero(self.tree == tree)
            place[own] = np.arange(len(own))
            left = np.where(self.columns[own] == LEAF, 0, place[self.left[own]])
            found.append(BinnedTree(self.columns[own], left, self.sides[own], whole[own]))
        return found


class Frontier:
    """Nodes of the last level of growing trees, with their summed histograms."""

    state_fields: ClassVar = {"nodes": Integers, "sums": Integers, "level": int}

    def __init__(self, nodes: Integers, sums: Integers, level: int = 0) -> None:
        self.nodes = nodes
        self.sums = sums
        self.level = level

    def chosen(self, splits: Splits, trees: LevelTrees, leaves: int) -> Integers:
        """Return which nodes to split: in each tree those with the largest gains, up to so many leaves."""
        owner, room = trees.tree[self.nodes], leaves - trees.leaf_counts
        found = []
        for tree, most in enumerate(room):
            own = np.flatnonzero(owner == tree)
            found.append(own[np.argsort(-splits.gains[own], kind="stable")[: max(most, 0)]])
        kept: Integers = np.sort(np.concatenate(found))
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
