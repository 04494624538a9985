"""Read a party's table, from a file or a database, as a pandas frame indexed by id."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Final, Literal

import pandas as pd

from evenhand.data.compressed import SUFFIXES
from evenhand.data.tables.addresses import Address, is_address, shown_file
from evenhand.data.tables.csv_file import read_csv
from evenhand.data.tables.numerals import Decimal
from evenhand.data.tables.parquet_file import ParquetTable
from evenhand.data.tables.raw import (
    TYPES,
    Duplicates,
    TypeName,
    as_types,
    index_by,
    require_columns,
    require_distinct,
    to_pandas,
)
from evenhand.errors import DataError
from evenhand.printing import quoted

if TYPE_CHECKING:
    import pyarrow as pa

_PLAIN_FILES: Final = (".csv", ".parquet")
_DATABASES: Final = (".duckdb", ".ddb")
_LIBSVM: Final = (".libsvm", ".svm")


def is_libsvm(path: str | Path) -> bool:
    """Return whether the name is of a file in LIBSVM's format: ``.libsvm`` or ``.svm``, perhaps compressed."""
    path = Path(path)
    return Path(path.stem if path.suffix.lower() in SUFFIXES else path).suffix.lower() in _LIBSVM


@dataclass(frozen=True)
class TableSource:
    """Where a table is, and how to read it.

    Parameters
    ----------
    table : a CSV, Parquet or DuckDB file; a job's table may also be in LIBSVM's format.
    database : instead, ``sqlite:///path`` or ``postgresql://user:password@host/name``. Write ``${NAME}`` for the value
        of an environment variable, such as the password. It becomes an :class:`Address`, which shows neither.
    sql : the SELECT to run; needed with `database`, and for a DuckDB file with several tables.
    id : the column that identifies a row; it becomes the index.
    columns : the columns to keep beside the id; all when None.
    first_index : whether a file in LIBSVM's format counts columns from 1 or from 0.
    encoding, delimiter, decimal : how a CSV file is written: the encoding such as ``"cp1252"``, the delimiter (None
        looks at the header), and the decimal sign.
    types : types of columns, by name: ``"number"``, ``"category"`` or ``"date"``; ``"leave out"`` makes no feature of
        a column.
    duplicates : what to do with rows of the same id: refuse them, or take the ``"first"``, the ``"last"`` or the
        ``"sum"``.
    """

    table: str | Path | None = None
    database: str | Address | None = None
    sql: str | None = None
    id: str | None = None
    columns: Sequence[str] | None = None
    first_index: Literal[0, 1] = 1
    encoding: str = "utf-8"
    delimiter: str | None = None
    decimal: Decimal = "."
    types: Mapping[str, TypeName] = field(default_factory=dict)
    duplicates: Duplicates = "refuse"

    def __post_init__(self) -> None:
        _check_writing(self.encoding, self.delimiter, self.decimal)
        for name, kind in self.types.items():
            if kind not in TYPES:
                raise DataError(f"types.{name} is {quoted(kind)}; choose one of {', '.join(map(repr, TYPES))}")
        if (self.table is None) == (self.database is None):
            raise DataError("a table comes from either a file (table) or a database: give one of the two")
        if self.database is not None:
            object.__setattr__(self, "database", Address.of(self.database))
        if self.table is not None:
            require_file_name(str(self.table))
        if self.database is not None and not (self.sql or "").strip():
            raise DataError(f'reading from {self.describe()} needs sql, such as "select * from customers"')

    @property
    def left_out(self) -> list[str]:
        """Columns that do not become features."""
        return [name for name, kind in self.types.items() if kind == "leave out"]

    def describe(self) -> str:
        """Say where the table is, without passwords."""
        return str(self.database) if self.database is not None else shown_file(str(self.table))


def _check_writing(encoding: str, delimiter: str | None, decimal: str) -> None:
    try:
        codecs.lookup(encoding)
    except (LookupError, TypeError) as error:
        raise DataError(f"encoding is {quoted(encoding)}, which is unknown; try 'utf-8' or 'cp1252'") from error
    if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n'):
        raise DataError(f"delimiter is {quoted(delimiter)}; give one character, such as ';' or a tab")
    if decimal not in (".", ","):
        raise DataError(f"decimal is {quoted(decimal)}; it is '.' or ','")
    if decimal == delimiter:
        raise DataError(f"{decimal!r} cannot be both the delimiter and the decimal sign")


def read_table(source: TableSource) -> pd.DataFrame:
    """Read a table; the id column, if one is named, becomes the index."""
    if source.table is not None and is_libsvm(source.table):
        raise DataError(f"{source.describe()} is a sparse table: read it with read_libsvm or open_table")
    where = source.describe()
    table = _read_arrow(source)
    if table.num_rows == 0:
        raise DataError(f"{where} gives no rows")
    require_distinct(table.column_names, where)
    frame = to_pandas(table.select(_wanted(source, table.column_names)), where)
    frame = as_types(frame, source.types, source.decimal, where)
    return frame if source.id is None else index_by(frame, source.id, where, source.duplicates)


def _wanted(source: TableSource, found: Sequence[str]) -> list[str]:
    """Return the columns to keep, the id first; refuse columns that do not exist."""
    wanted = list(found if source.columns is None else source.columns)
    if source.id is not None:
        wanted = [source.id, *(name for name in wanted if name != source.id)]
    require_columns(wanted, found, source.describe())
    return wanted


def _read_arrow(source: TableSource) -> pa.Table:
    # Imported here: DuckDB and the drivers take longer to load than the rest of the package.
    if source.database is not None:
        from evenhand.data.tables.sql import query

        return query(Address.of(source.database), source.sql or "")
    path = local_file(str(source.table))
    suffix = path.suffix.lower()
    if suffix in _DATABASES:
        from evenhand.data.tables.sql import read_database

        return read_database(path, source.sql)
    if suffix not in _PLAIN_FILES:
        known = ", ".join((*_PLAIN_FILES, *_DATABASES))
        raise DataError(f"{path}: cannot tell the format from {suffix or 'no ending'!r}; files end in {known}")
    if source.sql is not None:
        raise DataError(f"{path}: sql goes with a database or a DuckDB file; for {suffix} name the columns instead")
    if is_csv(path):
        return read_csv(path, source.id, encoding=source.encoding, delimiter=source.delimiter, decimal=source.decimal)
    file = ParquetTable(path)
    return file.read(_wanted(source, file.names))


def is_database(source: TableSource) -> bool:
    """Tell whether a table is the result of a query, not a file of its own."""
    return source.database is not None or Path(str(source.table)).suffix.lower() in _DATABASES


def is_csv(table: str | Path | None) -> bool:
    """Tell by its name whether a table is a CSV file."""
    return str(table).lower().endswith(".csv")


def require_file_name(text: str) -> None:
    """Refuse an address where a file's name is needed."""
    if is_address(text):
        raise DataError(
            f"table is an address, {shown_file(text)}, and not a file on this machine: give a database's as database, "
            "with sql; download anything else first"
        )


def local_file(text: str) -> Path:
    """Return the path of a table; refuse a name that is not a single file on this machine."""
    require_file_name(text)
    shown = shown_file(text)
    if any(sign in text for sign in "*?["):
        raise DataError(f"{shown} looks like a pattern for several files; name one file, without * ? or [")
    problem = ""
    try:
        path = Path(text).expanduser()
        found = path.stat()
    except FileNotFoundError:
        problem = f"there is no file {shown} (looked from {Path.cwd()})"
    except OSError as error:
        # A name too long, a folder that may not be entered.
        problem = f"{shown} cannot be opened: {error.strerror}"
    except (RuntimeError, ValueError) as error:
        # The home folder of an unknown user.
        problem = f"{shown} cannot be opened: {error}"
    else:
        if not S_ISREG(found.st_mode):
            problem = f"{shown or 'the table'} is not a file; name a CSV, Parquet or DuckDB file"
        elif found.st_size == 0:
            problem = f"{shown} is empty"
    if problem:
        # Raised outside the handlers: the system's errors quote the whole name, which may be an address.
        raise DataError(problem)
    return path
