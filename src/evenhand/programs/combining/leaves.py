"""Leaves of several trees as columns of a tiny problem: a column per leaf, with ones for its rows.

A row is in one leaf of each tree. With T trees a product costs T look-ups a row and a Gram matrix T² / 2 additions,
for any number of leaves.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from evenhand.arrays import Array, Integers


class LeafColumns:
    """Columns of zeros and ones.

    Parameters
    ----------
    leaves
        (n, T), bytes: each row's leaf in each tree.
    counts
        Leaves of each tree.
    """

    def __init__(self, leaves: Any, counts: Integers) -> None:
        self.leaves = np.ascontiguousarray(leaves)
        self.counts = counts
        self.first: Integers = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
        self.width = int(np.sum(counts))

    def some(self, rows: Integers) -> LeafColumns:
        return LeafColumns(self.leaves[rows], self.counts)

    def scores(self, coefficients: Array) -> Array:
        return _scores(self.leaves, self.first, coefficients)

    def sums(self, values: Array) -> Array:
        return _sums(self.leaves, self.first, self.width, values)

    def tilted_sums(self, weights: Array, stratum: Integers, values: Array) -> Array:
        return weights @ _stratum_sums(self.leaves, self.first, self.width, stratum, weights.shape[1], values)

    def add_gram(self, onto: Array, weights: Array) -> Array:
        return onto + _gram(self.leaves, self.first, self.width, weights)

    def whitened_gram(self, root: Array, weights: Array) -> Array:
        return root.T @ _gram(self.leaves, self.first, self.width, weights) @ root

    def quadratic_forms(self, matrix: Array) -> Array:
        """Return c_iᵀ M c_i of each row c_i; M is symmetric."""
        return _quadratic_forms(self.leaves, self.first, matrix)

    def ridge(self, share: float, constant: float, curvature: Array) -> Array:
        """Return (p, p): the matrix of Σ_leaves (share · curvature + constant) · value², in coefficients."""
        return np.diag(share * self.sums(curvature) + constant)

    def leaf_values(self, coefficients: Array) -> Array:
        """Return the value of each leaf."""
        return coefficients


class TiedColumns:
    """Leaves with values = ties · coefficients, so that some keep fixed proportions.

    Parameters
    ----------
    ties
        (leaves, p).
    """

    def __init__(self, leaves: LeafColumns, ties: Array) -> None:
        self.under, self.ties = leaves, ties
        self.leaves = leaves.leaves
        self.width = ties.shape[1]

    def some(self, rows: Integers) -> TiedColumns:
        return TiedColumns(self.under.some(rows), self.ties)

    def scores(self, coefficients: Array) -> Array:
        return self.under.scores(self.ties @ coefficients)

    def sums(self, values: Array) -> Array:
        return self.under.sums(values) @ self.ties

    def tilted_sums(self, weights: Array, stratum: Integers, values: Array) -> Array:
        return self.under.tilted_sums(weights, stratum, values) @ self.ties

    def add_gram(self, onto: Array, weights: Array) -> Array:
        return onto + self.under.whitened_gram(self.ties, weights)

    def whitened_gram(self, root: Array, weights: Array) -> Array:
        return self.under.whitened_gram(self.ties @ root, weights)

    def quadratic_forms(self, matrix: Array) -> Array:
        return self.under.quadratic_forms(self.ties @ matrix @ self.ties.T)

    def ridge(self, share: float, constant: float, curvature: Array) -> Array:
        return self.ties.T @ self.under.ridge(share, constant, curvature) @ self.ties

    def leaf_values(self, coefficients: Array) -> Array:
        return self.ties @ coefficients


def tied(leaves: LeafColumns, proportions: Array, trees: Integers) -> TiedColumns:
    """Tie the leaves of some trees to given proportions: one coefficient for each such tree, after all others.

    A tree with proportions of zero gets no coefficient.
    """
    of_tree = np.repeat(np.arange(len(leaves.counts)), leaves.counts)
    free = np.eye(leaves.width)[:, ~np.isin(of_tree, trees)]
    fixed = [np.where(of_tree == tree, proportions, 0.0) for tree in trees]
    kept = [column for column in fixed if column.any()]
    return TiedColumns(leaves, np.column_stack([free, *kept]))


# Compiled code is cached on disk. Rows are the outer loop: their leaves are contiguous.
_compiled = numba.njit(nogil=True, cache=True, error_model="numpy")


@_compiled
def _scores(leaves: Any, first: Any, coefficients: Any) -> Any:
    scores = np.zeros(len(leaves))
    for row in range(len(leaves)):
        total = 0.0
        for tree in range(len(first)):
            total += coefficients[first[tree] + leaves[row, tree]]
        scores[row] = total
    return scores


@_compiled
def _sums(leaves: Any, first: Any, width: int, values: Any) -> Any:
    sums = np.zeros(width)
    for row in range(len(leaves)):
        for tree in range(len(first)):
            sums[first[tree] + leaves[row, tree]] += values[row]
    return sums


@_compiled
def _stratum_sums(leaves: Any, first: Any, width: int, stratum: Any, strata: int, values: Any) -> Any:
    sums = np.zeros((strata, width))
    for row in range(len(leaves)):
        for tree in range(len(first)):
            sums[stratum[row], first[tree] + leaves[row, tree]] += values[row]
    return sums


@_compiled
def _gram(leaves: Any, first: Any, width: int, weights: Any) -> Any:
    gram = np.zeros((width, width))
    for row in range(len(leaves)):
        weight = weights[row]
        if weight == 0.0:
            continue
        for tree in range(len(first)):
            mine = first[tree] + leaves[row, tree]
            for other in range(tree + 1):
                gram[mine, first[other] + leaves[row, other]] += weight
    for mine in range(width):
        for other in range(mine):
            gram[other, mine] = gram[mine, other]
    return gram


@_compiled
def _quadratic_forms(leaves: Any, first: Any, matrix: Any) -> Any:
    forms = np.zeros(len(leaves))
    for row in range(len(leaves)):
        total = 0.0
        for tree in range(len(first)):
            mine = first[tree] + leaves[row, tree]
            total += matrix[mine, mine]
            for other in range(tree):
                total += 2.0 * matrix[mine, first[other] + leaves[row, other]]
        forms[row] = total
    return forms
