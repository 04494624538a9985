"""Encode a Parquet file in two passes, without holding its raw table: one to fit, one to fill the matrix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse

from evenhand.arrays import Array, Booleans, Integers, Matrix
from evenhand.data.tables.columns import Direction, MissingRule, NumbersRule, Rules
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.numerals import Decimal, read_numbers
from evenhand.data.tables.parquet_file import ParquetTable
from evenhand.data.tables.raw import (
    RawColumn,
    TypeName,
    as_types,
    index_by,
    numbers_as_fitted,
    require_columns,
    to_pandas,
)
from evenhand.data.tables.readers import local_file
from evenhand.errors import DataError, InputError


def encode_parquet(
    path: str | Path,
    *,
    id: str | None = None,
    columns: Sequence[str] | None = None,
    scale: bool = True,
    as_is: bool = False,
    rows: pd.Index | None = None,
    training: Booleans | None = None,
    missing: MissingRule | Mapping[str, MissingRule] = "indicator",
    max_levels: int | None = None,
    numbers: NumbersRule | Mapping[str, NumbersRule] = "auto",
    auto_numbers: NumbersRule = "standard",
    monotone: Mapping[str, Direction] | None = None,
    types: Mapping[str, TypeName] | None = None,
    decimal: Decimal = ".",
    guessed: Mapping[str, Decimal] | None = None,
) -> tuple[pd.Index, PartyEncoder, Matrix]:
    """Encode a Parquet file in two passes over its row groups.

    The result is the same as reading the whole table and giving it to a :class:`PartyEncoder`: the same levels, the
    same features, and means and deviations that agree up to rounding. It takes the memory of the encoded matrix, the
    ids and a part of one row group.

    Parameters
    ----------
    path
        The file.
    id
        The column that identifies a row; None numbers them 0, 1, ...
    columns
        The features; None takes all columns but the id.
    scale
        Standardise numeric columns.
    as_is
        Take columns as they are, for trees.
    rows
        The ids wanted, in the order wanted; None takes every row in the file's order. Other rows are ignored.
    training
        Which of the rows to fit the encoder on; all when None.
    missing, max_levels, numbers, auto_numbers, monotone
        As in :class:`PartyEncoder`. Columns with missing values and curves are read once more, one at a time, for their
        medians and quantiles.
    types, decimal
        As in :class:`TableSource`.
    guessed
        Columns of text that are read as numbers, and their decimal sign.

    Returns
    -------
    ids, encoder, matrix
    """
    if training is not None and rows is None:
        raise InputError("training says which of rows to learn from; give rows as well")
    if rows is not None and training is not None and len(training) != len(rows):
        raise InputError(f"training has {len(training):,} entries for {len(rows):,} rows")
    file = _StreamedFile(path, id, columns, types or {}, decimal, guessed or {})
    rules = Rules(missing, max_levels, numbers, auto_numbers, monotone or {})
    encoder = PartyEncoder(scale=scale, as_is=as_is, **vars(rules))
    found = []
    for start, ids, frame in file.batches():
        if rows is None:
            found.append(ids)
        if len(frame := _learned_from(start, ids, frame, rows, training)):
            encoder.partial_fit(frame)
    for name in encoder.unfinished:
        parts = (_learned_from(*batch, rows, training)[name] for batch in file.batches([name]))
        encoder.finish(name, np.concatenate([RawColumn.of(part, name).known for part in parts]))
    wanted = file.checked(found) if rows is None else rows
    return wanted, encoder, _fill(file, encoder, wanted, placed=rows is None)


def _learned_from(
    start: int, ids: pd.Index, frame: pd.DataFrame, rows: pd.Index | None, training: Booleans | None
) -> pd.DataFrame:
    """Return the rows of a batch that the encoder is fitted on."""
    if rows is None:
        return frame
    places = _places(rows, ids, start)
    some = (places >= 0) & (True if training is None else training[places])
    return frame if some.all() else frame[some]


def _places(wanted: pd.Index, ids: pd.Index, start: int) -> Integers:
    """Return the places, among the rows wanted, of a batch that begins at `start` in its file; −1 for other rows."""
    # Most files have the rows in this order. Then no lookup table is needed, which is as large as many columns.
    if wanted[start : start + len(ids)].equals(ids):
        return np.arange(start, start + len(ids))
    return np.asarray(wanted.get_indexer(ids), dtype=np.int64)


def transform_parquet(
    path: str | Path,
    encoder: PartyEncoder,
    *,
    id: str | None = None,
    rows: pd.Index | None = None,
    types: Mapping[str, TypeName] | None = None,
    decimal: Decimal = ".",
) -> tuple[pd.Index, Matrix]:
    """Encode a Parquet file with a fitted encoder; the parameters are those of :func:`encode_parquet`."""
    if encoder.sparse_columns is not None:
        raise DataError(f"{path} has named columns; the encoder was fitted on a sparse matrix")
    file = _StreamedFile(path, id, encoder.columns_in, types or {}, decimal)
    wanted = file.checked([ids for _, ids, _ in file.batches([])]) if rows is None else rows
    return wanted, _fill(file, encoder, wanted, placed=rows is None)


class _StreamedFile:
    """The id and feature columns of a Parquet file, batch by batch."""

    def __init__(
        self,
        path: str | Path,
        id: str | None,
        columns: Sequence[str] | None,
        types: Mapping[str, TypeName],
        decimal: Decimal,
        guessed: Mapping[str, Decimal] | None = None,
    ) -> None:
        self.types, self.decimal, self.guessed = types, decimal, guessed or {}
        self.path = local_file(str(path))
        self.table = ParquetTable(self.path)
        self.id = id
        self.columns = [name for name in self.table.names if name != id] if columns is None else list(columns)
        require_columns([*([] if id is None else [id]), *self.columns], self.table.names, str(self.path))
        if not self.columns:
            raise DataError(f"{self.path}: there is no column to encode beside the id")

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[tuple[int, pd.Index, pd.DataFrame]]:
        """Read start, ids and features (all or some) of some thousand rows at a time."""
        features = self.columns if columns is None else list(columns)
        wanted = list(dict.fromkeys([*([] if self.id is None else [self.id]), *features]))
        start = 0
        for batch in self.table.batches(wanted):
            frame = to_pandas(batch, str(self.path))
            ids: pd.Index
            if self.id is None:
                ids = pd.RangeIndex(start, start + batch.num_rows)
            else:
                ids = index_by(frame[[self.id]], self.id, str(self.path)).index
            chosen = as_types(frame[features], self.types, self.decimal, str(self.path))
            texts = {name: sign for name, sign in self.guessed.items() if name in features}
            numbers = {name: read_numbers(chosen[name], sign).values for name, sign in texts.items()}
            yield start, ids, chosen.assign(**numbers)
            start += batch.num_rows

    def checked(self, found: Sequence[pd.Index]) -> pd.Index:
        """Return all ids; refuse duplicates."""
        if self.id is None:
            return pd.RangeIndex(sum(map(len, found)))
        whole = found[0].append(list(found[1:]))
        return index_by(pd.DataFrame({self.id: whole}), self.id, str(self.path)).index


def _fill(file: _StreamedFile, encoder: PartyEncoder, wanted: pd.Index, placed: bool) -> Matrix:
    """Encode every row into its place; `placed` tells that the file has the rows in the order wanted."""
    width = encoder.width_out
    target = _SparseTarget(len(wanted), encoder) if encoder.gives_sparse else _DenseTarget(len(wanted), width)
    times = np.zeros(len(wanted), dtype=np.int8)
    for start, ids, frame in file.batches():
        places = np.arange(start, start + len(ids)) if placed else _places(wanted, ids, start)
        kept = np.flatnonzero(places >= 0)
        if kept.size:
            frame = numbers_as_fitted(frame, encoder.kinds, file.decimal)
            times[places[kept]] += 1
            target.put(places[kept], encoder.transform(frame if kept.size == len(frame) else frame.iloc[kept]))
    if wrong := int(np.count_nonzero(times != 1)):
        raise DataError(f"{file.path} lacks {wrong:,} of the {len(wanted):,} rows wanted, or has them more than once")
    return target.finish()


class _DenseTarget:
    """An array filled row by row and stored by column, as linear models store theirs, so that none is copied."""

    def __init__(self, rows: int, width: int) -> None:
        self.values: Array = np.zeros((rows, width), order="F")

    def put(self, places: Integers, encoded: Matrix) -> None:
        self.values[places] = encoded

    def finish(self) -> Matrix:
        return self.values


class _SparseTarget:
    """A sparse matrix filled row by row, in any order; the most entries a row can have are known."""

    def __init__(self, rows: int, encoder: PartyEncoder) -> None:
        most = encoder.entries_a_row
        self.width = encoder.width_out
        narrow: type[np.int32] | type[np.int64] = np.int32 if max(rows * most, self.width) < 2**31 else np.int64
        self.lengths = np.zeros(rows, dtype=narrow)
        self.indices = np.zeros((rows, most), dtype=narrow)
        self.values = np.zeros((rows, most))

    def put(self, places: Integers, encoded: Matrix) -> None:
        lengths = np.diff(encoded.indptr)
        self.lengths[places] = lengths
        # The row of each entry, and its place within that row.
        row = np.repeat(places, lengths)
        within = np.arange(encoded.nnz) - np.repeat(encoded.indptr[:-1], lengths)
        self.indices[row, within] = encoded.indices
        self.values[row, within] = encoded.data

    def finish(self) -> Matrix:
        rows, most = self.indices.shape
        ends = np.concatenate([[0], np.cumsum(self.lengths)]).astype(self.lengths.dtype)
        if ends[-1] == rows * most:
            parts = (self.values.ravel(), self.indices.ravel(), ends)
        else:
            filled: Booleans = np.arange(most) < self.lengths[:, np.newaxis]
            parts = (self.values[filled], self.indices[filled], ends)
        return sparse.csr_array(parts, shape=(rows, self.width))
