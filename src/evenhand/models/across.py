"""Trees that cross parties: each split belongs to one party, and only the label holder knows the trees' structure.

To score rows, every party tells the side of each row at each of its splits. The label holder follows the routes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evenhand.arrays import Array, Integers
from evenhand.errors import RunError
from evenhand.protocol.state import State

LEAF = -1
"""The owner entry of a leaf."""


@dataclass(frozen=True, eq=False)
class CrossTree:
    """One tree that crosses parties.

    Attributes
    ----------
    nodes
        (k, 4): the owner's place among the parties, the number of the split among the owner's, first child, last
        child. The root is first, and children come after their parents. Most splits have two sides.
    values
        (k,): the values of leaves.
    """

    nodes: Integers
    values: Array

    def scores(self, sides: Sequence[npt.NDArray[np.uint8]]) -> Array:
        """Return the value of each row's leaf.

        `sides` has a column for each of a party's splits: 1 where a row goes right. For a split with more than two
        sides it is the number of the side.
        """
        place = np.zeros(len(sides[0]), dtype=np.int64)
        for node, (owner, split, first, last) in enumerate(self.nodes):
            if owner != LEAF:
                here = np.flatnonzero(place == node)
                place[here] = first + np.minimum(sides[owner][here, split], last - first)
        return self.values[place]


@dataclass(frozen=True, eq=False)
class Routes:
    """The structure of all trees that cross parties, which the label holder knows; places refer to `parties`."""

    parties: tuple[str, ...]
    trees: tuple[CrossTree, ...]

    def __post_init__(self) -> None:
        if not all(is_tree(tree.nodes, len(self.parties)) for tree in self.trees):
            raise ValueError("routes are not trees")

    def scores(self, sides: Mapping[str, npt.NDArray[np.uint8]]) -> Array:
        """Return the sum of the trees' values, given each party's sides by name."""
        for place, name in enumerate(self.parties):
            used = [tree.nodes[np.equal(tree.nodes[:, 0], place), 1].max(initial=-1) for tree in self.trees]
            if name not in sides or sides[name].shape[1] <= max(used, default=-1):
                raise RunError(f"trees across parties need splits of {name!r} that are not there")
        ordered = [sides[name] for name in self.parties]
        return np.sum([tree.scores(ordered) for tree in self.trees], axis=0)


def is_tree(nodes: Integers, parties: int) -> bool:
    """Check that every node but the root is the child of an earlier one, and every split has an owner."""
    count = len(nodes)
    inner = nodes[nodes[:, 0] != LEAF]
    if ((inner[:, 2:] < 0) | (inner[:, 2:] >= count)).any() or (inner[:, 3] < inner[:, 2]).any():
        return False
    children = [np.arange(first, last + 1) for first, last in inner[:, 2:]]
    return bool(
        ((inner[:, 0] >= 0) & (inner[:, 0] < parties) & (inner[:, 1] >= 0)).all()
        and (inner[:, 2] > np.flatnonzero(nodes[:, 0] != LEAF)).all()
        and np.array_equal(np.sort(np.concatenate([*children, np.zeros(0, int)])), np.arange(1, count))
    )


def routes_state(routes: Routes) -> State:
    """Return the routes as arrays and plain values."""
    return {
        "route parties": list(routes.parties),
        "route sizes": np.array([len(tree.nodes) for tree in routes.trees], dtype=np.int64),
        "route nodes": np.concatenate([tree.nodes for tree in routes.trees]),
        "route values": np.concatenate([tree.values for tree in routes.trees]),
    }


def routes_from_state(state: State) -> Routes | None:
    """Read the routes, if the state has any; raise a ValueError if they are invalid."""
    if "route parties" not in state:
        return None
    parties = state["route parties"]
    sizes, nodes, values = (state.get(f"route {name}") for name in ("sizes", "nodes", "values"))
    if not (isinstance(parties, list) and all(isinstance(name, str) for name in parties)):
        raise ValueError("routes name no parties")
    for array, kind, shape in ((sizes, "i", 1), (nodes, "i", 2), (values, "f", 1)):
        if not (isinstance(array, np.ndarray) and array.dtype.kind == kind and array.ndim == shape):
            raise ValueError("routes are not made of arrays")
    assert isinstance(sizes, np.ndarray)
    assert isinstance(nodes, np.ndarray)
    assert isinstance(values, np.ndarray)
    if (sizes < 1).any() or not sizes.sum() == len(nodes) == len(values) or nodes.shape[1] != 4:
        raise ValueError("routes do not fit their trees")
    ends = np.cumsum(sizes)[:-1]
    trees = tuple(CrossTree(*parts) for parts in zip(np.split(nodes, ends), np.split(values, ends), strict=True))
    return Routes(tuple(parties), trees)
