"""Trees with a leaf of their own for rows that the party lacks."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand.models.trees import TreeShape, TreesModel, leaf_count, leaf_values

pytest.importorskip("lightgbm")


def _rows(rows: int = 400, absent: float = 0.3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three columns (the second of categories, with gaps) and the mark; gradients and curvatures."""
    rng = np.random.default_rng(0)
    matrix = np.column_stack([rng.normal(size=rows), rng.integers(0, 5, rows), rng.normal(size=rows), np.zeros(rows)])
    matrix[::7, 0] = np.nan
    gone = rng.random(rows) < absent
    matrix[gone, :3], matrix[gone, 3] = np.nan, 1.0
    gradient = np.where(gone, 0.4, np.nan_to_num(matrix[:, 2])) + 0.1 * rng.normal(size=rows)
    return matrix, gradient, rng.uniform(0.1, 0.25, rows)


@pytest.mark.parametrize("depth", [0, 3])
def test_absent_rows_have_a_leaf_that_nobody_shares(depth: int) -> None:
    matrix, gradient, curvature = _rows()
    model = TreesModel(matrix, TreeShape(leaves=8, depth=depth, l2=2.0), categorical=(1,), marks_absence=True)
    found = model.grow(gradient, curvature, trees=2, shrinkage=0.5)
    gone = matrix[:, 3] == 1.0
    for tree, leaves in zip(model.trees, found.T, strict=True):
        assert leaf_count(tree) <= 8
        assert set(leaves[gone]) == {leaf_count(tree) - 1}
        assert leaf_count(tree) - 1 not in leaves[~gone]
    expected = -gradient[gone].sum() / (curvature[gone].sum() + 2.0)
    assert leaf_values(model.trees[0])[-1] == pytest.approx(expected, rel=1e-12)


def test_lightgbm_reads_the_trees_as_they_are_meant() -> None:
    """Scores of LightGBM's model are the values of the leaves, also for new rows; the other leaves are those of a tree
    that was grown without the absent rows."""
    matrix, gradient, curvature = _rows()
    model = TreesModel(matrix, TreeShape(leaves=8), categorical=(1,), marks_absence=True)
    leaves = model.grow(gradient, curvature, trees=2)
    values = [leaf_values(tree) for tree in model.trees]
    model.keep(values, 0.0)
    by_hand = sum(own[leaves[:, place]] for place, own in enumerate(values))
    np.testing.assert_allclose(model.predict(matrix), by_hand, atol=1e-12)
    again = TreesModel(np.zeros((0, 4)))
    again.read(model.text)
    again.weights = model.weights
    np.testing.assert_allclose(again.predict(matrix[::-1]), by_hand[::-1], atol=1e-12)
    np.testing.assert_allclose(model.contributions(matrix).sum(axis=1), by_hand, atol=1e-6)
    there = matrix[:, 3] == 0.0
    alone = TreesModel(matrix[there], TreeShape(leaves=7), categorical=(1,))
    own = alone.grow(gradient[there], curvature[there])
    pairs = set(zip(own[:, 0], leaves[there, 0], strict=True))
    assert len(pairs) == len({one for one, _ in pairs}) == len({other for _, other in pairs})


def test_a_tree_without_a_split_gets_one() -> None:
    matrix = _rows()[0]
    gradient = np.where(matrix[:, 3] == 1.0, 0.5, -0.2)
    model = TreesModel(matrix, TreeShape(leaves=8, l2=1.0), categorical=(1,), marks_absence=True)
    leaves = model.grow(gradient, np.full(len(matrix), 0.25))[:, 0]
    gone = matrix[:, 3] == 1.0
    assert leaf_count(model.trees[0]) == 2
    assert np.array_equal(leaves, gone)
    model.keep([leaf_values(model.trees[0])], 0.0)
    expected = [-gradient[one].sum() / (0.25 * one.sum() + 1.0) for one in (~gone, gone)]
    np.testing.assert_allclose(model.predict(matrix), np.where(gone, expected[1], expected[0]), atol=1e-12)


def test_few_absent_rows_have_no_leaf_of_their_own() -> None:
    matrix, gradient, curvature = _rows()
    few = np.flatnonzero(matrix[:, 3] == 1.0)[10:]
    kept = np.setdiff1d(np.arange(len(matrix)), few)
    model = TreesModel(matrix[kept], TreeShape(leaves=8, rows_a_leaf=20), categorical=(1,), marks_absence=True)
    found = model.grow(gradient[kept], curvature[kept])[:, 0]
    gone = matrix[kept, 3] == 1.0
    assert set(found[gone]) <= set(found[~gone])
