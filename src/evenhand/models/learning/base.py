"""The contract of a party's learner, and of what it fits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from evenhand.arrays import Array
from evenhand.protocol.job import CheckedOptions

Encoding = Literal["standard", "curves", "as_is", "raw"]
"""How a party's columns reach its learner: numbers standardised or as curves, codes of categories, or raw."""


@dataclass(frozen=True)
class SavedLearner:
    """A fitted model as bytes.

    Attributes
    ----------
    format
        How to read them.
    content
        The bytes; never a pickle.
    """

    format: str
    content: bytes


class Fitted(ABC):
    """A model that was fitted to the party's rows."""

    @abstractmethod
    def outputs(self, columns: Any) -> Array:
        """Return what the model gives each row: (rows,) or (rows, features)."""

    @abstractmethod
    def saved(self) -> SavedLearner:
        """Return the model as bytes."""


class Nothing(Fitted):
    """In place of a model that could not be fitted: zero for each row."""

    format: ClassVar = "nothing"

    def outputs(self, columns: Any) -> Array:
        return np.zeros(columns.shape[0])

    def saved(self) -> SavedLearner:
        return SavedLearner(self.format, b"")


@dataclass(frozen=True)
class PartyLearner(CheckedOptions, ABC):
    """A kind of model with its settings, chosen by a party. Other participants see columns of its outputs only."""

    encoding: ClassVar[Encoding] = "standard"

    @abstractmethod
    def fit(
        self, columns: Any, response: Array, weight: Array, *, warm: Fitted | None, seed: int, features: int
    ) -> Fitted:
        """Fit a model by weighted least squares.

        Parameters
        ----------
        columns
            The party's rows.
        response, weight
            What to predict, and how much each row counts. A row of weight zero is not shown to the model.
        warm
            The model of the round before.
        seed
            Seed of everything that is drawn.
        features
            Number of outputs that are asked for. A model with fewer may return fewer.
        """

    @abstractmethod
    def load(self, saved: SavedLearner) -> Fitted:
        """Read a fitted model of this learner."""

    @property
    def words(self) -> str:
        """Describe the learner, for the party's own records."""
        return repr(self)
