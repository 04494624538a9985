"""Public sets that are sparse matrices: counts on the real files, and the recipes on small ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from evenhand.data import load
from evenhand.errors import DataError, InputError
from evenhand_reproductions.data.sparse_sets import _RECIPES, SparseDataset, load_sparse

Loader = Callable[[str], SparseDataset]


@pytest.mark.parametrize(
    ("name", "shape", "nonzeros", "positives", "test"),
    [
        ("a9a", (48_842, 123), 677_323, 11_687, 16_281),
        pytest.param("20newsgroups", (18_846, 1_664_489), 7_720_309, 4_891, 7_532, marks=pytest.mark.soak),
    ],
)
def test_counts(load_set: Loader, name: str, shape: tuple[int, int], nonzeros: int, positives: int, test: int) -> None:
    data = load_set(name)
    assert data.matrix.shape == shape
    assert data.matrix.nnz == nonzeros
    assert (data.matrix.dtype, data.matrix.indices.dtype) == (np.float64, np.int32)
    assert set(np.unique(data.matrix.data)) == {1.0}
    assert (data.label == data.positive).sum() == positives
    assert data.label.nunique() == 2
    assert data.test.sum() == test
    assert not data.test[: shape[0] - test].any()
    assert list(data.label.index) == list(range(shape[0]))
    assert data.sensitive.index.equals(data.label.index)


def test_sexes_of_a9a_are_those_of_adult(load_set: Loader) -> None:
    sex = load_set("a9a").sensitive["sex"]
    assert sex.value_counts().to_dict() == {"Male": 32_650, "Female": 16_192}
    assert sex[:32_561].value_counts().to_dict() == {"Male": 21_790, "Female": 10_771}


@pytest.mark.soak
def test_newsgroups_name_no_sensitive_attribute(load_set: Loader) -> None:
    data = load_set("20newsgroups")
    assert data.sensitive.shape == (18_846, 0)
    assert set(data.label) == {"comp", "rest"}


def test_a_small_a9a(tmp_path: Path) -> None:
    (tmp_path / "a9a").write_text("-1 3:1 72:1\n+1 4:1 73:1\n")
    (tmp_path / "a9a.t").write_text("+1 72:1 123:1\n")
    matrix, label, positive, sensitive, test = _RECIPES["a9a"](
        {name: tmp_path / name for name in ("a9a", "a9a.t")}, tmp_path, None
    )
    assert matrix.shape == (3, 123)
    assert matrix[2, 122] == 1.0
    assert (label.tolist(), positive) == ([-1, 1, 1], 1)
    assert sensitive["sex"].tolist() == ["Female", "Male", "Female"]
    assert test.tolist() == [False, False, True]
    (tmp_path / "a9a.t").write_text("+1 72:1 124:1\n")
    with pytest.raises(DataError, match="line 1: index 124 is out of range"):
        _RECIPES["a9a"]({name: tmp_path / name for name in ("a9a", "a9a.t")}, tmp_path, None)


def test_each_form_has_its_own_way_in(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="adult is a table, not a sparse matrix as a9a, 20newsgroups"):
        load_sparse("adult", cache=tmp_path, offline=True)
    with pytest.raises(InputError, match="a9a is a sparse matrix, not a table: use load_sparse"):
        load("a9a", cache=tmp_path, offline=True)
    with pytest.raises(InputError, match="positive chooses newsgroups; a9a has two labels"):
        load_sparse("a9a", positive="comp", cache=tmp_path, offline=True)
