"""The linear party model: dense equals sparse, gradients by finite differences, and a spectral bound that bounds."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.problems import numerical_gradient

from evenhand.models.linear import LinearModel

matrices = st.tuples(st.integers(1, 9), st.integers(1, 9)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.integers(-3, 3).map(float))
)


def _model(matrix: np.ndarray, intercept: bool, seed: int = 0) -> LinearModel:
    model = LinearModel(matrix, regulariser=0.3, intercept=intercept)
    model.move(np.random.default_rng(seed).normal(size=model.weights.size))
    return model


@given(matrix=matrices, intercept=st.booleans())
def test_dense_and_sparse_are_the_same_model(matrix: np.ndarray, intercept: bool) -> None:
    dense, sparse = _model(matrix, intercept), _model(sp.csr_array(matrix), intercept)
    nu = np.random.default_rng(1).normal(size=len(matrix))
    np.testing.assert_allclose(dense.scores(), sparse.scores(), atol=1e-12)
    np.testing.assert_allclose(dense.gradient(nu), sparse.gradient(nu), atol=1e-12)
    np.testing.assert_allclose(dense.predict(matrix[:1]), sparse.predict(sp.csr_array(matrix[:1])), atol=1e-12)
    assert dense.squared_norm() == sparse.squared_norm()
    assert dense.spectral_bound() == pytest.approx(sparse.spectral_bound(), rel=1e-6, abs=1e-9)
    assert (dense.effort, sparse.effort) == (matrix.size, np.count_nonzero(matrix))


@given(matrix=matrices, intercept=st.booleans())
def test_gradient_is_the_finite_difference(matrix: np.ndarray, intercept: bool) -> None:
    model = _model(matrix, intercept)
    weights, nu = model.weights, np.random.default_rng(2).normal(size=len(matrix))

    def value(at: np.ndarray) -> float:
        model.weights = at
        return float(nu @ model.scores() + 0.5 * 0.3 * model.squared_norm())

    expected = numerical_gradient(value, weights)
    model.weights = weights
    np.testing.assert_allclose(model.gradient(nu), expected, atol=1e-7)


def test_the_intercept_is_added_and_not_regularised() -> None:
    model = LinearModel(np.array([[1.0, 2.0], [3.0, 4.0]]), 0.5, intercept=True)
    model.move(np.array([1.0, -1.0, 10.0]))
    np.testing.assert_array_equal(model.scores(), [9.0, 9.0])
    assert model.squared_norm() == 2.0
    np.testing.assert_array_equal(model.gradient(np.array([1.0, 1.0])), [4.0 + 0.5, 6.0 - 0.5, 2.0])


def test_a_model_starts_at_zero_and_moving_leaves_older_weights_alone() -> None:
    model = LinearModel(np.ones((3, 2)), 0.1)
    before = model.weights
    model.move(np.array([1.0, 2.0]))
    np.testing.assert_array_equal(before, [0.0, 0.0])
    np.testing.assert_array_equal(model.weights, [1.0, 2.0])


def _true_square(matrix: np.ndarray, intercept: bool) -> float:
    whole = np.column_stack([matrix, np.ones(len(matrix))]) if intercept else matrix
    return float(np.linalg.norm(whole, 2) ** 2)


@settings(max_examples=150)
@given(matrix=matrices, intercept=st.booleans())
@example(matrix=np.array([[1.0, -1.0], [2.0, -2.0]]), intercept=False)
@example(matrix=np.array([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]]), intercept=False)
def test_the_spectral_bound_bounds_any_small_matrix(matrix: np.ndarray, intercept: bool) -> None:
    model = LinearModel(matrix, 0.0, intercept)
    assert model.spectral_bound() >= _true_square(matrix, intercept) * (1 - 1e-9)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    "matrix",
    [
        np.zeros((5, 3)),
        np.zeros((5, 0)),
        np.arange(5.0)[:, None],
        np.random.default_rng(0).normal(size=(4, 40)),
        np.random.default_rng(1).normal(size=(200, 20)),
        np.random.default_rng(2).normal(size=(50, 4)) * [1e-6, 1.0, 1e3, 1e6],
        np.random.default_rng(3).normal(size=(50, 1)) * [1.0, -1.0],
        np.eye(6),
    ],
    ids=["zero", "no columns", "one column", "wide", "tall", "scales", "opposite columns", "orthogonal"],
)
def test_the_spectral_bound_bounds_and_is_not_far_off(matrix: np.ndarray, intercept: bool) -> None:
    true = _true_square(matrix, intercept) if matrix.size else (float(len(matrix)) if intercept else 0.0)
    bound = LinearModel(matrix, 0.0, intercept).spectral_bound()
    assert true * (1 - 1e-9) <= bound <= 1.3 * true
