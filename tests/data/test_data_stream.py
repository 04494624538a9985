"""Parquet files encoded row group by row group give what reading them whole gives."""

from __future__ import annotations

import tracemalloc
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from evenhand.data import PartyEncoder, TableSource, read_table
from evenhand.data.tables import parquet_file
from evenhand.data.tables.stream import encode_parquet, transform_parquet
from evenhand.errors import DataError, InputError

CELLS = {
    "whole": st.integers(-(10**6), 10**6),
    "part": st.integers(-(10**6), 10**6).map(lambda value: value / 64),
    "word": st.sampled_from(["a", "b", "", "ä"]) | st.text(max_size=3),
    "flag": st.booleans(),
    "money": st.integers(0, 10**6).map(lambda cents: Decimal(cents) / 100),
}


def dense(matrix: Any) -> np.ndarray:
    return matrix.toarray() if sparse.issparse(matrix) else matrix


def wide(rows: int, seed: int = 0) -> pd.DataFrame:
    """Categories enough for the result to be sparse."""
    rng = np.random.default_rng(seed)
    columns = {"age": rng.normal(40, 10, rows), "town": rng.choice([f"town {k}" for k in range(60)], rows)}
    return pd.DataFrame({"id": [f"c{k}" for k in range(rows)], **columns, "job": rng.choice(list("abcdefghij"), rows)})


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_file, "_BATCH", 3)


@settings(max_examples=30)
@given(data=st.data())
def test_the_same_as_reading_it_whole(tmp_path: Path, small_batches: None, data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 20))
    chosen = data.draw(st.lists(st.sampled_from(sorted(CELLS)), min_size=1, unique=True))
    columns = {name: data.draw(st.lists(CELLS[name], min_size=rows, max_size=rows)) for name in chosen}
    frame = pd.DataFrame(columns, index=pd.Index(data.draw(st.permutations(range(rows))), name="id"))
    if "word" in columns and data.draw(st.booleans()):
        frame["word"] = frame["word"].astype("category")
    path, scale = tmp_path / "t.parquet", data.draw(st.booleans())
    frame.to_parquet(path, row_group_size=data.draw(st.integers(1, rows)))
    whole = read_table(TableSource(table=path, id="id"))
    expected = PartyEncoder(scale=scale).fit(whole)
    ids, encoder, matrix = encode_parquet(path, id="id", scale=scale)
    pd.testing.assert_index_equal(ids, whole.index)
    assert encoder.feature_names_out == expected.feature_names_out
    assert sparse.issparse(matrix) == expected.gives_sparse
    if scale:
        np.testing.assert_allclose(dense(matrix), dense(expected.transform(whole)), rtol=1e-9, atol=1e-9)
    else:
        np.testing.assert_array_equal(dense(matrix), dense(expected.transform(whole)))
        for one, other in zip(encoder.to_state()["columns"], expected.to_state()["columns"], strict=True):
            # What would be put in place of a gap is a mean, which is rounded.
            assert one.pop("fill", 0.0) == pytest.approx(other.pop("fill", 0.0), rel=1e-9, abs=1e-9)
            assert one == other
    again_ids, again = transform_parquet(path, encoder, id="id")
    pd.testing.assert_index_equal(again_ids, ids)
    np.testing.assert_array_equal(dense(again), dense(matrix))


@pytest.mark.parametrize("frame", [wide(50), wide(50)[["id", "age", "job"]]], ids=["sparse", "dense"])
def test_chosen_rows_in_another_order_and_some_of_them_for_training(
    tmp_path: Path, small_batches: None, frame: pd.DataFrame
) -> None:
    frame = frame.set_index("id")
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=7)
    rng = np.random.default_rng(3)
    rows = frame.index[rng.permutation(50)[:40]]
    training = rng.random(40) < 0.5
    ids, encoder, matrix = encode_parquet(tmp_path / "t.parquet", id="id", rows=rows, training=training)
    expected = PartyEncoder().fit(frame.loc[rows[training]])
    assert ids is rows
    assert encoder.feature_names_out == expected.feature_names_out
    wanted = expected.transform(frame.loc[rows])
    # Some towns occur in rows that are not for training: those rows have fewer entries.
    assert not sparse.issparse(wanted) or len(set(np.diff(wanted.indptr))) > 1
    np.testing.assert_allclose(dense(matrix), dense(wanted), rtol=1e-12, atol=1e-12)
    assert not sparse.issparse(matrix) or matrix.has_canonical_format


def test_without_an_id_rows_are_numbered(tmp_path: Path, small_batches: None) -> None:
    wide(10).to_parquet(tmp_path / "t.parquet")
    ids, encoder, matrix = encode_parquet(tmp_path / "t.parquet", columns=["job", "age"])
    pd.testing.assert_index_equal(ids, pd.RangeIndex(10))
    assert encoder.columns_in == ["job", "age"]
    np.testing.assert_allclose(matrix, PartyEncoder().fit_transform(wide(10)[["job", "age"]]), atol=1e-12)


def test_far_from_zero_no_digits_are_lost(tmp_path: Path, small_batches: None) -> None:
    values = 1e9 + np.random.default_rng(0).normal(size=300)
    pd.DataFrame({"v": values}).to_parquet(tmp_path / "t.parquet")
    encoder = encode_parquet(tmp_path / "t.parquet")[1]
    state = encoder.to_state()["columns"][0]
    assert state["mean"] == pytest.approx(values.mean(), rel=1e-15)
    assert state["scale"] == pytest.approx(values.std(), rel=1e-12)


def test_a_constant_column_has_scale_one(tmp_path: Path, small_batches: None) -> None:
    pd.DataFrame({"v": [0.1] * 11}).to_parquet(tmp_path / "t.parquet")
    np.testing.assert_array_equal(encode_parquet(tmp_path / "t.parquet")[2], np.zeros((11, 1)))


def test_memory_is_that_of_the_matrix_and_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long words make the raw table far larger than what it becomes."""
    monkeypatch.setattr(parquet_file, "_BATCH", 2000)
    path = tmp_path / "t.parquet"
    words = np.array(["x" * 300 + str(k) for k in range(6)])
    rng = np.random.default_rng(0)
    columns = {name: words[rng.integers(0, 6, 100_000)] for name in ("one", "two")}
    pq.write_table(pa.table({"v": rng.normal(size=100_000), **columns}), path, row_group_size=2000)
    raw = 2 * 100_000 * 301
    encode_parquet(path)
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.system_memory_pool())
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        matrix = encode_parquet(path)[2]
        peak = tracemalloc.get_traced_memory()[1] + pool.max_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)
    assert matrix.nbytes == 100_000 * 13 * 8
    assert peak < 1.1 * matrix.nbytes + 6 * raw / 50
    assert peak < raw / 2


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"id": ["a", "b", "a", "c"]}, {}, "1 values of 'id' occur more than once, such as 'a'"),
        ({"id": ["a", "b", "c", None]}, {}, "1 of 1 rows have no 'id'"),
        ({"v": [1e308, -1e308, 1e308, 1.0]}, {}, "too large to standardise"),
        ({"v": [[1]] * 4}, {}, "column 'v' holds .* values"),
        ({}, {"id": "no"}, "no column 'no'"),
        ({}, {"columns": ["v", "w"]}, "no column 'w'"),
        ({}, {"columns": []}, "no column to encode"),
        ({}, {"rows": pd.Index(["a", "zz"])}, "lacks 1 of the 2 rows wanted"),
    ],
)
def test_refused(
    tmp_path: Path, small_batches: None, columns: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": list("abcd"), "v": [1.0, 2.0, 3.0, 4.0]} | columns), path)
    with pytest.raises(DataError, match=message):
        encode_parquet(path, **{"id": "id"} | options)


def test_rows_that_are_not_wanted_may_be_bad(tmp_path: Path, small_batches: None) -> None:
    pd.DataFrame({"id": list("abcd"), "v": [1.0, None, 3.0, 5.0]}).to_parquet(tmp_path / "t.parquet")
    matrix = encode_parquet(tmp_path / "t.parquet", id="id", rows=pd.Index(list("dca")), scale=False)[2]
    np.testing.assert_array_equal(matrix, [[5.0], [3.0], [1.0]])


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file"):
        encode_parquet(tmp_path / "gone.parquet")
    (tmp_path / "t.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(DataError, match="cannot read"):
        encode_parquet(tmp_path / "t.parquet")
    pd.DataFrame({"v": [1.0]}).iloc[:0].to_parquet(tmp_path / "none.parquet")
    with pytest.raises(DataError, match="gives no rows"):
        encode_parquet(tmp_path / "none.parquet")
    wide(4).to_parquet(tmp_path / "damaged.parquet", compression="none")
    content = bytearray((tmp_path / "damaged.parquet").read_bytes())
    content[4:60] = bytes(56)
    (tmp_path / "damaged.parquet").write_bytes(bytes(content))
    with pytest.raises(DataError, match="cannot read"):
        encode_parquet(tmp_path / "damaged.parquet")


def test_arguments_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give rows as well"):
        encode_parquet(tmp_path / "t.parquet", training=np.ones(3, dtype=bool))
    with pytest.raises(InputError, match="training has 3 entries for 2 rows"):
        encode_parquet(tmp_path / "t.parquet", rows=pd.Index([1, 2]), training=np.ones(3, dtype=bool))
    wide(4).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match="fitted on a sparse matrix"):
        transform_parquet(tmp_path / "t.parquet", PartyEncoder().fit(sparse.csr_array(np.eye(2))))


def test_learning_in_parts() -> None:
    frame = wide(30).drop(columns="id")
    encoder = PartyEncoder()
    for start in range(0, 30, 7):
        encoder.partial_fit(frame.iloc[start : start + 7])
    expected = PartyEncoder().fit(frame)
    np.testing.assert_allclose(dense(encoder.transform(frame)), dense(expected.transform(frame)), atol=1e-12)
    state = encoder.to_state()
    for bad, message in (
        (frame.assign(age="old"), "column 'age' held number and now holds text"),
        (frame[["age"]], "columns age came after age, town, job"),
        (frame.iloc[:0], "no rows"),
        (sparse.csr_array(np.eye(2)), "use fit"),
    ):
        with pytest.raises(DataError, match=message):
            encoder.partial_fit(bad)
        assert encoder.to_state() == state, "a refused batch leaves nothing behind"
    assert encoder.fit(frame).to_state() == expected.to_state()
