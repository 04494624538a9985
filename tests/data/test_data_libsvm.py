"""LIBSVM files: what is read, what is refused and at which line."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from evenhand.data import read_libsvm, write_libsvm
from evenhand.data.tables import libsvm
from evenhand.errors import DataError, InputError

SMALL = b"+1 1:0.5 3:2\n-1 2:-1e-3\n# a remark\n\n-1\n+1 4:1 # another\n"
DENSE = np.array([[0.5, 0, 2, 0], [0, -1e-3, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]])
LABELS = [1.0, -1.0, -1.0, 1.0]


def write(folder: Path, content: bytes, name: str = "t.libsvm") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("ending", "pack"), [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)]
)
def test_values_labels_and_form(tmp_path: Path, ending: str, pack: type) -> None:
    matrix, labels = read_libsvm(write(tmp_path, pack(SMALL), f"t.libsvm{ending}"))
    assert isinstance(matrix, sparse.csr_array)
    assert (matrix.dtype, matrix.indices.dtype, matrix.indptr.dtype) == (np.float64, np.int32, np.int32)
    assert matrix.has_canonical_format
    np.testing.assert_array_equal(matrix.toarray(), DENSE)
    np.testing.assert_array_equal(labels, LABELS)


def test_agrees_with_scikit_learn_whatever_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows = sparse.random_array((300, 50), density=0.1, random_state=rng, format="csr")
    path = tmp_path / "t.svm"
    write_libsvm(path, rows, rng.integers(0, 9, 300))
    expected, expected_labels = load_svmlight_file(str(path), n_features=50)
    for block in (7, 64, 1 << 22):
        monkeypatch.setattr(libsvm, "_BLOCK", block)
        matrix, labels = read_libsvm(path, 50)
        assert (abs(matrix - expected)).nnz == 0
        np.testing.assert_array_equal(labels, expected_labels)


@given(
    st.lists(
        st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3), min_size=1, max_size=9
    ),
    st.sampled_from([0, 1]),
)
def test_what_is_written_reads_back_exactly(tmp_path: Path, rows: list[tuple[float, ...]], first: int) -> None:
    dense = np.array(rows)
    write_libsvm(tmp_path / "t.libsvm.gz", dense, dense[:, 0], first_index=first)
    matrix, labels = read_libsvm(tmp_path / "t.libsvm.gz", 3, first_index=first)
    np.testing.assert_array_equal(matrix.toarray(), dense)
    np.testing.assert_array_equal(labels, dense[:, 0])


def test_where_columns_begin(tmp_path: Path) -> None:
    from_zero = write(tmp_path, b"1 2:1\n0 0:5\n")
    assert read_libsvm(from_zero)[0].shape == (2, 3)
    assert read_libsvm(from_zero, first_index=0)[0].toarray().tolist() == [[0, 0, 1], [5, 0, 0]]
    from_one = write(tmp_path, b"1 2:1\n0 1:5\n", "one.libsvm")
    assert read_libsvm(from_one)[0].toarray().tolist() == [[0, 1], [5, 0]]
    assert read_libsvm(from_one, first_index=0)[0].toarray().tolist() == [[0, 0, 1], [0, 5, 0]]
    assert read_libsvm(from_one, 5)[0].shape == (2, 5)


def test_labels_alone_and_no_columns(tmp_path: Path) -> None:
    matrix, labels = read_libsvm(write(tmp_path, b"1\n2"))
    assert matrix.shape == (2, 0)
    assert labels.tolist() == [1.0, 2.0]


def test_windows_line_ends(tmp_path: Path) -> None:
    np.testing.assert_array_equal(read_libsvm(write(tmp_path, SMALL.replace(b"\n", b"\r\n")))[0].toarray(), DENSE)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"1 3", "line 3: '3' is not index:value"),
        (b"1 a:1", "line 3: 'a:1' is not index:value"),
        (b"1 -1:1", "line 3: '-1:1' is not index:value"),
        (b"1 :1", "line 3: ':1' is not index:value"),
        (b"1 2:", "line 3: the value of '2' is '', not a finite number"),
        (b"1 2:x", "line 3: the value of '2' is 'x', not a finite number"),
        (b"1 2:1:1", "line 3: the value of '2' is '1:1', not a finite number"),
        (b"1 2:nan", "line 3: the value of '2' is 'nan', not a finite number"),
        (b"1 2:-inf", "line 3: the value of '2' is '-inf', not a finite number"),
        (b"1 2:1e999", "line 3: the value of '2' is '1e999', which is too large"),
        (b"1 2:1_0", "line 3: the value of '2' is '1_0', not a finite number"),
        (b"1 2_0:1", "line 3: '2_0:1' is not index:value"),
        (b"1 2:\xff", r"line 3: the value of '2' is '\\xff'"),
        (b"yes 2:1", "line 3: the label is 'yes', not a finite number"),
        (b"nan 2:1", "line 3: the label is 'nan'"),
        (b"1,2 2:1", "line 3: the label is '1,2'"),
        (b"2:1", "line 3: the label is '2:1'"),
        (b"1 qid:3 2:1", "line 3: 'qid:3' is a query id"),
        (b"1 2:1 2:1", "line 3: index 2 occurs twice; indices must rise"),
        (b"1 3:1 2:1", "line 3: index 2 comes after 3; indices must rise"),
        (b"1 5:1", "line 3: index 5 is out of range: indices go from 1 to 4"),
        (b"1 0:1", "line 3: index 0 is out of range: indices go from 1 to 4"),
        (b"1 99999999999999999999:1", "line 3: index 99999999999999999999 is out of range"),
        (b"1 " + b"9" * 5000 + b":1", r"line 3: index 9+\.\.\. is out of range"),
    ],
)
@pytest.mark.parametrize("block", [5, 1 << 22])
def test_bad_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, line: bytes, message: str) -> None:
    monkeypatch.setattr(libsvm, "_BLOCK", block)
    path = write(tmp_path, b"1 1:1\n# remark\n" + line + b"\n1 2:1\n")
    with pytest.raises(DataError, match=message) as caught:
        read_libsvm(path, 4, first_index=1)
    assert str(caught.value).startswith(f"{path}, ")


def test_words_in_remarks_do_no_harm(tmp_path: Path) -> None:
    assert read_libsvm(write(tmp_path, b"1 1:1 # qid:3 a_b\n"))[1].tolist() == [1.0]


def test_an_index_too_high_is_refused_where_columns_turn_out_to_begin_at_0(tmp_path: Path) -> None:
    path = write(tmp_path, b"1 1:1\n1 4:1\n1 0:1\n")
    with pytest.raises(DataError, match="line 2: index 4 is out of range: indices go from 0 to 3"):
        read_libsvm(path, 4)
    assert read_libsvm(path, 5)[0].shape == (3, 5)


def test_without_a_number_of_columns_any_index_32_bits_hold_is_taken(tmp_path: Path) -> None:
    assert read_libsvm(write(tmp_path, b"1 2147483647:1\n"))[0].shape == (1, 2**31 - 1)
    with pytest.raises(DataError, match="line 1: index 2147483648 is out of range"):
        read_libsvm(write(tmp_path, b"1 2147483648:1\n"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.libsvm", None, "there is no file"),
        ("empty.libsvm", b"", "gives no rows"),
        ("remarks.libsvm", b"# nothing\n\n", "gives no rows"),
        ("t.libsvm.gz", b"not gzip", "cannot read"),
        ("t.libsvm.gz", gzip.compress(SMALL, mtime=0)[:-9], "cannot read"),
        ("t.libsvm.xz", b"not xz", "cannot read"),
        ("t.libsvm.bz2", b"not bzip2", "cannot read"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        write(tmp_path, content, name)
    with pytest.raises(DataError, match=message):
        read_libsvm(tmp_path / name)


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1 labels came with 2 rows"):
        write_libsvm(tmp_path / "t.svm", np.eye(2), [1])
    with pytest.raises(DataError, match="missing or infinite"):
        write_libsvm(tmp_path / "t.svm", np.full((1, 1), np.nan), [1])
    assert not any(tmp_path.iterdir())
    with pytest.raises(InputError, match="columns is -1"):
        read_libsvm(tmp_path / "t.svm", -1)


def test_memory_is_that_of_the_result_and_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libsvm, "_BLOCK", 1 << 14)
    rows = sparse.random_array((8_000, 500), density=0.04, random_state=np.random.default_rng(1), format="csr")
    path = tmp_path / "t.libsvm"
    write_libsvm(path, rows, np.ones(8_000))
    read_libsvm(write(tmp_path, SMALL, "warm-up.libsvm"))
    tracemalloc.start()
    try:
        matrix, labels = read_libsvm(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    result = matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes + labels.nbytes
    # Growing an array asks for an eighth more than it holds, and for the old one beside the new.
    assert peak < 2.0 * result
    assert path.stat().st_size > 50 * libsvm._BLOCK
