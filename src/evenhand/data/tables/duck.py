"""Tables in CSV, Parquet and DuckDB files, read through DuckDB with everything else on the machine out of its reach."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenhand.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

_READERS: Final = {
    # Types are guessed from the whole file: a guess from its first rows fails on row 20,481. Not booleans: DuckDB takes
    # yes and no for them, and a label of yes and no shall stay what it is.
    ".csv": "SELECT * FROM read_csv(?, header = true, sample_size = -1, auto_type_candidates = "
    "['NULL', 'BIGINT', 'DOUBLE', 'TIME', 'DATE', 'TIMESTAMP', 'TIMESTAMPTZ', 'VARCHAR'])",
    ".parquet": "SELECT * FROM read_parquet(?)",
}
_DATABASES: Final = (".duckdb", ".ddb")
_TABLES: Final = (
    "SELECT schema_name, table_name FROM duckdb_tables() WHERE NOT internal "
    "UNION ALL SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal ORDER BY ALL"
)
# Extensions would be downloaded at run time.
_CONFIG: Final[dict[str, Any]] = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}


def read_file(path: Path, sql: str | None) -> pa.Table:
    """Read a table file; `sql` selects from a DuckDB file that holds several tables."""
    import duckdb

    suffix = path.suffix.lower()
    if suffix not in (*_READERS, *_DATABASES):
        known = ", ".join((*_READERS, *_DATABASES))
        raise DataError(f"{path}: cannot tell the format from {suffix or 'no ending'!r}; files end in {known}")
    if sql is not None and suffix in _READERS:
        raise DataError(f"{path}: sql goes with a database or a DuckDB file; for {suffix} name the columns instead")
    try:
        if suffix in _READERS:
            table = _read_plain_file(path, _READERS[suffix])
            return _true_and_false(table) if suffix == ".csv" else table
        return _read_database(path, sql)
    except duckdb.Error as error:
        raise DataError(f"cannot read {path}: {error}") from error


def _read_plain_file(path: Path, query: str) -> pa.Table:
    import duckdb

    text = str(path.resolve())
    with duckdb.connect(":memory:", config=_CONFIG) as connection:
        # SET takes no parameters, so the quote is doubled by hand.
        connection.execute("SET allowed_paths = ['{}']".format(text.replace("'", "''")))
        _lock(connection)
        return connection.sql(query, params=[text]).to_arrow_table()


def _read_database(path: Path, sql: str | None) -> pa.Table:
    import duckdb

    with duckdb.connect(str(path.resolve()), read_only=True, config=_CONFIG) as connection:
        _lock(connection)
        relation = connection.sql(sql if sql is not None else f"SELECT * FROM {_only_table(connection, path)}")
        if relation is None:
            raise DataError(f"{path}: the sql returns no table; a SELECT is needed")
        return relation.to_arrow_table()


def _lock(connection: Any) -> None:
    """Cut a connection off from other files and the network, for good."""
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _only_table(connection: Any, path: Path) -> str:
    tables = connection.execute(_TABLES).fetchall()
    if len(tables) != 1:
        names = ", ".join(table if schema == "main" else f"{schema}.{table}" for schema, table in tables)
        raise DataError(f"{path} holds {f'several tables ({names})' if tables else 'no table'}; choose with sql")
    return ".".join('"{}"'.format(part.replace('"', '""')) for part in tables[0])


def _true_and_false(table: pa.Table) -> pa.Table:
    """Text columns that say nothing but true and false, as booleans: what they are in every other format."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for k, column in enumerate(table.schema):
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            words = pc.utf8_lower(table.column(k))
            if set(words.unique().to_pylist()) <= {"true", "false", None}:
                table = table.set_column(k, column.name, pc.equal(words, "true"))
    return table
