"""idx files: what is whole is read exactly, what is not is refused."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from evenhand.errors import DataError
from evenhand_reproductions.data.idx import read_idx


def as_idx(array: np.ndarray, kind: int = 8) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, kind, array.ndim, *array.shape) + array.tobytes()


@given(array=arrays(np.uint8, array_shapes(max_dims=4, max_side=5)), packed=st.booleans())
def test_what_was_written_is_read(tmp_path_factory: pytest.TempPathFactory, array: np.ndarray, packed: bool) -> None:
    path = tmp_path_factory.mktemp("idx") / ("digits.gz" if packed else "digits")
    path.write_bytes(gzip.compress(as_idx(array), 1, mtime=0) if packed else as_idx(array))
    found = read_idx(path, array.ndim)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, array)


WHOLE = as_idx(np.arange(12, dtype=np.uint8).reshape(3, 2, 2))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no idx file: it begins with nothing"),
        (b"\x89PNG" + WHOLE, "begins with 89 50 4e 47"),
        (WHOLE[:10], "ends within its header"),
        (WHOLE[:-1], "promises 3 × 2 × 2 = 12 bytes, but only 11 bytes follow"),
        (WHOLE + b"\0", "12 bytes, but more bytes follow"),
        (as_idx(np.zeros((2, 2, 2), dtype=np.uint8), kind=13), "holds floats; only unsigned bytes"),
        (as_idx(np.zeros((2, 2, 2), dtype=np.uint8), kind=99), "holds type 0x63"),
        (as_idx(np.zeros(4, dtype=np.uint8)), "1 dimensions instead of 3"),
        # A header that promises 2^96 bytes must not make room for them.
        (b"\0\0\x08\x03" + b"\xff" * 12, "but only 0 bytes follow"),
    ],
)
def test_damage_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    for name, packed in (("file", content), ("file.gz", gzip.compress(content, 1, mtime=0))):
        (tmp_path / name).write_bytes(packed)
        with pytest.raises(DataError, match=message) as caught:
            read_idx(tmp_path / name, 3)
        assert str(tmp_path / name) in str(caught.value)


def test_scalar_arrays_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\0\0\x08\x00")
    with pytest.raises(DataError, match="0 dimensions instead of at least one"):
        read_idx(tmp_path / "file")


PACKED = gzip.compress(WHOLE, 1, mtime=0)


@pytest.mark.parametrize("content", [b"not gzip", PACKED[:-9], PACKED[:15]])
def test_broken_gzip(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"file\.gz cannot be read"):
        read_idx(tmp_path / "file.gz")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere cannot be read"):
        read_idx(tmp_path / "nowhere")
