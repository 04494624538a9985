"""Fill columns that cover nothing, where the receiver of a sum would otherwise read the other parties' columns.

A column that is the same for all rows, or for all but a few, leaves a masked sum to the others. In its place the party
sends a random linear function of its own columns, which the receiver does not know. It is a part of the model like any
other: it has a coefficient, and scores new rows.

Columns of one length would cancel: a party with a single column sends it, or its opposite, in every round, and the
difference of two sums is the other parties' alone. So each column has a length of its own.

What is drawn here follows from the party's own columns and the order of their rows. The receiver does not know the
columns, and a resumed run, which has its rows in the same order, finds the same numbers again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import scipy.sparse as sp
from safetensors.numpy import load, save

from evenhand.arrays import Array, Booleans
from evenhand.errors import DataError
from evenhand.models.learning.base import Fitted, SavedLearner

LEAST_ROWS = 5
"""Fewest rows in which a column differs from its most frequent value."""
OF_ROUNDS, OF_MODELS = 0.5, 0.1
"""By how much the lengths of columns differ from one: of rounds, and of the models of a round, which share weights."""
LEAST_SPREAD = 0.1
"""Least spread of a column that covers others in a sum, in units of the response's spread."""


def length(columns: Any, seed: int, width: float, place: int = 0) -> float:
    """Return a length near one, which only who knows the columns can tell."""
    return float(own_random(columns, seed, place).uniform(1.0 - width, 1.0 + width))


def own_random(columns: Any, seed: int, place: int = 0) -> np.random.Generator:
    """Return a generator that only who knows the columns, row by row, can repeat.

    Who knows only how often each value occurs cannot: of a column with two values, that is one number. What is drawn
    may not follow from models: their last digits differ between machines, and then everything that is drawn would.
    """
    if hasattr(columns, "columns"):
        content = pd.util.hash_pandas_object(columns.astype(str), index=False).to_numpy()
    else:
        along = numbers(columns) @ np.random.default_rng(seed).standard_normal(columns.shape[1])
        content = np.round(along / max(float(np.abs(along).max(initial=0.0)), np.finfo(float).tiny), 6) + 0.0
    digest = hashlib.sha256(content.tobytes()).digest()
    return np.random.default_rng([seed, place, int.from_bytes(digest, "big")])


def explained_spread(outputs: Array, response: Array, weight: Array) -> Array:
    """Return the spread of each output in units of the response's, at least `LEAST_SPREAD`.

    In a sum all columns have one coefficient: with unit spread, a model that found little would add as much noise as
    the others add of what they found.
    """
    mean = np.average(response, weights=weight)
    spread = float(np.sqrt(np.average((response - mean) ** 2, weights=weight)))
    return np.asarray(np.clip(outputs.std(axis=0) / (spread or 1.0), LEAST_SPREAD, 1.0))


def covering(outputs: Array) -> Booleans:
    """Return which columns of outputs (rows, features) are different enough to cover others in a sum."""
    largest = np.maximum(np.abs(outputs).max(axis=0, initial=0.0), np.finfo(float).tiny)
    columns = np.round(outputs / largest, 9).T
    most = [int(np.unique(one, return_counts=True)[1].max()) for one in columns]
    return len(outputs) - np.array(most) >= LEAST_ROWS


class CoveredFit(Fitted):
    """A fitted model with random linear functions in place of some of its outputs.

    Parameters
    ----------
    inner
        The model.
    filled
        Which outputs are replaced.
    weights
        (columns, replaced outputs), of the party's columns.
    """

    format: ClassVar = "covered"

    def __init__(self, inner: Fitted, filled: Booleans, weights: Array) -> None:
        self.inner, self.filled, self.weights = inner, filled, weights

    @classmethod
    def drawn(cls, inner: Fitted, filled: Booleans, columns: Any, seed: int) -> CoveredFit:
        """Draw random functions of the party's columns, each column in units of its own spread."""
        if not sp.issparse(columns) and not isinstance(columns, np.ndarray):
            raise DataError("its model gives almost all rows the same, which hides nothing in a sum")
        spread = np.asarray(numbers(columns).std(axis=0))
        units = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0.0)
        drawn = own_random(columns, seed).standard_normal((len(units), int(filled.sum())))
        return cls(inner, filled, units[:, None] * drawn)

    @property
    def decay(self) -> Any:
        """What the model of the next round learns from this one; see `NetworkLearner`."""
        return getattr(self.inner, "decay", None)

    def outputs(self, columns: Any) -> Array:
        found = np.zeros((columns.shape[0], len(self.filled)))
        if not self.filled.all():
            own = self.inner.outputs(columns)
            own = own[:, None] if own.ndim == 1 else own
            found[:, : own.shape[1]] = own
        found[:, self.filled] = numbers(columns) @ self.weights
        return found

    def saved(self) -> SavedLearner:
        inner = self.inner.saved()
        parts = {"filled": self.filled, "weights": self.weights, "inner": np.frombuffer(inner.content, np.uint8)}
        return SavedLearner(self.format, save({**parts, "format": np.frombuffer(inner.format.encode(), np.uint8)}))

    @classmethod
    def of(cls, saved: SavedLearner, read: Callable[[SavedLearner], Fitted]) -> CoveredFit:
        found = load(saved.content)
        inner = read(SavedLearner(found["format"].tobytes().decode(), found["inner"].tobytes()))
        return cls(inner, found["filled"], found["weights"])


def numbers(columns: Any) -> Array:
    """Return encoded columns as an array, with zeros for missing values."""
    return np.nan_to_num(columns.toarray() if sp.issparse(columns) else np.asarray(columns, dtype=np.float64))
