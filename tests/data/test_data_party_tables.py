"""A party's rows from any kind of table: what is known by name, what is encoded, what is refused."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from evenhand.data import PartyEncoder, TableSource, read_table, write_libsvm
from evenhand.data.tables.party_tables import FrameTable, SparseTable, StreamedTable, open_table
from evenhand.errors import DataError

MATRIX = np.array([[7.0, 0.0, 2.0, 0.0], [8.0, 1.0, 0.0, 4.0], [9.0, 0.0, 3.0, 8.0]])
LABELS = [1, -1, 1]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_libsvm(tmp_path / "t.libsvm.gz", MATRIX, LABELS)
    return tmp_path / "t.libsvm.gz"


def test_rows_of_a_libsvm_file_are_known_by_number(path: Path) -> None:
    table = open_table(TableSource(table=path), known=["label"])
    assert isinstance(table, SparseTable)
    pd.testing.assert_frame_equal(table.known, pd.DataFrame({"label": LABELS}, index=pd.RangeIndex(3, name="row")))
    np.testing.assert_array_equal(table.matrix.toarray(), MATRIX)


def test_columns_of_a_libsvm_file_are_named_by_their_numbers(path: Path) -> None:
    table = open_table(TableSource(table=path, id="1"), known=["label", "2"])
    assert table.known.index.tolist() == [7, 8, 9]
    assert table.known["2"].tolist() == [0, 1, 0]
    assert table.known["2"].dtype == np.int64
    np.testing.assert_array_equal(table.matrix.toarray(), MATRIX[:, 2:])
    chosen = open_table(TableSource(table=path), features=["4", "2"], known=["2"])
    np.testing.assert_array_equal(chosen.matrix.toarray(), MATRIX[:, [3, 1]])


def test_columns_may_count_from_0(tmp_path: Path) -> None:
    write_libsvm(tmp_path / "t.svm", MATRIX, [0.5, 1.5, 0.5], first_index=0)
    table = open_table(TableSource(table=tmp_path / "t.svm", first_index=0), known=["label", "0"])
    assert table.known["0"].tolist() == [7, 8, 9]
    assert table.known["label"].tolist() == [0.5, 1.5, 0.5]
    with pytest.raises(DataError, match="index 0 is out of range"):
        open_table(TableSource(table=tmp_path / "t.svm"))


@pytest.mark.parametrize("scale", [True, False])
def test_a_sparse_table_is_encoded_and_aligned(path: Path, scale: bool) -> None:
    table = open_table(TableSource(table=path)).aligned(pd.Index([2, 0]))
    assert table.known["label"].tolist() == [1, 1]
    encoder, matrix = table.encode(np.array([False, True]), scale)
    expected = PartyEncoder(scale=scale).fit(sparse.csr_array(MATRIX[[0]])).transform(sparse.csr_array(MATRIX[[2, 0]]))
    np.testing.assert_array_equal(matrix.toarray(), expected.toarray())
    np.testing.assert_array_equal(table.transform(encoder).toarray(), expected.toarray())


def test_an_unscaled_sparse_table_is_never_copied(path: Path) -> None:
    table = open_table(TableSource(table=path))
    assert table.aligned(pd.RangeIndex(3)) is table
    _, matrix = table.encode(np.array([True, False, True]), scale=False)
    assert np.shares_memory(matrix.data, table.matrix.data)
    assert np.shares_memory(matrix.indices, table.matrix.indices)


def test_new_rows_may_have_fewer_columns_but_not_more(path: Path, tmp_path: Path) -> None:
    encoder, _ = open_table(TableSource(table=path), known=["2"]).encode(np.ones(3, dtype=bool), True)
    assert encoder.sparse_columns == 3
    (tmp_path / "new.svm").write_text("0 1:7\n")
    new = open_table(TableSource(table=tmp_path / "new.svm"), known=["2"], encoder=encoder)
    np.testing.assert_allclose(new.transform(encoder).toarray(), [[7 / 9, 0, 0]])
    (tmp_path / "new.svm").write_text("0 1:7 5:1\n")
    with pytest.raises(DataError, match="line 1: index 5 is out of range: indices go from 1 to 4"):
        open_table(TableSource(table=tmp_path / "new.svm"), known=["2"], encoder=encoder)


def test_new_rows_of_chosen_columns(path: Path, tmp_path: Path) -> None:
    encoder, _ = open_table(TableSource(table=path), ["4", "1"]).encode(np.ones(3, dtype=bool), True)
    (tmp_path / "new.svm").write_text("0 1:9\n")
    new = open_table(TableSource(table=tmp_path / "new.svm"), ["4", "1"], encoder=encoder)
    np.testing.assert_allclose(new.transform(encoder).toarray(), [[0, 1]])
    (tmp_path / "new.svm").write_text("0 1:9 4:8 77:1\n")
    new = open_table(TableSource(table=tmp_path / "new.svm"), ["4", "1"], encoder=encoder)
    np.testing.assert_allclose(new.transform(encoder).toarray(), [[1, 1]])


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ({}, {"known": ["outcome"]}, "no column 'outcome': columns of a LIBSVM file are called by their numbers"),
        ({}, {"known": ["0"]}, "no column '0'.* from 1 on"),
        ({}, {"features": ["x1"]}, "no column 'x1'"),
        ({}, {"features": ["5"]}, "has no column 5; the highest that occurs is 4"),
        ({}, {"features": ["9" * 5000]}, "no column '9+'"),
        ({}, {"known": ["2147483647"]}, "columns up to 2,147,483,647, and a model a weight for each"),
        ({"id": "customer"}, {}, "no column 'customer'"),
        ({"id": "2"}, {}, "1 values of '2' occur more than once, such as 0"),
        ({}, {"known": ["1", "2", "3", "4"]}, "no feature columns are left"),
        ({"sql": "select 1"}, {}, "sql goes with a database"),
    ],
)
def test_libsvm_tables_refused(path: Path, source: dict[str, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        open_table(TableSource(table=path, **source), **options)


def test_a_libsvm_file_is_no_frame(path: Path) -> None:
    with pytest.raises(DataError, match="is a sparse table: read it with read_libsvm"):
        read_table(TableSource(table=path))


FRAME = pd.DataFrame(
    {"age": [20, 30, 40, 50], "job": ["cook", "nurse", "cook", "clerk"], "sex": list("fmfm"), "paid": list("yynn")},
    index=pd.Index(["c1", "c2", "c3", "c4"], name="id"),
)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_named_tables(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"t.{ending}"
    FRAME.to_csv(path) if ending == "csv" else FRAME.to_parquet(path)
    table = open_table(
        TableSource(table=path, id="id"), known=["paid", "sex", "gone"] if ending == "parquet" else ["paid", "sex"]
    )
    assert isinstance(table, StreamedTable if ending == "parquet" else FrameTable)
    assert sorted(table.names) == ["age", "job", "paid", "sex"]
    ids = pd.Index(["c4", "c1", "c2"])
    aligned = table.aligned(ids)
    assert aligned.known["paid"].tolist() == ["n", "y", "y"]
    training = np.array([True, False, True])
    encoder, matrix = aligned.encode(training, True)
    expected = PartyEncoder().fit(FRAME.loc[["c4", "c2"], ["age", "job"]])
    assert encoder.feature_names_out == ["age", "job=clerk", "job=nurse"]
    np.testing.assert_allclose(matrix, expected.transform(FRAME.loc[ids]), atol=1e-12)
    np.testing.assert_array_equal(aligned.transform(encoder), matrix)
    # New rows need neither label nor groups.
    new = open_table(TableSource(table=path, id="id"), known=["gone"], encoder=encoder)
    np.testing.assert_allclose(new.transform(encoder), expected.transform(FRAME), atol=1e-12)


def test_a_parquet_file_with_dates(tmp_path: Path) -> None:
    FRAME.assign(since=date(2020, 1, 1)).to_parquet(tmp_path / "t.parquet")
    table = open_table(TableSource(table=tmp_path / "t.parquet", id="id"), features=["age"], known=["since"])
    assert table.known["since"].tolist() == [date(2020, 1, 1)] * 4
    assert open_table(TableSource(table=tmp_path / "t.parquet"), features=["age"]).known.index.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_named_tables_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"t.{ending}"
    FRAME.to_csv(path) if ending == "csv" else FRAME.to_parquet(path)
    with pytest.raises(DataError, match="no column 'agee'"):
        open_table(TableSource(table=path, id="id"), features=["agee"])
    with pytest.raises(DataError, match="no column 'customer'"):
        open_table(TableSource(table=path, id="customer"))
    with pytest.raises(DataError, match="no feature columns are left"):
        open_table(TableSource(table=path, id="id"), known=list(FRAME.columns))
    with pytest.raises(DataError, match="trained on a table in LIBSVM's format, with 3 numbered ones"):
        open_table(TableSource(table=path, id="id"), encoder=PartyEncoder().fit(sparse.csr_array(np.eye(3))))


def test_a_column_far_beyond_the_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.svm").write_text("1 1:1 2147483647:1\n-1 1:2\n")
    with pytest.raises(DataError, match="number those that occur without gaps"):
        open_table(TableSource(table=tmp_path / "t.svm"))
