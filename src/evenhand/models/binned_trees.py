"""Trees that all clients share, over binned columns: a split says which bins of a column go right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array, Booleans, Bytes, Integers, dense
from evenhand.errors import InputError, RunError
from evenhand.protocol.state import State

MOST_BINS = 254
"""A row's bin is one byte: 0 where a value is missing, then 1, 2, ..."""
SIDES = 256
LEAF = -1
"""The column entry of a leaf."""

Edges = npt.NDArray[np.float32]


def single(values: Any) -> Edges:
    """Convert values to single precision, clipped to its range."""
    largest = float(np.finfo(np.float32).max)
    return np.clip(values, -largest, largest).astype(np.float32)


def binned(features: Any, edges: Sequence[Edges]) -> Bytes:
    """Return each value's bin, (n, columns). Values are compared in single precision, like the edges."""
    found = np.zeros(np.shape(features), dtype=np.uint8)
    for column, cuts in enumerate(edges):
        values = single(features[:, column])
        there = ~np.isnan(values)
        found[there, column] = 1 + np.searchsorted(cuts, values[there], side="right")
    return found


@dataclass(frozen=True, eq=False)
class BinnedTree:
    """One tree over binned columns.

    Attributes
    ----------
    columns
        The column of each node's split, or `LEAF`; the root is first.
    left
        The left child of each node; the right one comes after it.
    sides
        (k, 256): which bins of the column go right.
    values
        The values of leaves.
    """

    columns: Integers
    left: Integers
    sides: Booleans
    values: Array

    def places(self, bins: Bytes) -> Integers:
        """Return the node of each row's leaf."""
        place = np.zeros(len(bins), dtype=np.int64)
        while (moving := np.flatnonzero(self.columns[place] != LEAF)).size:
            here = place[moving]
            place[moving] = self.left[here] + self.sides[here, bins[moving, self.columns[here]]]
        return place


class BinnedTrees:
    """scores = intercept + Σ over trees of the value of the row's leaf.

    Parameters
    ----------
    edges
        For each column the values at which a new bin begins; the value itself belongs to the new bin.
    """

    state_fields: ClassVar = {"edges": tuple[Edges, ...], "intercept": float, "trees": list[BinnedTree]}

    def __init__(self, edges: Sequence[Edges], intercept: float = 0.0, trees: Sequence[BinnedTree] = ()) -> None:
        self.edges = tuple(edges)
        self.intercept = intercept
        self.trees = list(trees)

    @property
    def weights(self) -> Array:
        """The values of all nodes, tree after tree, and the intercept."""
        return np.concatenate([*(tree.values for tree in self.trees), [self.intercept]])

    def predict(self, features: Any) -> Array:
        """Return one score a row, positive for label +1."""
        rows = dense(features).astype(np.float64, copy=False)
        if rows.ndim != 2 or rows.shape[1] != len(self.edges):
            raise InputError(
                f"rows have the shape {rows.shape[1:]}; the model was trained on {len(self.edges)} columns"
            )
        bins, scores = binned(rows, self.edges), np.full(len(rows), self.intercept)
        for tree in self.trees:
            scores += tree.values[tree.places(bins)]
        return scores

    def to_state(self) -> State:
        """Return the model as arrays."""
        sides = [np.packbits(tree.sides, axis=1) for tree in self.trees]
        return {
            "edge counts": np.array([len(cuts) for cuts in self.edges], dtype=np.int64),
            "edges": np.concatenate([*self.edges, np.zeros(0, dtype=np.float32)]),
            "sizes": np.array([len(tree.values) for tree in self.trees], dtype=np.int64),
            "nodes": np.concatenate(
                [np.stack([tree.columns, tree.left], axis=1) for tree in self.trees] or [np.zeros((0, 2), np.int64)]
            ),
            "sides": np.concatenate([*sides, np.zeros((0, SIDES // 8), dtype=np.uint8)]),
            "weights": self.weights,
        }

    @classmethod
    def from_state(cls, state: State) -> BinnedTrees:
        """Read a model; refuse arrays that cannot be one."""
        kinds = {
            "edge counts": ("i", 1),
            "edges": ("f", 1),
            "sizes": ("i", 1),
            "nodes": ("i", 2),
            "sides": ("u", 2),
            "weights": ("f", 1),
        }
        found: dict[str, Any] = {name: state.get(name) for name in kinds}
        for name, (kind, dimensions) in kinds.items():
            array = found[name]
            if not (isinstance(array, np.ndarray) and array.dtype.kind == kind and array.ndim == dimensions):
                raise RunError(f"the trees' file has no {name} that could be read")
        counts, edges, sizes, nodes, sides, weights = found.values()
        fits = (
            (counts >= 0).all()
            and counts.sum() == edges.size
            and (counts < MOST_BINS).all()
            and (sizes >= 1).all()
            and nodes.shape == (sizes.sum(), 2)
            and sides.shape == (sizes.sum(), SIDES // 8)
            and weights.shape == (sizes.sum() + 1,)
            and np.isfinite(weights).all()
            and np.isfinite(edges).all()
        )
        if not fits:
            raise RunError("the parts of the trees' file do not fit each other")
        cuts = np.split(edges.astype(np.float32), np.cumsum(counts)[:-1]) if len(counts) else []
        ends = np.cumsum(sizes)[:-1]
        whole = np.unpackbits(sides, axis=1).astype(bool)
        parts = zip(*(np.split(array, ends) for array in (nodes, whole, weights[:-1])), strict=True)
        trees = [BinnedTree(n[:, 0], n[:, 1], side, values) for n, side, values in parts] if len(sizes) else []
        if not all(is_binned_tree(tree, len(counts)) for tree in trees):
            raise RunError("the trees' file holds nodes that are no trees")
        return cls(cuts, float(weights[-1]), trees)


def is_binned_tree(tree: BinnedTree, columns: int) -> bool:
    """Check that every node but the root is the child of an earlier one, and every split's column exists."""
    inner = np.flatnonzero(tree.columns != LEAF)
    children = np.concatenate([tree.left[inner], tree.left[inner] + 1])
    return bool(
        ((tree.columns >= LEAF) & (tree.columns < columns)).all()
        and (tree.left[inner] > inner).all()
        and np.array_equal(np.sort(children), np.arange(1, len(tree.columns)))
    )
