"""A party's trees: grown by LightGBM on the party's own columns from given derivatives (needs the `trees` extra)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from evenhand.arrays import Array, Booleans, Integers, Matrix
from evenhand.errors import DataError, MissingExtraError
from evenhand.models.absent_leaf import Newton, with_absent_leaf

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


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError as error:
        raise MissingExtraError("A party's trees (model='trees')", "trees") from error
    return lightgbm


@dataclass(frozen=True)
class TreeShape:
    """Limits of a tree: its leaves, its depth (0 is unlimited), rows in a leaf, and λ₂ of its leaf values."""

    leaves: int = 16
    depth: int = 6
    rows_a_leaf: int = 20
    l2: float = 1.0


class TreesModel:
    """Trees with scores = Σ over trees of the value of the row's leaf, plus an optional intercept.

    Parameters
    ----------
    matrix
        Numbers unscaled, categories as codes 0, 1, ...; missing values are NaN.
    categorical
        Columns that hold category codes.
    intercept
        Whether there is an intercept, as the last weight.
    monotone
        For each column 1 if scores may only rise with it, −1 if they may only fall, else 0; empty means all 0.
    seed
        Seed for sampling rows when LightGBM chooses bins on very large tables.
    marks_absence
        Whether the last column marks rows that the party lacks. If enough are absent, they have a leaf of their own in
        each tree.

    Attributes
    ----------
    head, trees
        LightGBM's text: the header that all trees share, and the text of each tree.
    weights
        The leaf values, tree after tree, and then the intercept.
    splits
        For trees that cross parties: the text of each offered split, as a tree of two leaves; for relayed trees the
        whole trees, of the giver and of the taker.
    routes
        Structure of the trees that cross parties (`across.Routes`), at the label holder only.
    """

    state_fields: ClassVar = {"head": str, "trees": list[str], "splits": list[str]}

    def __init__(
        self,
        matrix: Matrix,
        shape: TreeShape | None = None,
        categorical: Sequence[int] = (),
        intercept: bool = False,
        seed: int = 0,
        monotone: Sequence[int] = (),
        marks_absence: bool = False,
    ) -> None:
        self.rows, self.columns = matrix.shape
        self._there: Booleans = np.ones(self.rows, dtype=bool)
        if marks_absence:
            last = matrix[:, [self.columns - 1]]
            self._there = np.asarray((last.toarray() if sp.issparse(last) else last).ravel() == 0.0)
        self.shape = TreeShape() if shape is None else shape
        self.categorical = tuple(categorical)
        self.intercept = intercept
        self.seed = seed
        self.monotone = tuple(monotone)
        self.head = ""
        self.trees: list[str] = []
        self.splits: list[str] = []
        self.routes: object | None = None
        self.weights: Array = np.zeros(int(intercept))
        self._matrix = readable(matrix)

    @property
    def intercept_value(self) -> float:
        return float(self.weights[-1]) if self.intercept else 0.0

    @property
    def effort(self) -> float:
        """Number of additions of one tree: every column of every row once a level."""
        return float(self.rows * self.columns * max(self.shape.depth, 4))

    @cached_property
    def _parameters(self) -> dict[str, Any]:
        return {
            "objective": "none",
            "learning_rate": 1.0,
            "num_leaves": self.shape.leaves,
            "max_depth": self.shape.depth or -1,
            "min_data_in_leaf": self.shape.rows_a_leaf,
            "lambda_l2": self.shape.l2,
            "feature_pre_filter": False,
            **({"monotone_constraints": list(self.monotone)} if any(self.monotone) else {}),
            # Deterministic: the same trees on every machine.
            "deterministic": True,
            "force_col_wise": True,
            "num_threads": 1,
            "seed": self.seed,
            "data_random_seed": self.seed,
            "verbosity": -1,
        }

    @cached_property
    def _binned(self) -> Any:
        """The party's columns as a LightGBM dataset, created on first use and shared by all trees."""
        if not self.columns:
            raise DataError("there is no column to grow trees on")
        label = np.zeros(self.rows)
        made = _lightgbm().Dataset(
            self._matrix,
            label=label,
            categorical_feature=list(self.categorical),
            params=self._parameters,
            free_raw_data=False,
        )
        return made.construct()

    def grow(
        self, gradient: Array, curvature: Array, trees: int = 1, shrinkage: float = 1.0, rows_a_leaf: int = 0
    ) -> npt.NDArray[np.uint8]:
        """Grow trees from derivatives of the objective in each row's score; their leaf values are set later.

        Each tree after the first uses the derivatives of a quadratic model of the objective, after the trees before it.

        Parameters
        ----------
        rows_a_leaf
            Fewest rows in a leaf, if that is more than the shape asks for.

        Returns
        -------
        (rows, trees): each row's leaf in each new tree.
        """
        parameters = {**self._parameters, "min_data_in_leaf": max(rows_a_leaf, self.shape.rows_a_leaf)}
        found = np.zeros((self.rows, trees), dtype=np.uint8)
        for place in range(trees):
            tree, leaves = self._grown_whole(parameters, gradient, curvature)
            self.trees.append(tree)
            found[:, place] = leaves
            if place + 1 < trees:
                gradient = gradient + curvature * (shrinkage * leaf_values(tree))[leaves]
        return found

    def _grown_whole(
        self, parameters: dict[str, Any], gradient: Array, curvature: Array
    ) -> tuple[str, npt.NDArray[np.int32]]:
        """Grow one tree on all rows, with a leaf for absent rows if there are enough for a leaf."""
        absent, there = ~self._there, self._there
        fewest = max(1, parameters["min_data_in_leaf"])
        if int(absent.sum()) < fewest or int(there.sum()) < fewest or parameters["num_leaves"] < 3:
            return self._grown(parameters, self._binned, self._matrix, gradient, curvature)
        fewer = {**parameters, "num_leaves": parameters["num_leaves"] - 1}
        tree, own = self._grown(fewer, self._binned_there, self._matrix_there, gradient[there], curvature[there])
        sums = (Newton.of(gradient, curvature, rows, self.shape.l2) for rows in (absent, there))
        leaves = np.full(self.rows, leaf_count(tree), dtype=np.int32)
        leaves[there] = own
        return with_absent_leaf(tree, self.columns - 1, *sums), leaves

    @cached_property
    def _matrix_there(self) -> Matrix:
        return self._matrix[np.flatnonzero(self._there)]

    @cached_property
    def _binned_there(self) -> Any:
        """The rows that the party has, with the bins of all."""
        return self._binned.subset(np.flatnonzero(self._there)).construct()

    def _grown(
        self, parameters: dict[str, Any], rows: Any, matrix: Matrix, gradient: Array, curvature: Array
    ) -> tuple[str, npt.NDArray[np.int32]]:
        """Grow one tree on some rows; return its text, and each row's leaf."""
        booster = _lightgbm().Booster(parameters, rows)
        booster.update(fobj=partial(_given, gradient, curvature))
        self.head, (tree,) = split_model(booster.model_to_string())
        return tree, booster.predict(matrix, pred_leaf=True, num_threads=1)[:, 0]

    def offer(
        self, nodes: npt.NDArray[np.uint8], count: int, gradient: Array, curvature: Array
    ) -> tuple[Array, Booleans]:
        """Find the best split of each of `count` nodes; `nodes` has each row's node, other numbers for no node.

        Returns
        -------
        (count,): the gain of each split, zero if there is none; and which rows go right. Splits with a gain are
        numbered, from the first one that was offered.
        """
        gains, right = np.zeros(count), np.zeros(self.rows, dtype=bool)
        stump = {**self._parameters, "num_leaves": 2, "max_depth": -1}
        for node in range(count):
            here = np.flatnonzero(nodes == node)
            if len(here) < 2 * self.shape.rows_a_leaf:
                continue
            # Most trees begin with all rows: they need no copy.
            rows = self._binned if len(here) == self.rows else self._binned.subset(here).construct()
            tree, leaves = self._grown(stump, rows, self._matrix[here], gradient[here], curvature[here])
            if leaf_count(tree) == 2:
                gains[node] = split_gain(tree)
                right[here] = leaves == 1
                self.splits.append(tree)
        return gains, right

    def grow_relay_leaves(self, gradient: Array, curvature: Array, relay_leaves: int) -> npt.NDArray[np.uint8]:
        """Grow a tree of few leaves, as one more split: the coarse partition that another party grows inside.

        Returns
        -------
        Each row's leaf.
        """
        few = {**self._parameters, "num_leaves": relay_leaves}
        tree, leaves = self._grown(few, self._binned, self._matrix, gradient, curvature)
        self.splits.append(tree)
        return leaves.astype(np.uint8)

    def grow_inside(
        self, relay_leaves: npt.NDArray[np.uint8], count: int, gradient: Array, curvature: Array, leaves: int
    ) -> tuple[npt.NDArray[np.uint8], Integers]:
        """Grow a tree in each of `count` relay leaves.

        Trees with at least one split are added to the splits, in the order of the relay leaves.

        Returns
        -------
        Each row's leaf in the tree of its relay leaf, and the number of leaves of each such tree.
        """
        found, counts = np.zeros(self.rows, dtype=np.uint8), np.ones(count, dtype=np.int64)
        parameters = {**self._parameters, "num_leaves": leaves}
        for relay_leaf in range(count):
            here = np.flatnonzero(relay_leaves == relay_leaf)
            if len(here) < 2 * self.shape.rows_a_leaf:
                continue
            rows = self._binned.subset(here).construct()
            tree, own = self._grown(parameters, rows, self._matrix[here], gradient[here], curvature[here])
            if leaf_count(tree) > 1:
                found[here], counts[relay_leaf] = own, leaf_count(tree)
                self.splits.append(tree)
        return found, counts

    def keep_splits(self, numbers: Sequence[int]) -> None:
        """Keep only these splits, in this order."""
        self.splits = [self.splits[number] for number in numbers]

    def sides(self, matrix: Matrix) -> npt.NDArray[np.uint8]:
        """Return (rows, splits): 1 where a row goes right; for a split with more sides, the number of the side."""
        if not self.splits or not matrix.shape[0]:
            return np.zeros((matrix.shape[0], len(self.splits)), dtype=np.uint8)
        booster = _lightgbm().Booster(model_str=self.splits_text)
        found = booster.predict(readable(matrix), pred_leaf=True, num_threads=1)
        return np.asarray(found, dtype=np.uint8).reshape(matrix.shape[0], -1)

    @property
    def splits_text(self) -> str:
        """All splits as a model that LightGBM can read; empty if there are none."""
        return (
            join_model(self.head, self.splits, [np.zeros(leaf_count(one)) for one in self.splits])
            if self.splits
            else ""
        )

    def keep(self, values: Sequence[Array], intercept: float) -> None:
        """Set the leaf values of the oldest trees, and remove trees without values."""
        self.trees = self.trees[: len(values)]
        self.weights = np.concatenate([*values, np.full(int(self.intercept), intercept)])
        self.__dict__.pop("booster", None)

    def read(self, text: str, splits: str = "") -> None:
        """Read the trees of a text; their values are the weights, which are set separately."""
        self.trees = self.splits = []
        if splits:
            self.head, self.splits = split_model(splits)
        if text:
            self.head, self.trees = split_model(text)

    @property
    def leaf_counts(self) -> list[int]:
        return [leaf_count(tree) for tree in self.trees]

    @property
    def values(self) -> list[Array]:
        """The leaf values of each tree."""
        ends = np.cumsum(self.leaf_counts)
        return np.split(self.weights[: ends[-1]], ends[:-1]) if len(ends) else []

    @property
    def text(self) -> str:
        """All trees as a model that LightGBM can read; empty if there are none."""
        return join_model(self.head, self.trees, self.values) if self.trees else ""

    @cached_property
    def booster(self) -> Any:
        """LightGBM's own model of these trees: for importances, SHAP values, plots."""
        return _lightgbm().Booster(model_str=self.text)

    def importances(self, kind: str = "gain") -> Array:
        """Return each column's importance: ``"gain"``, the sum of its splits' gains, or ``"split"``, their number."""
        texts = [text for text in (self.text, self.splits_text) if text]
        found = [_lightgbm().Booster(model_str=text).feature_importance(kind) for text in texts]
        return np.sum([np.zeros(self.columns), *found], axis=0)

    def contributions(self, matrix: Matrix) -> Array:
        """Return SHAP values of the party's own trees, (rows, columns + 1), in scores; the last column is the mean.

        Trees that cross parties are not included: no party alone can compute theirs.
        """
        if not self.trees:
            return np.zeros((matrix.shape[0], self.columns + 1))
        found = self.booster.predict(readable(matrix), pred_contrib=True, num_threads=1)
        return np.asarray(found.toarray() if sp.issparse(found) else found, dtype=np.float64)

    def predict(self, matrix: Matrix) -> Array:
        scores = np.full(matrix.shape[0], self.weights[-1] if self.intercept else 0.0)
        if self.trees and matrix.shape[0]:
            scores += self.booster.predict(readable(matrix), raw_score=True, num_threads=1)
        return scores


def _given(gradient: Array, curvature: Array, *_: Any) -> tuple[Array, Array]:
    """Return the derivatives at the joint scores, instead of those at LightGBM's own scores."""
    return gradient, curvature


def readable(matrix: Matrix) -> Matrix:
    """Convert a matrix to a form that LightGBM takes."""
    return sp.csr_matrix(matrix) if sp.issparse(matrix) else np.ascontiguousarray(matrix, dtype=np.float64)
