"""A party's rows from any source: columns by name, and features that can be encoded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol, Self

import numpy as np
import pandas as pd

from evenhand.arrays import Array, Booleans, Integers, Matrix
from evenhand.data.tables.columns import DEFAULT_RULES, Rules
from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.libsvm import read_libsvm
from evenhand.data.tables.numerals import Decimal, read_numbers
from evenhand.data.tables.parquet_file import ParquetTable
from evenhand.data.tables.raw import (
    index_by,
    numbers_as_fitted,
    numbers_in,
    require_columns,
    to_pandas,
    with_numbers,
)
from evenhand.data.tables.readers import TableSource, is_csv, is_database, is_libsvm, local_file, read_table
from evenhand.data.tables.stream import encode_parquet, transform_parquet
from evenhand.errors import DataError, RunError
from evenhand.protocol.align import id_kind

LABEL: Final = "label"
"""The name of the numbers at the beginning of a LIBSVM file's rows."""
# A gigabyte of weights.
_WIDEST: Final = 2**27


class PartyTable(Protocol):
    """Rows of one party.

    Attributes
    ----------
    known
        Columns by name, indexed by id: at least those that were asked for beside the features and exist.
    names
        The columns there are, for messages.
    """

    @property
    def known(self) -> pd.DataFrame: ...
    @property
    def names(self) -> Sequence[str]: ...

    def aligned(self, ids: pd.Index) -> Self:
        """Return the table with the rows of these ids in this order."""
        ...

    def taken(self, places: Integers) -> Self:
        """Return the table with the rows at these places, in their order."""
        ...

    def encode(
        self, training: Booleans, scale: bool, as_is: bool = False, rules: Rules = DEFAULT_RULES
    ) -> tuple[PartyEncoder, Matrix]:
        """Fit an encoder on the training rows and encode all; `as_is` is for trees."""
        ...

    def transform(self, encoder: PartyEncoder) -> Matrix:
        """Encode all rows with an encoder fitted before."""
        ...

    def feature_columns(self) -> Iterator[tuple[str, pd.Series]]:
        """Yield name and values of each feature; numbered columns have none."""
        ...


@dataclass(frozen=True, eq=False)
class FrameTable:
    """Named columns, held in memory; `features` are those of `known` that are encoded.

    Ids that are `written` come from a CSV file: converting an id to text gives what the file has.
    """

    known: pd.DataFrame
    features: Sequence[str]
    written: bool = False

    @property
    def names(self) -> Sequence[str]:
        return [str(name) for name in self.known.columns]

    def aligned(self, ids: pd.Index) -> Self:
        return self if self.known.index.equals(ids) else replace(self, known=self.known.loc[ids])

    def taken(self, places: Integers) -> Self:
        return self if _all_in_order(places, len(self.known)) else replace(self, known=self.known.iloc[places])

    def with_text_ids(self) -> Self:
        """Return the table with ids as text, if their text in the file is known."""
        return replace(self, known=self.known.set_axis(self.known.index.map(str))) if self.written else self

    def encode(
        self, training: Booleans, scale: bool, as_is: bool = False, rules: Rules = DEFAULT_RULES
    ) -> tuple[PartyEncoder, Matrix]:
        frame = self.known[list(self.features)]
        encoder = PartyEncoder(scale=scale, as_is=as_is, **vars(rules)).fit(frame[training])
        return encoder, encoder.transform(frame)

    def transform(self, encoder: PartyEncoder) -> Matrix:
        return encoder.transform(self.known)

    def feature_columns(self) -> Iterator[tuple[str, pd.Series]]:
        return ((name, self.known[name]) for name in self.features)


@dataclass(frozen=True, eq=False)
class StreamedTable:
    """Named columns of a Parquet file. Only `known` is in memory; features are read when they are encoded."""

    known: pd.DataFrame
    names: Sequence[str]
    features: Sequence[str]
    source: TableSource
    id: str
    guessed: Mapping[str, Decimal] = field(default_factory=dict)

    def aligned(self, ids: pd.Index) -> Self:
        return self if self.known.index.equals(ids) else replace(self, known=self.known.loc[ids])

    def taken(self, places: Integers) -> Self:
        return self if _all_in_order(places, len(self.known)) else replace(self, known=self.known.iloc[places])

    def encode(
        self, training: Booleans, scale: bool, as_is: bool = False, rules: Rules = DEFAULT_RULES
    ) -> tuple[PartyEncoder, Matrix]:
        rows = self.known.index
        _, encoder, matrix = encode_parquet(
            str(self.source.table),
            id=self.id,
            columns=self.features,
            scale=scale,
            as_is=as_is,
            rows=rows,
            training=training,
            types=self.source.types,
            decimal=self.source.decimal,
            guessed=self.guessed,
            **vars(rules),
        )
        return encoder, matrix

    def transform(self, encoder: PartyEncoder) -> Matrix:
        reading: dict[str, Any] = {"types": self.source.types, "decimal": self.source.decimal}
        return transform_parquet(str(self.source.table), encoder, id=self.id, rows=self.known.index, **reading)[1]

    def feature_columns(self) -> Iterator[tuple[str, pd.Series]]:
        for name in self.features:
            frame = read_table(replace(self.source, columns=[name]))
            if name in self.guessed:
                values = read_numbers(frame[name], self.guessed[name]).values
                frame = frame.assign(**{name: pd.Series(values, frame.index)})
            yield name, frame[name].reindex(self.known.index)


@dataclass(frozen=True, eq=False)
class SparseTable:
    """Numbered columns, held as a sparse matrix."""

    known: pd.DataFrame
    matrix: Matrix

    @property
    def names(self) -> Sequence[str]:
        return [str(name) for name in self.known.columns]

    def aligned(self, ids: pd.Index) -> Self:
        return self if self.known.index.equals(ids) else self.taken(self.known.index.get_indexer(ids))

    def taken(self, places: Integers) -> Self:
        if _all_in_order(places, len(self.known)):
            return self
        return replace(self, known=self.known.iloc[places], matrix=self.matrix[places])

    def encode(
        self, training: Booleans, scale: bool, as_is: bool = False, rules: Rules = DEFAULT_RULES
    ) -> tuple[PartyEncoder, Matrix]:
        # Without scaling nothing is learned from the rows, and selecting some would copy them.
        learned_from = self.matrix if training.all() or not scale or as_is else self.matrix[np.flatnonzero(training)]
        encoder = PartyEncoder(scale=scale, as_is=as_is, monotone=rules.monotone).fit(learned_from)
        return encoder, encoder.transform(self.matrix)

    def transform(self, encoder: PartyEncoder) -> Matrix:
        return encoder.transform(self.matrix)

    def feature_columns(self) -> Iterator[tuple[str, pd.Series]]:
        return iter(())


def open_table(
    source: TableSource,
    features: Sequence[str] | None = None,
    known: Sequence[str] = (),
    encoder: PartyEncoder | None = None,
) -> PartyTable:
    """Open a party's table.

    Parameters
    ----------
    source
        Where the table is. Its `columns` are not used.
    features
        The columns to encode; None takes all but the id and those of `known`.
    known
        Columns needed by name: the label and sensitive ones. They are features too only if `features` names them.
        Columns that do not exist are left out.
    encoder
        The fitted encoder that the rows are for, if there is one; its columns are the features.
    """
    if source.table is not None and is_libsvm(source.table):
        return _open_libsvm(source, features, known, None if encoder is None else encoder.sparse_columns)
    if encoder is not None:
        if encoder.sparse_columns is not None:
            raise DataError(
                f"{source.describe()} has named columns; the model was trained on a table in LIBSVM's format, with "
                f"{encoder.sparse_columns:,} numbered ones"
            )
        # New rows may lack labels and groups.
        features, known = encoder.columns_in, ()
    streamed = source.duplicates == "refuse" and str(source.table).lower().endswith(".parquet")
    if source.id is not None and source.sql is None and streamed:
        return _open_parquet(source, source.id, features, known, guess=encoder is None)
    wanted = None if features is None else list(dict.fromkeys([*features, *known]))
    frame = read_table(replace(source, columns=wanted))
    chosen = _features(list(frame.columns), features, [*known, *source.left_out])
    written = source.id is not None and is_csv(source.table)
    if encoder is None:
        frame = with_numbers(frame, chosen, source.types, source.describe(), typed=not is_csv(source.table))
    else:
        frame = numbers_as_fitted(frame, encoder.kinds, source.decimal)
    return FrameTable(frame, chosen, written)


def with_one_kind_of_ids(tables: Mapping[str, PartyTable]) -> dict[str, PartyTable]:
    """Return the tables with ids of one kind: if one party's ids are text, those of CSV files become text.

    A CSV file does not say whether 12 is a number or text; the other parties' ids may include 007.
    """
    if not any(id_kind(table.known.index) == "text" for table in tables.values()):
        return dict(tables)
    return {name: table.with_text_ids() if isinstance(table, FrameTable) else table for name, table in tables.items()}


def _all_in_order(places: Integers, rows: int) -> bool:
    return len(places) == rows and bool((places == np.arange(rows)).all())


def _features(found: Sequence[str], features: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    if features is not None:
        return list(features)
    left = [str(name) for name in found if name not in known]
    if not left:
        raise DataError("no feature columns are left beside id, label and sensitive ones")
    return left


def _open_parquet(
    source: TableSource, id: str, features: Sequence[str] | None, known: Sequence[str], *, guess: bool
) -> StreamedTable:
    file = ParquetTable(local_file(str(source.table)))
    names = file.names
    # Read like every other table, so that labels and groups have the same types in all formats.
    beside = read_table(replace(source, columns=[name for name in known if name in names]))
    others = [name for name in names if name != id]
    chosen = _features(others, features, [*known, *source.left_out])
    require_columns(chosen, names, source.describe())
    return StreamedTable(beside, others, chosen, source, id, _guessed(source, file, chosen) if guess else {})


def _guessed(source: TableSource, file: ParquetTable, features: Sequence[str]) -> dict[str, Decimal]:
    """Find columns of text that hold numbers, and their decimal sign; only one is in memory at a time."""
    found = {}
    for name in file.of_text(features):
        if name not in source.types:
            column = to_pandas(file.read([name]), str(file.path))[name]
            if (numbers := numbers_in(column, name, source.describe(), typed=True)) is not None:
                found[name] = numbers.decimal
    return found


def _open_libsvm(
    source: TableSource, features: Sequence[str] | None, known: Sequence[str], width: int | None
) -> SparseTable:
    """Read a LIBSVM file; its columns are named by the numbers the file gives them."""
    if source.sql is not None:
        raise DataError(f"{source.describe()}: sql goes with a database or a DuckDB file; name the columns instead")
    path, first = local_file(str(source.table)), source.first_index
    taken = dict.fromkeys(name for name in (source.id, *known) if name is not None and name != LABEL)
    places = {name: _place(name, first, path) for name in [*taken, *(features or ())]}
    # The encoder was fitted on the columns that were left after these were taken out.
    columns = width + len(taken) if width is not None and features is None else None
    matrix, labels = read_libsvm(path, columns, first_index=first)
    needed = max(places.values(), default=-1) + 1
    if max(needed, matrix.shape[1]) > _WIDEST:
        raise DataError(
            f"{path} has columns up to {max(needed, matrix.shape[1]) - 1 + first:,}, and a model a weight for each, "
            f"used or not; number those that occur without gaps, up to {_WIDEST:,}"
        )
    if needed > matrix.shape[1] and width is None:
        highest = matrix.shape[1] - 1 + first
        raise DataError(f"{path} has no column {needed - 1 + first}; the highest that occurs is {highest}")
    # New rows may have only zeros in the last columns.
    matrix.resize(matrix.shape[0], max(needed, matrix.shape[1]))
    values = {name: _numbers(matrix[:, [places[name]]].toarray().ravel()) for name in taken}
    frame = pd.DataFrame({LABEL: _numbers(labels), **values}, index=pd.RangeIndex(len(labels), name="row"))
    if source.id is not None:
        frame = index_by(frame, source.id, str(path))
    if features is not None:
        matrix = matrix[:, [places[name] for name in features]]
    elif taken:
        matrix = matrix[:, np.setdiff1d(np.arange(matrix.shape[1]), [places[name] for name in taken])]
    if matrix.shape[1] == 0:
        raise DataError("no feature columns are left beside id, label and sensitive ones")
    return SparseTable(frame, matrix)


def _place(name: str, first: int, path: Path) -> int:
    if not name.isascii() or not name.isdecimal() or len(name) > 10 or int(name) < first:
        raise DataError(
            f"{path} has no column {name!r}: columns of a LIBSVM file are called by their numbers, from {first!r} on, "
            f"such as '{first + 6}', and the numbers at the beginning of the rows {LABEL!r}"
        )
    return int(name) - first


def _numbers(values: Array) -> Array | Integers:
    """Return whole numbers as integers: a label is 1 or -1, not 1.0 or -1.0."""
    whole = np.array_equal(np.rint(values), values) and bool(np.all(np.abs(values) < 2**53))
    return values.astype(np.int64) if whole else values


@dataclass(frozen=True)
class SeenTable:
    """A table's source, and the digest of its content."""

    source: TableSource
    digest: str

    @classmethod
    def of(cls, source: TableSource) -> Self:
        """Take the digest of a table now. Call it before reading, so that no change falls between."""
        return cls(source, _digest(source))


def require_unchanged(tables: Mapping[str, SeenTable]) -> None:
    """Raise an error if a table has changed; the keys name the owners."""
    for owner, seen in tables.items():
        where = f"the table of {owner} ({seen.source.describe()})"
        try:
            same = _digest(seen.source) == seen.digest
        except DataError as error:
            raise RunError(f"{where} cannot be read again to see whether it has changed: {error}") from error
        if not same:
            raise RunError(f"{where} changed while the run was on, so its result is void; train again in a new folder")


def _digest(source: TableSource) -> str:
    if is_database(source):
        return _rows_digest(read_table(replace(source, id=None, columns=None)))
    path = local_file(str(source.table))
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def _rows_digest(frame: pd.DataFrame) -> str:
    """Return a digest that does not depend on the order of rows, which a database need not keep."""
    plain = {name: column.map(repr) if column.dtype == object else column for name, column in frame.items()}
    rows = np.sort(pd.util.hash_pandas_object(pd.DataFrame(plain), index=False).to_numpy())
    heading = "\n".join(f"{name}: {column.dtype}" for name, column in frame.items())
    return hashlib.sha256(heading.encode() + rows.tobytes()).hexdigest()
