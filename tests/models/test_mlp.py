"""Neural parties: gradients by finite differences, shapes, seeds, and a clear word when torch is missing."""

from __future__ import annotations

import copy
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from support.problems import numerical_gradient

from evenhand.errors import MissingExtraError
from evenhand.models import mlp
from evenhand.models.mlp import MLPModel

DATA = np.random.default_rng(0).normal(size=(12, 3))


@pytest.mark.parametrize("block", [5, 4096])
@pytest.mark.parametrize("hidden", [(5, 4), (3,), ()])
def test_gradient_is_the_finite_difference(
    hidden: tuple[int, ...], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlp, "BLOCK", block)
    model = MLPModel(DATA, 0.2, hidden, seed=1)
    weights, nu = model.weights, np.random.default_rng(1).normal(size=12)

    def value(at: np.ndarray) -> float:
        model.weights = at
        return float(nu @ model.scores() + 0.5 * 0.2 * at @ at)

    expected = numerical_gradient(value, weights)
    model.weights = weights
    np.testing.assert_allclose(model.gradient(nu), expected, atol=1e-7)


def test_scores_are_two_hidden_layers_with_relu() -> None:
    model = MLPModel(DATA, 0.0, (5, 4), seed=2)
    sizes, layers, start = [(4, 5), (6, 4), (5, 1)], [], 0
    for shape in sizes:
        layers.append(model.weights[start : start + shape[0] * shape[1]].reshape(shape))
        start += layers[-1].size
    assert start == model.weights.size
    out = DATA
    for place, layer in enumerate(layers):
        out = out @ layer[:-1] + layer[-1]
        out = np.maximum(out, 0.0) if place < 2 else out
    np.testing.assert_allclose(model.scores(), out[:, 0], rtol=1e-12)
    np.testing.assert_allclose(model.predict(DATA[:3]), out[:3, 0], rtol=1e-12)
    assert model.scores().dtype == np.float64


def test_sparse_columns_give_the_same_scores() -> None:
    dense, sparse = MLPModel(DATA, 0.1, seed=3), MLPModel(sp.csr_array(DATA), 0.1, seed=3)
    np.testing.assert_allclose(dense.scores(), sparse.scores(), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [0, 2])
def test_rows_that_are_alike_go_through_the_layers_once(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    rows, nu = rng.integers(0, 2, size=(60, columns)).astype(float), rng.normal(size=60)
    model = MLPModel(rows, 0.1, (5, 4), seed=3)
    with monkeypatch.context() as every_row:
        every_row.setattr(mlp, "_distinct", lambda dense: (dense, None))
        plain = MLPModel(rows, 0.1, (5, 4), seed=3)
    assert model._data.shape == (columns, 2**columns)
    assert plain._data.shape == (columns, 60)
    np.testing.assert_allclose(model.scores(), plain.scores(), rtol=1e-12)
    np.testing.assert_allclose(model.gradient(nu), plain.gradient(nu), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.spectral_bound(), plain.spectral_bound(), rtol=1e-9)
    assert model.effort == plain.effort


def test_rows_that_differ_are_left_as_they_are() -> None:
    few_alike = np.concatenate([DATA, DATA[:3]])
    assert MLPModel(few_alike, 0.1)._place is None
    assert MLPModel(DATA[:0], 0.1).scores().shape == (0,)


def test_the_seed_decides_the_start() -> None:
    first, again, other = (MLPModel(DATA, 0.1, seed=seed).weights for seed in (4, 4, 5))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_copy_scores_alike() -> None:
    model = MLPModel(DATA, 0.1, (4,), seed=6)
    np.testing.assert_array_equal(copy.deepcopy(model).scores(), model.scores())


def test_moving_leaves_older_weights_and_scores_alone() -> None:
    model = MLPModel(DATA, 0.1, (4,), seed=6)
    weights, scores = model.weights, model.scores()
    kept_weights, kept_scores = weights.copy(), scores.copy()
    model.move(np.ones_like(weights))
    np.testing.assert_array_equal(weights, kept_weights)
    np.testing.assert_array_equal(scores, kept_scores)
    assert model.squared_norm() == pytest.approx(float(((kept_weights + 1) ** 2).sum()))


def test_the_spectral_bound_is_about_the_norm_of_the_derivative() -> None:
    model = MLPModel(DATA, 0.0, (5, 4), seed=7)
    jacobian = np.array([model.gradient(unit) for unit in np.eye(12)])
    true = float(np.linalg.norm(jacobian, 2) ** 2)
    assert true <= model.spectral_bound() <= 1.3 * true


def test_without_torch_the_message_gives_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"model='mlp'.*pip install 'evenhand\[torch\]'") as refusal:
        MLPModel(DATA, 0.1)
    assert isinstance(refusal.value, ImportError)


@pytest.mark.slow
@pytest.mark.portable
def test_the_number_of_threads_changes_no_bit() -> None:
    """Rows enough that torch would share them among threads."""
    torch = pytest.importorskip("torch")
    rng, before = np.random.default_rng(0), torch.get_num_threads()
    model, nu = MLPModel(rng.normal(size=(100_000, 5)), 1e-3, (8, 4), seed=0), rng.normal(size=100_000)
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append((model.scores().tobytes(), model.gradient(nu).tobytes(), model.spectral_bound()))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1] == found[2]
