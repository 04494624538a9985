"""Boosted trees as one node of an ONNX graph.

Splits by sets of categories become 0/1 features beside the columns, so every split compares a number with a threshold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from evenhand.arrays import Array
from evenhand.jobs.exporting.graph import Graph
from evenhand.models.binned_trees import LEAF, BinnedTree, BinnedTrees
from evenhand.models.trees import TreesModel

_AT_MOST: Final = 0
_AT_LEAST: Final = 2
"""Codes of ONNX for comparisons of a column with a threshold."""


class _Forest:
    """The arrays of ONNX's trees: inner nodes and leaves of all trees, numbered in two lists."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.derived: dict[tuple[int, bytes], int] = {}
        """Sets of a column's codes that go one way, and the place of each one's feature."""
        self.roots: list[int] = []
        self.modes: list[int] = []
        self.splits: dict[str, list[Any]] = {name: [] for name in ("features", "values", "nan", "true", "false")}
        self.leafs: dict[str, list[int]] = {"true": [], "false": []}
        self.leaves: list[float] = []

    def leaf(self, value: float) -> tuple[int, bool]:
        self.leaves.append(value)
        return len(self.leaves) - 1, True

    def split(self, column: int, threshold: float, mode: int, nan_is_true: bool) -> int:
        """Add an inner node, whose branches follow (`connect`); return its number."""
        self.modes.append(mode)
        given = {"features": column, "values": threshold, "nan": int(nan_is_true), "true": 0, "false": 0}
        for name, value in given.items():
            self.splits[name].append(value)
        for ends in self.leafs.values():
            ends.append(0)
        return len(self.modes) - 1

    def member(self, column: int, codes: np.ndarray) -> int:
        """Add an inner node that is true if the column's code is in a set; NaN is in none."""
        place = self.derived.setdefault((column, codes.tobytes()), self.columns + len(self.derived))
        return self.split(place, 0.5, _AT_LEAST, False)

    def connect(self, node: int, side: str, child: tuple[int, bool]) -> None:
        self.splits[side][node], self.leafs[side][node] = child[0], int(child[1])

    def root(self, child: tuple[int, bool]) -> None:
        number, is_leaf = child
        if is_leaf:
            # A tree begins with an inner node: both branches of this one end in the same leaf.
            node = self.split(0, 0.0, _AT_MOST, True)
            self.connect(node, "true", child)
            self.connect(node, "false", child)
            number = node
        self.roots.append(number)


def forest(graph: Graph, model: TreesModel | BinnedTrees, columns: str, width: int) -> str:
    """Add the trees; return the sum of their leaf values and of the intercept."""
    found = _Forest(width)
    if isinstance(model, TreesModel):
        intercept = model.intercept_value
        for info in model.booster.dump_model()["tree_info"] if model.trees else ():
            found.root(_grown(found, info["tree_structure"]))
    else:
        intercept = model.intercept
        for tree in model.trees:
            found.root(_binned(found, model, tree, 0))
    if not found.roots:
        found.root(found.leaf(0.0))
    whole = graph.side_by_side([columns, *_derived(graph, model, found, columns)])
    trees = graph.apply(
        "TreeEnsemble",
        whole,
        ml=True,
        n_targets=1,
        aggregate_function=1,
        post_transform=0,
        tree_roots=found.roots,
        nodes_featureids=found.splits["features"],
        nodes_modes=graph.tensor(np.array(found.modes, dtype=np.uint8)),
        nodes_splits=graph.tensor(np.array(found.splits["values"], dtype=np.float64)),
        nodes_missing_value_tracks_true=found.splits["nan"],
        nodes_truenodeids=found.splits["true"],
        nodes_trueleafs=found.leafs["true"],
        nodes_falsenodeids=found.splits["false"],
        nodes_falseleafs=found.leafs["false"],
        leaf_targetids=[0] * len(found.leaves),
        leaf_weights=graph.tensor(np.array(found.leaves, dtype=np.float64)),
    )
    return graph.apply("Add", trees, _number(graph, intercept))


def _number(graph: Graph, value: float) -> str:
    return graph.constant(np.array([[value]], dtype=np.float64))


def _grown(found: _Forest, node: Mapping[str, Any]) -> tuple[int, bool]:
    """Add a node of LightGBM's and all below it."""
    if "leaf_value" in node:
        return found.leaf(float(node["leaf_value"]))
    column = int(node["split_feature"])
    if node["decision_type"] == "==":
        number = found.member(column, np.array(sorted(map(int, str(node["threshold"]).split("||")))))
    else:
        threshold = float(node["threshold"])
        # Where training saw no missing value, LightGBM reads one as zero.
        nan_is_left = bool(node["default_left"]) if node["missing_type"] == "NaN" else threshold >= 0.0
        number = found.split(column, threshold, _AT_MOST, nan_is_left)
    for side, child in (("true", "left_child"), ("false", "right_child")):
        found.connect(number, side, _grown(found, node[child]))
    return number, False


def _binned(found: _Forest, model: BinnedTrees, tree: BinnedTree, node: int) -> tuple[int, bool]:
    """Add a node over binned columns and all below it; the true side is the right one."""
    column = int(tree.columns[node])
    if column == LEAF:
        return found.leaf(float(tree.values[node]))
    cuts = model.edges[column]
    right = tree.sides[node][: len(cuts) + 2]
    steps = np.flatnonzero(np.diff(right[1:].astype(np.int8)))
    if len(steps) == 1 and right[-1]:
        number = found.split(column, float(cuts[steps[0]]), _AT_LEAST, bool(right[0]))
    else:
        number = found.member(column, np.flatnonzero(right))
    for side, child in (("false", tree.left[node]), ("true", tree.left[node] + 1)):
        found.connect(number, side, _binned(found, model, tree, int(child)))
    return number, False


def _derived(graph: Graph, model: TreesModel | BinnedTrees, found: _Forest, columns: str) -> Iterator[str]:
    """Yield the 0/1 features of sets of codes, in the order of their places."""
    codes: dict[int, str] = {}
    for column, members in found.derived:
        chosen = np.frombuffer(members, dtype=np.int64)
        if column not in codes:
            codes[column] = _codes(graph, model, column, columns)
        inside = graph.numbers(graph.apply("Equal", codes[column], graph.constant(chosen[None])))
        yield graph.total(inside)


def _codes(graph: Graph, model: TreesModel | BinnedTrees, column: int, columns: str) -> str:
    """Return a column's codes as whole numbers: LightGBM's categories (−1 for NaN), or bins (0 for NaN)."""
    own = graph.apply("Gather", columns, graph.constant(np.array([column])), axis=1)
    known = graph.apply("Not", graph.apply("IsNaN", own))
    if isinstance(model, TreesModel):
        return graph.whole(graph.apply("Where", known, own, _number(graph, -1.0)))
    edges: Sequence[Any] | Array = model.edges[column].astype(np.float64)
    if not len(edges):
        return graph.whole(known)
    above = graph.apply("GreaterOrEqual", own, graph.constant(np.asarray(edges)[None]))
    bins = graph.apply("Add", graph.total(graph.whole(above)), graph.constant(np.array([[1]])))
    return graph.apply("Where", known, bins, graph.constant(np.array([[0]])))
