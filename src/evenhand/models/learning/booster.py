"""A fitted model of LightGBM, kept as its text (extra `trees`)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from evenhand.arrays import Array
from evenhand.models.learning.base import Fitted, SavedLearner


class BoosterFit(Fitted):
    """A model of LightGBM, read from its text."""

    format: ClassVar = "lightgbm"

    def __init__(self, text: str) -> None:
        self.text = text

    def outputs(self, columns: Any) -> Array:
        import lightgbm

        return np.asarray(lightgbm.Booster(model_str=self.text).predict(columns, num_threads=1), dtype=np.float64)

    def saved(self) -> SavedLearner:
        return SavedLearner(self.format, self.text.encode())

    @classmethod
    def of(cls, saved: SavedLearner) -> BoosterFit:
        import lightgbm

        text = saved.content.decode()
        # Refuses a damaged text here, rather than at the first row.
        lightgbm.Booster(model_str=text)
        return cls(text)
