"""Sparse tables in LIBSVM's format: each line is a label, then ``index:value`` for every value that is not zero."""

from __future__ import annotations

import io
import math
import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final, Literal

import numpy as np
from scipy import sparse

from evenhand.arrays import Array, Matrix
from evenhand.data.compressed import DAMAGED, open_for_writing, open_plain
from evenhand.errors import DataError, InputError

_BLOCK: Final = 1 << 22
_LARGEST_INDEX: Final = 2**31 - 1
_LONGEST_INDEX: Final = 100
# Python's own number parser, which the fast reader uses, takes 1_000 for a number and the reader drops query ids.
_SUSPECT: Final = (b"_", b"qid")
_INDEX: Final = re.compile(rb"[0-9]+")
_NUMBER: Final = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def read_libsvm(
    path: str | Path, columns: int | None = None, *, first_index: Literal[0, 1] | None = None
) -> tuple[Matrix, Array]:
    """Read a file in LIBSVM's format, plain or compressed (``.gz``, ``.bz2``, ``.xz``).

    The file is read in blocks, so that only a few megabytes are held beside the result. Text from ``#`` to the end of
    a line is a comment; lines without a row are ignored. Indices must rise within a row.

    Parameters
    ----------
    path
        The file.
    columns
        Number of columns of the matrix; None takes the highest index that occurs.
    first_index
        Whether the file counts columns from 1, as LIBSVM does, or from 0. None means from 0 if the index 0 occurs. Set
        it when several files belong together, because one of them may lack its first column.

    Returns
    -------
    matrix
        A :class:`scipy.sparse.csr_array` of float64.
    labels
        The number at the beginning of each row.
    """
    path = Path(path)
    if columns is not None and columns < 0:
        raise InputError(f"columns is {columns}; a matrix has no fewer than 0")
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    gathered = _Gathered(path, columns, first_index)
    try:
        with open_plain(path) as stream:
            for block, line in _blocks(stream):
                gathered.add(block, line)
    except DAMAGED as error:
        raise DataError(f"cannot read {path}: {error or type(error).__name__}") from error
    return gathered.finish()


def write_libsvm(path: str | Path, matrix: Any, labels: Any, *, first_index: Literal[0, 1] = 1) -> None:
    """Write rows in LIBSVM's format, compressed if the name has such a suffix; numbers read back exactly."""
    rows = sparse.csr_array(matrix, dtype=np.float64, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    values = np.asarray(labels, dtype=np.float64)
    if values.shape != rows.shape[:1]:
        raise InputError(f"{values.size:,} labels came with {rows.shape[0]:,} rows")
    if not (np.isfinite(rows.data).all() and np.isfinite(values).all()):
        raise DataError(f"{path} was not written: values or labels are missing or infinite; replace them")
    with open_for_writing(Path(path)) as stream:
        for label, start, end in zip(values.tolist(), rows.indptr[:-1], rows.indptr[1:], strict=True):
            indices, data = rows.indices[start:end].tolist(), rows.data[start:end].tolist()
            entries = (f" {index + first_index}:{_text(value)}" for index, value in zip(indices, data, strict=True))
            stream.write(f"{_text(label)}{''.join(entries)}\n".encode())


def _text(value: float) -> str:
    return repr(value).removesuffix(".0")


def _blocks(stream: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    """Read blocks of whole lines, each with the number of its first line."""
    line, rest = 1, [b""]
    while read := stream.read(_BLOCK):
        end = read.rfind(b"\n") + 1
        if not end:
            rest.append(read)
            continue
        block = b"".join([*rest, read[:end]])
        yield block, line
        line, rest = line + block.count(b"\n"), [read[end:]]
    if last := b"".join(rest):
        yield last, line


class _Gathered:
    """Rows read so far, in arrays that grow in place: joining blocks at the end would take twice the memory."""

    def __init__(self, path: Path, columns: int | None, first_index: Literal[0, 1] | None) -> None:
        self.path = path
        self.columns = columns
        self.first = first_index
        self.labels, self.data = array("d"), array("d")
        self.indices, self.ends = array("i"), array("q", [0])
        self.low, self.high = _LARGEST_INDEX, -1
        # The error in the row with the highest index, which counts only if columns turn out to count from 0.
        self.too_high: str | None = None

    @property
    def _bounds(self) -> tuple[int, int]:
        """The lowest and highest index a row may have."""
        low = self.first or 0
        if self.columns is None:
            return low, _LARGEST_INDEX
        return low, min(self.columns - 1 + (1 if self.first is None else self.first), _LARGEST_INDEX)

    def add(self, block: bytes, line: int) -> None:
        low, high = self._bounds
        rows, labels = self._parse(block, line)
        indices = rows.indices
        if indices.size:
            self.low, self.high = min(self.low, int(indices.min())), max(self.high, int(indices.max()))
        finite = np.isfinite(rows.data).all() and np.isfinite(labels).all()
        if not finite or self.low < low or self.high > high or any(word in block for word in _SUSPECT):
            self._refuse(_problem(block, line, low, high))
        if self.first is None and self.columns is not None and self.high == self.columns and not self.too_high:
            self.too_high = _problem(block, line, 0, self.columns - 1)
        self.labels.frombytes(labels.tobytes())
        self.data.frombytes(rows.data.tobytes())
        self.indices.frombytes(indices.astype(np.int32).tobytes())
        self.ends.frombytes((rows.indptr[1:].astype(np.int64) + self.ends[-1]).tobytes())

    def finish(self) -> tuple[Matrix, Array]:
        first = (0 if self.low == 0 else 1) if self.first is None else self.first
        if first == 0:
            self._refuse(self.too_high)
        if not self.labels:
            raise DataError(f"{self.path} gives no rows")
        indices = np.frombuffer(self.indices, dtype=np.int32)
        indices -= first
        narrow = np.int32 if len(self.data) <= _LARGEST_INDEX else np.int64
        ends = np.frombuffer(self.ends, dtype=np.int64).astype(narrow)
        width = max(0, self.high - first + 1) if self.columns is None else self.columns
        shape = (len(self.labels), width)
        matrix = sparse.csr_array((np.frombuffer(self.data), indices.astype(narrow, copy=False), ends), shape=shape)
        matrix.has_canonical_format = True
        return matrix, np.frombuffer(self.labels)

    def _parse(self, block: bytes, line: int) -> tuple[Any, Array]:
        # Imported here: scikit-learn's readers take long to load, and few tables have this format.
        from sklearn.datasets import load_svmlight_file

        try:
            return load_svmlight_file(io.BytesIO(block), dtype=np.float64, zero_based=True)
        except (ValueError, OverflowError) as error:
            # The error does not say where.
            self._refuse(_problem(block, line, *self._bounds))
            last = line + block.count(b"\n")
            raise DataError(f"{self.path}, between lines {line:,} and {last:,}: {error}") from error

    def _refuse(self, problem: str | None) -> None:
        if problem is not None:
            raise DataError(f"{self.path}, {problem}")


def _problem(block: bytes, first_line: int, low: int, high: int) -> str | None:
    """Find the first line that cannot be used, and why. It is slow, and runs only after an error."""
    for line, content in enumerate(block.split(b"\n"), first_line):
        label, *entries = content.partition(b"#")[0].split() or [b"0"]
        if problem := _wrong_number(label, "label") or _wrong_entries(entries, low, high):
            return f"line {line:,}: {problem}"
    return None


def _wrong_entries(entries: list[bytes], low: int, high: int) -> str | None:
    before = -1
    for entry in entries:
        index, colon, value = entry.partition(b":")
        if index == b"qid":
            return f"{_shown(entry)} is a query id, which is used for ranking only; remove it"
        if not colon or not _INDEX.fullmatch(index):
            return f"{_shown(entry)} is not index:value, such as 3:0.5"
        if problem := _wrong_number(value, f"value of {_shown(index)}"):
            return problem
        # Python refuses to count thousands of digits.
        place = int(index) if len(index) <= _LONGEST_INDEX else _LARGEST_INDEX + 1
        if not low <= place <= high:
            reason = f"indices go from {low} to {high}" if high < _LARGEST_INDEX else f"indices begin at {low}"
            return f"index {_shown(index)[1:-1]} is out of range: {reason}"
        if place <= before:
            what = "occurs twice" if place == before else f"comes after {before}"
            return f"index {place} {what}; indices must rise within a row"
        before = place
    return None


def _wrong_number(text: bytes, what: str) -> str | None:
    if not _NUMBER.fullmatch(text):
        return f"the {what} is {_shown(text)}, not a finite number"
    return None if math.isfinite(float(text)) else f"the {what} is {_shown(text)}, which is too large"


def _shown(text: bytes) -> str:
    shown = text.decode("latin-1")
    return ascii(shown if len(shown) <= 40 else f"{shown[:37]}...")
