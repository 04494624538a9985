"""Xᵀ diag(w) X by tables of categories equals the dense product, whatever the columns."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from evenhand.programs.weighted_gram import PART, WeightedGram


def categories(rows: int, levels: list[int], numbers: int, seed: int) -> np.ndarray:
    """Draw numbers before, between and after indicator blocks; some rows have no level of a block."""
    random = np.random.default_rng(seed)
    parts = [random.normal(size=(rows, 1))]
    for place, size in enumerate(levels):
        codes = random.integers(-1, size, rows)
        parts.append((codes[:, None] == np.arange(size)).astype(float))
        if place < numbers - 2:
            parts.append(random.normal(size=(rows, 1)))
    return np.hstack([*parts, np.ones((rows, 1))])


@pytest.mark.parametrize("rows", [50, PART + 77])
@pytest.mark.parametrize(("levels", "tables"), [([30, 2, 17, 25], True), ([2, 2], False), ([], False)])
def test_tables_give_the_dense_product(rows: int, levels: list[int], tables: bool) -> None:
    matrix = categories(rows, levels, 3, seed=rows)
    gram = WeightedGram(matrix)
    assert gram.by_tables == tables
    weights = np.random.default_rng(1).normal(size=(2, rows))
    expected = [(matrix * one[:, None]).T @ matrix for one in weights]
    np.testing.assert_allclose(gram(weights), expected, rtol=1e-10, atol=1e-9)
    form = expected[0] / rows + np.eye(matrix.shape[1])
    for same in (gram, WeightedGram(sp.csr_array(matrix))):
        np.testing.assert_allclose(same.forms(form), ((matrix @ form) * matrix).sum(axis=1), rtol=1e-10, atol=1e-10)


def test_columns_of_ones_and_equal_columns_are_no_trouble() -> None:
    random = np.random.default_rng(2)
    codes = random.integers(40, size=900)
    block = (codes[:, None] == np.arange(40)).astype(float)
    # The second copy overlaps with the first, so that it is another block; so are the columns of ones.
    matrix = np.hstack([block, block[:, ::-1], np.ones((900, 2)), np.zeros((900, 3))])
    gram, weights = WeightedGram(matrix), random.normal(size=900)
    assert gram.by_tables
    np.testing.assert_allclose(gram(weights[None])[0], (matrix * weights[:, None]).T @ matrix, atol=1e-10)
