"""Learners of an attacker that knows the answers of some rows: linear ones, trees, and nearest neighbours.

A tree learner gets the linear guess as one more column, so it is at least as strong as the linear one. Floors are
computed by the same learner from the attacker's own columns.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.special import expit
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.preprocessing import StandardScaler

from evenhand.arrays import Array, Booleans, Matrix

TREES: Final = 40
NEIGHBOURS: Final = 3
Classifies: TypeAlias = Callable[[Matrix, Booleans, Booleans], Array]
"""Takes evidence, the truth and which rows are known; returns a score for each row."""
Regresses: TypeAlias = Callable[[Matrix, Array, Booleans], Array]
"""Takes evidence, the wanted numbers and which rows are known; returns a guess for each row."""


def dense(table: Matrix) -> Array:
    """Return a table as an array, with zeros for missing values."""
    return np.nan_to_num(np.asarray(table.toarray() if sp.issparse(table) else table, dtype=np.float64))


def side_by_side(tables: Sequence[Matrix]) -> Matrix:
    if any(sp.issparse(table) for table in tables):
        return sp.hstack([sp.csr_matrix(table) for table in tables], format="csr")
    return np.hstack([dense(table) for table in tables]) if tables else np.zeros((0, 0))


def classify(evidence: Matrix, truth: Booleans, known: Booleans) -> Array:
    """Fit a logistic regression to the known rows, and return its scores."""
    if truth[known].all() or not truth[known].any():
        return np.zeros(len(truth))
    table = evidence if sp.issparse(evidence) else dense(evidence)
    table = StandardScaler(with_mean=not sp.issparse(evidence)).fit_transform(table)
    # With few rows and many columns, a stronger penalty prevents overfitting.
    strength = 1.0 if known.sum() > 10 * table.shape[1] else 0.05
    with warnings.catch_warnings():
        # More steps change the fourth digit only.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogisticRegression(C=strength, max_iter=200, tol=1e-4).fit(table[known], truth[known])
    return np.asarray(model.decision_function(table), dtype=np.float64)


def classify_by_trees(evidence: Matrix, truth: Booleans, known: Booleans) -> Array:
    """Fit extra-trees to the known rows, with a logistic regression as one more column, and average the two."""
    if truth[known].all() or not truth[known].any():
        return np.zeros(len(truth))
    linear = classify(evidence, truth, known)
    table = side_by_side([evidence, linear[:, None]])
    model = ExtraTreesClassifier(TREES, min_samples_leaf=4, max_features=0.5, random_state=0)
    return np.asarray(model.fit(table[known], truth[known]).predict_proba(table)[:, 1] + expit(linear))


def regress(evidence: Matrix, wanted: Array, known: Booleans) -> Array:
    """Fit least squares with an intercept to the known rows, by normal equations, and return its guesses."""
    table = np.hstack([dense(evidence), np.ones((len(known), 1))])
    inner = table[known].T @ table[known]
    ridge = 1e-9 * np.trace(inner) / len(inner) * np.eye(len(inner))
    return np.asarray(table @ np.linalg.lstsq(inner + ridge, table[known].T @ wanted[known], rcond=None)[0])


def regress_by_trees(evidence: Matrix, wanted: Array, known: Booleans) -> Array:
    """Fit extra-trees to the known rows, with the guesses of least squares as further columns."""
    table = side_by_side([evidence, regress(evidence, wanted, known)])
    model = ExtraTreesRegressor(TREES, min_samples_leaf=1, max_features=0.5, random_state=0)
    taught = wanted[known].ravel() if wanted.shape[1] == 1 else wanted[known]
    guess = np.asarray(model.fit(table[known], taught).predict(table), dtype=np.float64)
    return guess.reshape(wanted.shape)


def regress_by_neighbours(evidence: Matrix, wanted: Array, known: Booleans) -> Array:
    """Return the mean of the nearest known rows: rows with equal numbers have equal answers."""
    table = np.clip(StandardScaler().fit_transform(dense(evidence)), -6.0, 6.0)
    model = KNeighborsRegressor(NEIGHBOURS, weights="distance").fit(table[known], dense(wanted)[known])
    guess: Array = dense(wanted)
    guess[~known] = model.predict(table[~known])
    return guess


def whitened(signals: Array) -> Array:
    """Return standardised signals, and their principal components: those of late rounds are nearly collinear."""
    scaled = (signals - signals.mean(axis=0)) / np.maximum(signals.std(axis=0), 1e-300)
    directions, sizes, _ = np.linalg.svd(scaled, full_matrices=False)
    kept = directions[:, sizes > 1e-9 * max(float(sizes[0]), 1e-300)]
    return np.hstack([scaled, kept / np.maximum(kept.std(axis=0), 1e-300)])
