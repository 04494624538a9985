"""A party's trees: grown by LightGBM on the party's own columns from given derivatives (needs the `trees` extra)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from evenhand.arrays import Array, Matrix
from evenhand.errors import DataError, MissingExtraError
from evenhand.models.tree_text import join_model, leaf_count, leaf_values, split_model

MOST_LEAVES = 256
"""A row's leaf travels as one byte."""


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError as error:
        raise MissingExtraError("A party's trees (model='trees')", "trees") from error
    return lightgbm


@dataclass(frozen=True)
class TreeShape:
    """How large a tree may grow: its leaves, its depth (0 is any), rows a leaf, and λ₂ of its leaf values."""

    leaves: int = 16
    depth: int = 6
    rows_a_leaf: int = 20
    l2: float = 1.0


class TreesModel:
    """scores = Σ over trees of the value of the row's leaf, and perhaps an intercept.

    Parameters
    ----------
    matrix
        Numbers as they are, missing ones as NaN; categories as codes 0, 1, ..., missing ones as NaN.
    categorical
        Which columns hold codes.
    intercept
        Whether there is an intercept, as the last weight.
    seed
        Of the rows that LightGBM looks at to choose where to split, where there are very many.

    Attributes
    ----------
    head, trees
        LightGBM's text: what all trees share, and each tree's own.
    weights
        The leaf values, tree after tree, and then the intercept.
    """

    def __init__(
        self,
        matrix: Matrix,
        shape: TreeShape | None = None,
        categorical: Sequence[int] = (),
        intercept: bool = False,
        seed: int = 0,
    ) -> None:
        self.rows, self.columns = matrix.shape
        self.shape = TreeShape() if shape is None else shape
        self.categorical = tuple(categorical)
        self.intercept = intercept
        self.seed = seed
        self.head = ""
        self.trees: list[str] = []
        self.weights: Array = np.zeros(int(intercept))
        self._matrix = readable(matrix)

    @property
    def effort(self) -> float:
        """Additions of one tree: every column of every row once a level."""
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
            # The same trees on every machine, whatever else runs there.
            "deterministic": True,
            "force_col_wise": True,
            "num_threads": 1,
            "seed": self.seed,
            "data_random_seed": self.seed,
            "verbosity": -1,
        }

    @cached_property
    def _binned(self) -> Any:
        """The party's columns as LightGBM keeps them; made when first needed, once for all trees."""
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

    def grow(self, gradient: Array, curvature: Array, trees: int = 1, shrinkage: float = 1.0) -> npt.NDArray[np.uint8]:
        """Grow some more trees from derivatives of the objective in each row's score; their leaf values are to come.

        Trees after the first are grown where a quadratic model of the objective would be after those before them.

        Returns
        -------
        (rows, trees): each row's leaf in each new tree.
        """
        found = np.zeros((self.rows, trees), dtype=np.uint8)
        for place in range(trees):
            booster = _lightgbm().Booster(self._parameters, self._binned)
            booster.update(fobj=partial(_given, gradient, curvature))
            self.head, (tree,) = split_model(booster.model_to_string())
            self.trees.append(tree)
            leaves = booster.predict(self._matrix, pred_leaf=True, num_threads=1)[:, 0]
            found[:, place] = leaves
            if place + 1 < trees:
                gradient = gradient + curvature * (shrinkage * leaf_values(tree))[leaves]
        return found

    def keep(self, values: Sequence[Array], intercept: float) -> None:
        """Keep as many trees as there are lists of leaf values, the oldest, with these values."""
        self.trees = self.trees[: len(values)]
        self.weights = np.concatenate([*values, np.full(int(self.intercept), intercept)])
        self.__dict__.pop("booster", None)

    def read(self, text: str) -> None:
        """Take the trees of a text; their values are the weights that somebody sets beside them."""
        self.head, self.trees = split_model(text) if text else ("", [])

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
        """All trees as a model that LightGBM reads; without any, the empty text."""
        return join_model(self.head, self.trees, self.values) if self.trees else ""

    @cached_property
    def booster(self) -> Any:
        """LightGBM's own model of these trees: for importances, SHAP values, plots."""
        return _lightgbm().Booster(model_str=self.text)

    def predict(self, matrix: Matrix) -> Array:
        scores = np.full(matrix.shape[0], self.weights[-1] if self.intercept else 0.0)
        if self.trees and matrix.shape[0]:
            scores += self.booster.predict(readable(matrix), raw_score=True, num_threads=1)
        return scores


def _given(gradient: Array, curvature: Array, *_: Any) -> tuple[Array, Array]:
    """LightGBM asks for the derivatives at its own scores, and gets those at everybody's."""
    return gradient, curvature


def readable(matrix: Matrix) -> Matrix:
    """A matrix in a form that LightGBM takes."""
    return sp.csr_matrix(matrix) if sp.issparse(matrix) else np.ascontiguousarray(matrix, dtype=np.float64)
