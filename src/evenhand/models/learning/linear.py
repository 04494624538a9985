"""A linear learner: weighted ridge regression on the party's columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from safetensors.numpy import load, save
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.linalg import LinearOperator, lsqr

from evenhand.arrays import Array
from evenhand.models.learning.base import Encoding, Fitted, Nothing, PartyLearner, SavedLearner
from evenhand.protocol.job import NotNegative

MOST_COLUMNS = 2000
"""Most columns for which the normal equations are formed; above it they are solved by iteration."""
RIDGE = 1e-10
"""Added to the unit diagonal of the normal equations, so that dependent columns share their weight."""


class LinearFit(Fitted):
    """Weights of columns, and an intercept."""

    format: ClassVar = "linear"

    def __init__(self, weights: Array, intercept: float) -> None:
        self.weights, self.intercept = weights, intercept

    def outputs(self, columns: Any) -> Array:
        return np.asarray(columns @ self.weights) + self.intercept

    def saved(self) -> SavedLearner:
        return SavedLearner(self.format, save({"weights": self.weights, "intercept": np.array([self.intercept])}))

    @classmethod
    def of(cls, saved: SavedLearner) -> LinearFit:
        found = load(saved.content)
        return cls(found["weights"], float(found["intercept"][0]))


@dataclass(frozen=True)
class LinearLearner(PartyLearner):
    """A linear model.

    Parameters
    ----------
    l2
        Ridge on the weights of a round, for each row's weight of one.
    curves
        Whether numbers are curves rather than standardised.
    """

    l2: NotNegative = 1e-6
    curves: bool = False

    @property
    def encoding(self) -> Encoding:  # type: ignore[override]
        return "curves" if self.curves else "standard"

    def fit(
        self, columns: Any, response: Array, weight: Array, *, warm: Fitted | None, seed: int, features: int
    ) -> Fitted:
        total = float(weight.sum())
        means = np.asarray(columns.T @ weight) / total
        mean = float(weight @ response) / total
        right = np.asarray(columns.T @ (weight * (response - mean)))
        if columns.shape[1] > MOST_COLUMNS:
            weights = _iterated(columns, means, response - mean, weight, self.l2 * total)
        else:
            weighted = sp.diags_array(weight) @ columns if sp.issparse(columns) else weight[:, None] * columns
            gram = columns.T @ weighted
            gram = gram.toarray() if sp.issparse(gram) else np.asarray(gram)
            gram = gram - total * np.outer(means, means) + self.l2 * total * np.eye(len(means))
            weights = _solved(gram, right)
        if not weights.any():
            return Nothing()
        return LinearFit(weights, mean - float(means @ weights))

    def load(self, saved: SavedLearner) -> Fitted:
        return LinearFit.of(saved)


def _solved(gram: Array, right: Array) -> Array:
    size = np.sqrt(np.maximum(gram.diagonal(), 0.0))
    units = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0.0)
    scaled = gram * units * units[:, None]
    np.fill_diagonal(scaled, 1.0 + RIDGE)
    return np.asarray(units * cho_solve(cho_factor(scaled), units * right))


def _iterated(columns: Any, means: Array, response: Array, weight: Array, ridge: float) -> Array:
    roots = np.sqrt(weight)
    operator = LinearOperator(
        columns.shape,
        matvec=lambda v: roots * (np.asarray(columns @ v).ravel() - means @ v.ravel()),
        rmatvec=lambda u: np.asarray(columns.T @ (roots * u)).ravel() - means * (roots @ u),
        dtype=np.float64,
    )
    return np.asarray(lsqr(operator, roots * response, damp=float(np.sqrt(ridge)))[0])
