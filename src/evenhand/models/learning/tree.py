"""A tree as learner: one tree of LightGBM a round. With several features each leaf is a column (extra `trees`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from evenhand.arrays import Array
from evenhand.models.growth import MOST_LEAVES
from evenhand.models.learning.base import Encoding, Fitted, Nothing, PartyLearner, SavedLearner
from evenhand.models.trees import TreeShape, TreesModel, leaf_count, leaf_values, readable
from evenhand.protocol.job import Count, NotNegative, Whole


class TreeFit(Fitted):
    """One tree: the value of each row's leaf, or for each leaf whether a row is in it."""

    format: ClassVar = "tree"

    def __init__(self, text: str, leaves: int) -> None:
        self.text, self.leaves = text, leaves

    def outputs(self, columns: Any) -> Array:
        import lightgbm

        found = lightgbm.Booster(model_str=self.text)
        rows = readable(columns)
        if not self.leaves:
            return np.asarray(found.predict(rows, raw_score=True, num_threads=1), dtype=np.float64)
        places = np.asarray(found.predict(rows, pred_leaf=True, num_threads=1)).reshape(-1)
        return np.equal.outer(places, np.arange(self.leaves)).astype(np.float64)

    def saved(self) -> SavedLearner:
        return SavedLearner(self.format, f"{self.leaves}\n{self.text}".encode())

    @classmethod
    def of(cls, saved: SavedLearner) -> TreeFit:
        import lightgbm

        leaves, text = saved.content.decode().split("\n", 1)
        # Refuses a damaged text here, rather than at the first row.
        lightgbm.Booster(model_str=text)
        return cls(text, int(leaves))


@dataclass(frozen=True)
class TreeLearner(PartyLearner):
    """A tree a round.

    Parameters
    ----------
    leaves, depth, rows_a_leaf
        As those of the solver ``"trees"``.
    l2
        λ₂ of the leaf values.
    """

    leaves: Annotated[int, Field(ge=2, le=MOST_LEAVES)] = 16
    depth: Whole = 6
    rows_a_leaf: Count = 20
    l2: NotNegative = 1.0
    encoding: ClassVar[Encoding] = "as_is"

    def fit(
        self, columns: Any, response: Array, weight: Array, *, warm: Fitted | None, seed: int, features: int
    ) -> Fitted:
        leaves = self.leaves if features == 1 else min(self.leaves, features)
        shape = TreeShape(leaves, self.depth, self.rows_a_leaf, self.l2)
        model = TreesModel(columns, shape, seed=seed % 2**31)
        # A row without curvature would not count as a row.
        curvature = np.maximum(weight, 1e-8 * float(weight.max(initial=1.0)))
        model.grow(-weight * response, curvature)
        if leaf_count(model.trees[0]) == 1:
            return Nothing()
        model.keep([leaf_values(model.trees[0])], 0.0)
        return TreeFit(model.text, 0 if features == 1 else leaves)

    def load(self, saved: SavedLearner) -> Fitted:
        return TreeFit.of(saved)
