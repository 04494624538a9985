"""Split LightGBM's text models into trees, and join trees into a model.

A run's trees are grown one at a time, from derivatives that the label holder sends, and the label holder sets their
leaf values. So only the text of a tree is kept. All of a party's trees together are a model that LightGBM can read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evenhand.arrays import Array

_END = "end of trees"


def split_model(text: str) -> tuple[str, list[str]]:
    """Return a model's header, without the sizes of its trees, and the text of each tree, without its number."""
    head, found = text.split("\nTree=", 1)
    trees = found[: found.index(_END)].split("\nTree=")
    lines = [line for line in head.splitlines() if line and not line.startswith("tree_sizes=")]
    return "\n".join(lines), [tree.split("\n", 1)[1].strip("\n") for tree in trees]


def join_model(head: str, trees: Sequence[str], values: Sequence[Array]) -> str:
    """Join trees into a model, with these leaf values."""
    whole = [
        f"Tree={number}\n{with_values(tree, leaves)}\n\n\n"
        for number, (tree, leaves) in enumerate(zip(trees, values, strict=True))
    ]
    sizes = " ".join(str(len(tree.encode())) for tree in whole)
    return f"{head}\ntree_sizes={sizes}\n\n{''.join(whole)}{_END}\n\npandas_categorical:null\n"


def leaf_count(tree: str) -> int:
    return int(_entry(tree, "num_leaves"))


def split_gain(tree: str) -> float:
    """Return the gain of a tree's first split."""
    return float(_entry(tree, "split_gain").split()[0])


def leaf_values(tree: str) -> Array:
    return np.array(_entry(tree, "leaf_value").split(), dtype=np.float64)


def with_values(tree: str, values: Array) -> str:
    """Return the tree with other leaf values, written so that they read back exactly."""
    written = " ".join(repr(float(value)) for value in values)
    return "\n".join(f"leaf_value={written}" if line.startswith("leaf_value=") else line for line in tree.splitlines())


def _entry(tree: str, name: str) -> str:
    return next(line for line in tree.splitlines() if line.startswith(f"{name}=")).split("=", 1)[1]
