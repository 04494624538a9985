"""Leverages are the diagonal of the hat matrix, for every kind of block."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from evenhand.models import leverage
from evenhand.models.leverage import leverages


def by_definition(matrix: np.ndarray, bound: float, regulariser: float) -> np.ndarray:
    inner = bound * matrix.T @ matrix + regulariser * np.eye(matrix.shape[1])
    return bound * np.diag(matrix @ np.linalg.solve(inner, matrix.T))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sparse", [False, True])
def test_leverages_are_those_of_the_definition(seed: int, sparse: bool) -> None:
    random = np.random.default_rng(seed)
    matrix = random.normal(size=(150, 7)) * 10.0 ** random.integers(-2, 3, size=7)
    matrix[random.random(matrix.shape) < 0.5] = 0.0
    found = leverages(sp.csc_array(matrix) if sparse else matrix, 0.25 / 150, 0.01)
    np.testing.assert_allclose(found, by_definition(matrix, 0.25 / 150, 0.01), rtol=1e-6, atol=1e-9)
    assert 0.0 < found.sum() <= 7.0


def test_estimates_from_random_signs_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = np.random.default_rng(0).normal(size=(2000, 30))
    exact = leverages(matrix, 0.25 / 2000, 1e-3)
    monkeypatch.setattr(leverage, "MOST_PRODUCTS", 0.0)
    rough = leverages(matrix, 0.25 / 2000, 1e-3)
    # Single rows are off by the size of the leverage itself, and cut off at zero; the mean is near.
    assert rough.mean() == pytest.approx(exact.mean(), rel=0.25)
    assert not np.array_equal(rough, exact)


def test_a_party_without_columns_has_none() -> None:
    np.testing.assert_array_equal(leverages(np.zeros((5, 0)), 0.05, 1.0), np.zeros(5))
