"""A party's trees: LightGBM's text taken apart and put together, saved and read back."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("lightgbm")

import lightgbm
from scipy import sparse

from evenhand.errors import RunError
from evenhand.models.saved import from_state, to_state
from evenhand.models.trees import TreeShape, TreesModel, split_model


@pytest.fixture(scope="module")
def matrix() -> np.ndarray:
    rng = np.random.default_rng(0)
    found = rng.normal(size=(500, 4))
    found[:, 3] = rng.integers(0, 6, 500)
    found[rng.random(500) < 0.1, 0] = np.nan
    return found


@pytest.fixture
def grown(matrix: np.ndarray) -> tuple[TreesModel, np.ndarray]:
    """Six trees with values of their own, and the scores they give."""
    model = TreesModel(matrix, TreeShape(leaves=8), categorical=[3], intercept=True)
    labels = np.where(np.nan_to_num(matrix[:, 0]) + matrix[:, 1] + (matrix[:, 3] == 2) > 0, 1.0, -1.0)
    leaves = np.concatenate([model.grow(-labels / 2, np.full(500, 0.25), 2, 0.5) for _ in range(3)], axis=1)
    rng = np.random.default_rng(1)
    values = [rng.normal(size=count) for count in model.leaf_counts]
    model.keep(values, 0.7)
    return model, 0.7 + sum(value[leaf] for value, leaf in zip(values, leaves.T, strict=True))


def test_a_model_scores_by_the_values_it_was_sent(grown: tuple[TreesModel, np.ndarray], matrix: np.ndarray) -> None:
    model, scores = grown
    np.testing.assert_allclose(model.predict(matrix), scores, rtol=1e-14)
    assert model.predict(matrix[:0]).shape == (0,)


def test_fewer_values_keep_fewer_trees(grown: tuple[TreesModel, np.ndarray], matrix: np.ndarray) -> None:
    model, _ = grown
    model.predict(matrix)
    values = model.values[:2]
    model.keep(values, 0.0)
    assert len(model.trees) == 2
    np.testing.assert_array_equal(model.weights, [*values[0], *values[1], 0.0])
    model.keep([], 0.3)
    np.testing.assert_array_equal(model.predict(matrix), np.full(500, 0.3))


def test_lightgbm_reads_the_text_to_the_last_bit(grown: tuple[TreesModel, np.ndarray], matrix: np.ndarray) -> None:
    model, scores = grown
    booster = lightgbm.Booster(model_str=model.text)
    np.testing.assert_allclose(booster.predict(matrix, raw_score=True) + 0.7, scores, rtol=1e-14)
    assert booster.num_trees() == 6
    head, trees = split_model(booster.model_to_string())
    assert [len(tree.splitlines()) for tree in trees] == [len(tree.splitlines()) for tree in model.trees]
    assert "feature_names" in head


def test_a_model_comes_back_from_its_state_and_text(grown: tuple[TreesModel, np.ndarray], matrix: np.ndarray) -> None:
    model, scores = grown
    state = to_state(model)
    np.testing.assert_allclose(from_state(state, model.text).predict(matrix), scores, rtol=1e-14)
    none = TreesModel(matrix)
    np.testing.assert_array_equal(from_state(to_state(none), none.text).predict(matrix), np.zeros(500))


def test_importances_and_contributions_are_of_the_partys_own_columns(
    grown: tuple[TreesModel, np.ndarray], matrix: np.ndarray
) -> None:
    model, scores = grown
    gains, counts = model.importances(), model.importances("split")
    assert gains.shape == counts.shape == (4,)
    # The third column says nothing about the labels.
    assert gains[2] < 0.1 * gains[1]
    before = counts.sum()
    model.offer(np.zeros(500, dtype=np.uint8), 1, -np.sign(matrix[:, 1]), np.full(500, 0.25))
    assert model.importances("split").sum() == before + 1
    parts = model.contributions(matrix)
    assert parts.shape == (500, 5)
    np.testing.assert_allclose(parts.sum(axis=1) + 0.7, scores, atol=1e-9)
    np.testing.assert_array_equal(TreesModel(matrix).contributions(matrix), np.zeros((500, 5)))
    np.testing.assert_array_equal(TreesModel(matrix).importances(), np.zeros(4))


@pytest.mark.parametrize("spoil", ["values", "counts", "no text", "cut", "columns"])
def test_files_that_do_not_fit_each_other_are_refused(grown: tuple[TreesModel, np.ndarray], spoil: str) -> None:
    model, _ = grown
    state, text = to_state(model), model.text
    if spoil == "values":
        state["weights"] = state["weights"][:-1]
    elif spoil == "counts":
        state["leaves"] = [*state["leaves"][1:], state["leaves"][0] - 1, 1]
    elif spoil == "no text":
        text = ""
    elif spoil == "cut":
        text = text[:300]
    else:
        state["columns"] = "four"
    with pytest.raises(RunError):
        from_state(state, text)


def test_sparse_columns_grow_the_same_trees(matrix: np.ndarray) -> None:
    whole = np.nan_to_num(matrix[:, :3]) * (np.abs(np.nan_to_num(matrix[:, :3])) > 0.5)
    slope, curvature = -np.sign(whole[:, 0] + whole[:, 1] - 0.1), np.full(500, 0.25)
    leaves = [
        TreesModel(form).grow(slope, curvature) for form in (whole, sparse.csr_array(whole), sparse.csc_array(whole))
    ]
    np.testing.assert_array_equal(leaves[0], leaves[1])
    np.testing.assert_array_equal(leaves[0], leaves[2])
