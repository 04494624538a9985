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


@given(matrix=matrices, intercept=st.booleans(), thin=st.booleans(), sparse=st.booleans())
def test_a_model_is_its_definition_however_its_columns_are_given_and_stored(
    matrix: np.ndarray, intercept: bool, thin: bool, sparse: bool
) -> None:
    if thin:
        # Few enough non-zeros to be stored as a sparse matrix.
        matrix = np.where(np.arange(matrix.size).reshape(matrix.shape) % 11 == 0, matrix, 0.0)
    given_matrix = sp.csr_array(matrix) if sparse else matrix
    model = _model(given_matrix, intercept)
    inner = model.weights[: matrix.shape[1]]
    bias = model.weights[-1] if intercept else 0.0
    nu = np.random.default_rng(1).normal(size=len(matrix))
    np.testing.assert_allclose(model.scores(), matrix @ inner + bias, atol=1e-12)
    np.testing.assert_allclose(model.predict(given_matrix[:1]), matrix[:1] @ inner + bias, atol=1e-12)
    expected = np.append(matrix.T @ nu + 0.3 * inner, [nu.sum()] * intercept)
    np.testing.assert_allclose(model.gradient(nu), expected, atol=1e-12)
    assert model.squared_norm() == pytest.approx(inner @ inner)
    stored = model.matrix
    assert model.effort == (stored.nnz if sp.issparse(stored) else stored.size)


def test_sparse_columns_are_stored_sparse_and_full_ones_dense() -> None:
    full, thin = np.ones((40, 3)), np.eye(40)
    for given_matrix in (full, sp.csr_array(full)):
        assert not sp.issparse(LinearModel(given_matrix, 0.0).matrix)
    for given_matrix in (thin, sp.csr_array(thin)):
        model = LinearModel(given_matrix, 0.0)
        assert sp.issparse(model.matrix)
        assert model.effort == 40


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
