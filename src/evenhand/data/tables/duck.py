"""Read tables in DuckDB files; their SQL cannot reach anything else on the machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenhand.data.tables.raw import brief
from evenhand.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

_TABLES: Final = (
    "SELECT schema_name, table_name FROM duckdb_tables() WHERE NOT internal "
    "UNION ALL SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal ORDER BY ALL"
)
# Extensions would be downloaded at run time.
_CONFIG: Final[dict[str, Any]] = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}


def read_database(path: Path, sql: str | None) -> pa.Table:
    """Read the only table of a DuckDB file, or what `sql` selects."""
    import duckdb

    try:
        with duckdb.connect(str(path.resolve()), read_only=True, config=_CONFIG) as connection:
            _lock(connection)
            relation = connection.sql(sql if sql is not None else f"SELECT * FROM {_only_table(connection, path)}")
            if relation is None:
                raise DataError(f"{path}: the sql returns no table; a SELECT is needed")
            return relation.to_arrow_table()
    except duckdb.Error as error:
        advice = "check that it is a DuckDB file" if sql is None else "check the sql: it reads this file and no other"
        raise DataError(f"cannot read {path}: {brief(error)}\n{advice}") from error


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
