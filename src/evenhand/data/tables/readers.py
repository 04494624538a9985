"""A party's table, from a file or a database, as a pandas frame indexed by id."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pandas as pd

from evenhand.data.tables.addresses import redact
from evenhand.data.tables.libsvm import is_libsvm
from evenhand.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class TableSource:
    """Where a table is.

    Parameters
    ----------
    table : a CSV, Parquet or DuckDB file; :func:`evenhand.data.open_table` also takes one in LIBSVM's format.
    database : instead, ``sqlite:///path`` or ``postgresql://user:password@host/name``. Write ``${NAME}`` for
        what an environment variable holds, such as the password.
    sql : the SELECT to run; needed with `database`, and for a DuckDB file with several tables.
    id : the column that identifies a row; it becomes the index.
    columns : the columns to keep beside the id; all when None.
    first_index : whether a file in LIBSVM's format counts columns from 1 or from 0.
    """

    table: str | Path | None = None
    database: str | None = field(default=None, repr=False)
    sql: str | None = None
    id: str | None = None
    columns: Sequence[str] | None = None
    first_index: Literal[0, 1] = 1

    def __post_init__(self) -> None:
        if (self.table is None) == (self.database is None):
            raise DataError("a table comes from either a file (table) or a database: give one of the two")
        if self.database is not None and not (self.sql or "").strip():
            raise DataError(f'reading from {self.describe()} needs sql, such as "select * from customers"')

    def describe(self) -> str:
        """Say where the table is, without passwords."""
        return redact(self.database) if self.database is not None else str(self.table)


def read_table(source: TableSource) -> pd.DataFrame:
    """Read a table; the id column, if one is named, becomes the index."""
    if source.table is not None and is_libsvm(source.table):
        raise DataError(f"{source.describe()} is a sparse table: read it with read_libsvm or open_table")
    table = _read_arrow(source)
    where = source.describe()
    if table.num_rows == 0:
        raise DataError(f"{where} gives no rows")
    require_distinct(table.column_names, where)
    wanted = list(table.column_names) if source.columns is None else list(source.columns)
    if source.id is not None:
        wanted = [source.id, *(name for name in wanted if name != source.id)]
    require_columns(wanted, table.column_names, where)
    frame = to_pandas(table.select(wanted))
    return frame if source.id is None else index_by(frame, source.id, where)


def _read_arrow(source: TableSource) -> pa.Table:
    # Imported here: DuckDB and the drivers take longer to load than the rest of the package.
    if source.database is not None:
        from evenhand.data.tables.sql import query

        return query(source.database, source.sql or "")
    from evenhand.data.tables.duck import read_file

    return read_file(local_file(str(source.table)), source.sql)


def local_file(text: str) -> Path:
    """The file a table's name means; whatever is no single file on this machine is refused."""
    if "://" in text:
        raise DataError(f"{text} is a remote address; only files on this machine are read, so download it first")
    if any(sign in text for sign in "*?["):
        raise DataError(f"{text} looks like a pattern for several files; name one file, without * ? or [")
    path = Path(text).expanduser()
    if not path.exists():
        raise DataError(f"there is no file {path} (looked from {Path.cwd()})")
    if not path.is_file():
        raise DataError(f"{path} is not a file")
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty")
    return path


def require_distinct(names: Sequence[str], where: str) -> None:
    """Refuse a table that has two columns of one name."""
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise DataError(f'{where} gives columns {", ".join(twice)} more than once; rename them with "as" in the sql')


def require_columns(wanted: Sequence[str], found: Sequence[str], where: str) -> None:
    """Refuse what asks for columns that a table does not have; the message names close ones."""
    problems = []
    for name in wanted:
        if name not in found:
            close = difflib.get_close_matches(name, found, n=3) or list(found[:10])
            problems.append(f"no column {name!r} (there is {', '.join(map(repr, close))})")
    if problems:
        raise DataError(f"{where} has {'; '.join(problems)}")


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """Convert to pandas, with decimals as floats: as objects they would be taken for categories."""
    import pyarrow as pa

    for k, column in enumerate(table.schema):
        numeric = (column.metadata or {}).get(b"ADBC:postgresql:typname") == b"numeric"
        if numeric or pa.types.is_decimal(column.type):
            plain = table.column(k).combine_chunks()
            storage = getattr(plain, "storage", plain)
            table = table.set_column(k, column.name, storage.cast(pa.float64()))
    return table.to_pandas()


def index_by(frame: pd.DataFrame, name: str, where: str) -> pd.DataFrame:
    """Make an id column the index; a row without an id, or two with the same, are refused."""
    missing = int(frame[name].isna().sum())
    if missing:
        raise DataError(f"{where}: {missing:,} of {len(frame):,} rows have no {name!r}")
    repeated = frame.loc[frame[name].duplicated(), name].unique()
    if len(repeated):
        few = ", ".join(str(one) for one in repeated[:3])
        raise DataError(f"{where}: {len(repeated):,} values of {name!r} occur more than once, such as {few}")
    return frame.set_index(name)
