"""Attacks on X_kᵀν, the gradient that a party receives if it does not receive ν itself.

It has one number for each column. With few rows, or for rows that few others resemble, that is enough to find ν. In the
first round n ν_i is p − 1 if the label is positive and p if not, with p the share of positives. A column's gradient is
then the sum of its entries over the positive rows, and for sparse columns only one set of rows has that sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from evenhand.arrays import Array, Booleans, Integers, Matrix
from evenhand.auditing.cases import LABEL, Case, counted
from evenhand.auditing.findings import Finding
from evenhand.auditing.learners import dense
from evenhand.auditing.views import View
from evenhand.privacy.fixed_products import ProductGrid

CERTAIN: Final = 0.999
"""Leverage above which a row's ν can be isolated from all others."""


def minimum_norm(columns: Matrix, gradient: Array) -> Array:
    """Return the minimum-norm ν that explains a gradient, X (XᵀX)⁺ g. With as many columns as rows it is ν itself."""
    table = dense(columns)
    inner = table.T @ table
    return np.asarray(table @ (np.linalg.pinv(inner, rcond=1e-10, hermitian=True) @ gradient), dtype=np.float64)


def leverages(columns: Matrix) -> Array:
    """Return the share of its own ν that `minimum_norm` recovers for each row: 1 is all of it."""
    table = dense(columns)
    inverse = np.linalg.pinv(table.T @ table, rcond=1e-10, hermitian=True)
    return np.asarray(np.einsum("ij,jk,ik->i", table, inverse, table), dtype=np.float64)


def minimal(view: View) -> list[Array]:
    """Return the minimum-norm ν for the gradients that a party received."""
    own = view.scene.columns
    return [minimum_norm(own[name], gradient[: own[name].shape[1]]) for name, gradient in view.gradients]


# -- sums over subsets of rows


MOST_SUMMANDS: Final = 16
"""Unknown rows of a column for which all sums over subsets are computed."""


def subset_labels(columns: Array, gradient: Array, labels: Array | None = None) -> Integers:
    """Return the labels that the first gradient tells with certainty: 1, −1, or 0 where it does not.

    Parameters
    ----------
    gradient
        X_kᵀν before the first step, when ν has two values.
    labels
        ±1 where the attacker knows the label, and 0 elsewhere.
    """
    found = np.zeros(len(columns), dtype=np.int64) if labels is None else np.sign(labels).astype(np.int64)
    table = _Sums(columns, gradient, found)
    if not table.usable:
        return found
    positives = table.positives()
    # What one column tells shortens the sums of others.
    for _ in range(len(columns)):
        before = np.count_nonzero(found)
        for column in table.usable:
            table.solve(column, positives, found)
        if np.count_nonzero(found) == before:
            break
    return found


class _Sums:
    """Columns as differences from their commonest value, and the sums of them over positive rows."""

    def __init__(self, columns: Array, gradient: Array, known: Integers) -> None:
        self.rows, self.gradient = len(columns), gradient * len(columns)
        self.totals = columns.sum(axis=0)
        self.base = np.array([_commonest(column) for column in columns.T])
        away = columns - self.base
        self.sizes = np.abs(away).sum(axis=0) + np.abs(self.base) * self.rows
        self.given = away[known > 0].sum(axis=0)
        self.parts = [np.flatnonzero((column != 0.0) & (known == 0)) for column in away.T]
        self.extra = [away[rows, place] for place, rows in enumerate(self.parts)]
        self.usable = [
            place
            for place, extra in enumerate(self.extra)
            if len(extra) > 0 and (len(extra) <= MOST_SUMMANDS or (extra > 0).all() or (extra < 0).all())
        ]

    def wanted(self, column: int, positives: Array | int) -> Array:
        """Return the sum of a column's differences over unknown positive rows, if there are so many positives."""
        count, unit = np.asarray(positives, dtype=np.float64), 2.0 ** -ProductGrid(self.rows).nu_bits
        # n ν on the grid of the products: of negative rows, and of positive ones.
        high, low = (np.rint((count / self.rows - less) / unit) * unit for less in (0.0, 1.0))
        found = (high * self.totals[column] - self.gradient[column]) / (high - low)
        return np.asarray(found - self.base[column] * count - self.given[column], dtype=np.float64)

    def positives(self) -> int:
        """Return how many rows are positive: the number at which sums fit best."""
        candidates = np.arange(1, self.rows, dtype=np.float64)
        misfit = np.zeros(len(candidates))
        for column in self.usable:
            extra, wanted = self.extra[column], self.wanted(column, candidates)
            if np.ptp(extra) == 0.0:
                count = wanted / extra[0]
                misfit += np.abs(count - np.clip(np.rint(count), 0, len(extra)))
            elif len(extra) <= MOST_SUMMANDS:
                sums = np.sort(_subset_sums(extra)[1])
                near = np.clip(np.searchsorted(sums, wanted), 1, len(sums) - 1)
                apart = np.minimum(np.abs(wanted - sums[near - 1]), np.abs(wanted - sums[near]))
                misfit += np.minimum(1.0, apart * len(sums) / max(float(np.ptp(sums)), 1e-300))
        return int(candidates[np.argmin(misfit)])

    def solve(self, column: int, positives: int, found: Integers) -> None:
        """Find which rows of a column are positive, and keep what all fitting subsets agree on."""
        rows, extra = self.parts[column], self.extra[column]
        rest = self.wanted(column, positives) - extra[found[rows] > 0].sum()
        unknown = found[rows] == 0
        rows, extra = rows[unknown], extra[unknown]
        # The fitted intercept is not exact, so a sum is off by a small part of the column's size.
        within = 1e-6 * float(self.sizes[column])
        if 0 < len(extra) <= MOST_SUMMANDS:
            subsets, sums = _subset_sums(extra)
            fitting = subsets[np.abs(sums - rest) <= within]
            if len(fitting):
                agreed = (fitting == fitting[0]).all(axis=0)
                found[rows[agreed]] = np.where(fitting[0][agreed], 1, -1)
        elif len(extra) and ((extra > 0).all() or (extra < 0).all()):
            for total, label in ((0.0, -1), (float(extra.sum()), 1)):
                if abs(rest - total) <= within:
                    found[rows] = label


def _commonest(column: Array) -> float:
    values, counts = np.unique(column, return_counts=True)
    return float(values[np.argmax(counts)])


def _subset_sums(extra: Array) -> tuple[Booleans, Array]:
    """Return all subsets, and the sum of each."""
    subsets = (np.arange(2 ** len(extra))[:, None] >> np.arange(len(extra))) & 1 > 0
    return subsets, np.asarray(subsets @ extra, dtype=np.float64)


# -- the attacks


def least_norm(case: Case) -> Iterator[Finding]:
    """The shortest ν that explains the gradients, and its sign."""
    found = [nu[case.rows] for nu in minimal(case.view)]
    for question in case.questions if found else ():
        for count in sorted({1, len(found)}) if question.target == LABEL else ():
            guess = -np.mean([nu / max(float(nu.std()), 1e-300) for nu in found[:count]], axis=0)
            yield case.told_apart(question, "gradient", count, guess)


def leverage(case: Case) -> Iterator[Finding]:
    """Count rows whose ν the gradient gives away, whatever the other rows are."""
    for name in dict.fromkeys(name for name, _ in case.view.gradients) if not case.view.knows_labels else ():
        columns = case.scene.columns[name]
        alone = int((leverages(columns) > CERTAIN).sum())
        target = "the label of people whom a rare category sets apart"
        yield counted(case.view.name, target, "gradient", 1, alone, columns.shape[0])


def subset_sums(case: Case) -> Iterator[Finding]:
    """Find the set of positive rows that the first gradient is the sum of, given half of the labels."""
    scene = case.scene
    first = dict(reversed(case.view.gradients)) if not case.view.knows_labels else {}
    for name, gradient in first.items():
        table = dense(ProductGrid(len(scene.labels)).on_grid(scene.columns[name]))
        found = subset_labels(table, gradient[: table.shape[1]], np.where(scene.known, scene.labels, 0.0))
        right = float(np.sign(found * scene.labels)[~scene.known].sum())
        target, asked = "the labels of people in sparse columns", int((~scene.known).sum())
        yield counted(case.view.name, target, "gradient", 1, max(int(right), 0), asked)
