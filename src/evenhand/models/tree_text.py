"""LightGBM's text models, taken apart into trees and put together again.

A run's trees are grown one at a time, each from derivatives that somebody else sent, and their leaf values are somebody
else's too. What is kept of a tree is therefore its text alone; all of a party's trees together are again a model that
LightGBM reads, on its own as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evenhand.arrays import Array

_END = "end of trees"


def split_model(text: str) -> tuple[str, list[str]]:
    """The head of a model, without the sizes of its trees, and the text of each tree, without its number."""
    head, found = text.split("\nTree=", 1)
    trees = found[: found.index(_END)].split("\nTree=")
    lines = [line for line in head.splitlines() if line and not line.startswith("tree_sizes=")]
    return "\n".join(lines), [tree.split("\n", 1)[1].strip("\n") for tree in trees]


def join_model(head: str, trees: Sequence[str], values: Sequence[Array]) -> str:
    """A model of these trees, with these leaf values."""
    whole = [
        f"Tree={number}\n{with_values(tree, leaves)}\n\n\n"
        for number, (tree, leaves) in enumerate(zip(trees, values, strict=True))
    ]
    sizes = " ".join(str(len(tree.encode())) for tree in whole)
    return f"{head}\ntree_sizes={sizes}\n\n{''.join(whole)}{_END}\n\npandas_categorical:null\n"


def leaf_count(tree: str) -> int:
    return int(_entry(tree, "num_leaves"))


def split_gain(tree: str) -> float:
    """What the first split of a tree gains."""
    return float(_entry(tree, "split_gain").split()[0])


def leaf_values(tree: str) -> Array:
    return np.array(_entry(tree, "leaf_value").split(), dtype=np.float64)


def with_values(tree: str, values: Array) -> str:
    """The same tree with other leaf values, written so that they are read to the last bit."""
    written = " ".join(repr(float(value)) for value in values)
    return "\n".join(f"leaf_value={written}" if line.startswith("leaf_value=") else line for line in tree.splitlines())


def _entry(tree: str, name: str) -> str:
    return next(line for line in tree.splitlines() if line.startswith(f"{name}=")).split("=", 1)[1]
