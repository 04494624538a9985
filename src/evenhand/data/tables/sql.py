"""Tables in SQLite and PostgreSQL databases, read through the ADBC drivers (extra ``sql``)."""

from __future__ import annotations

import importlib
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from evenhand.data.tables.addresses import SQLITE, Address, FilledAddress, can_be_taken_apart
from evenhand.data.tables.raw import brief
from evenhand.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    import pyarrow as pa


_POSTGRES: Final = ("postgresql://", "postgres://")
_CONNECT_SECONDS: Final = 10
# The SQLite driver takes a column's type from its first batch and fails on a later surprise: look at many rows.
_SQLITE_BATCH: Final = {"adbc.sqlite.query.batch_rows": 1 << 16}

_ALLOWED: Final = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)


def query(address: Address, sql: str) -> pa.Table:
    """Run a SELECT on the database at an address; messages show the address redacted."""
    filled = address.fill_in()
    if filled.reveal().startswith(SQLITE):
        return _run("adbc_driver_sqlite", filled, sql, _SQLITE_BATCH)
    if not filled.reveal().startswith(_POSTGRES):
        raise DataError(
            f"the database address {address} is not known; it starts with {SQLITE} or {_POSTGRES[0]}. Write a password "
            "as ${NAME}, for what an environment variable holds"
        )
    if not can_be_taken_apart(filled.reveal()):
        raise DataError(
            f"the database address {address} cannot be told apart into user, password, host and name: write blanks and "
            "the signs @ / ? # of a user or password as %20 %40 %2F %3F %23, also in a variable's value"
        )
    return _run("adbc_driver_postgresql", filled, sql, None)


def _run(driver: str, address: FilledAddress, sql: str, options: dict[str, Any] | None) -> pa.Table:
    dbapi = _driver(driver)
    problem: str
    try:
        # Not kept in a variable: tracebacks may show variables.
        connecting = dbapi.connect(_uri(address.reveal(), sql))
        with connecting as connection, connection.cursor(adbc_stmt_kwargs=options) as cursor:
            if driver == "adbc_driver_postgresql":
                # Reading data must not be able to change it.
                cursor.execute("SET TRANSACTION READ ONLY")
            cursor.execute(sql)
            table = cursor.fetch_arrow_table()
            if table.num_columns:
                return table
            problem = "the sql returns no table; a SELECT is needed"
    except DataError as error:
        problem = str(error)
    except Exception as error:
        problem = address.scrub(" ".join(str(error).split())) or type(error).__name__
        if "Type mismatch" in problem:
            problem += "; make the column one type in the sql, such as cast(v as text)"
    # Raised outside the handler: the driver's own error, which may quote the address, must not be chained.
    raise DataError(f"cannot read from {address}: {problem}")


def _uri(address: str, sql: str) -> str:
    """Return the address as the drivers take it; refuse SQL that does more than read."""
    if not address.startswith(SQLITE):
        return _impatient(address)
    path = Path(address.removeprefix(SQLITE))
    if not path.is_file():
        raise DataError("there is no SQLite file of that name")
    # Opened read-only; quoting keeps ? and # in a file's name from being taken for options.
    uri = f"file:{quote(str(path.resolve()))}?mode=ro"
    _require_select(uri, sql)
    return uri


def _require_select(uri: str, sql: str) -> None:
    """Refuse SQL other than one SELECT on the file's own tables.

    Opening the file read-only is not enough: ATTACH and VACUUM INTO would still write other files. SQLite itself tells
    what a statement would do, without doing it.
    """
    actions: list[int] = []

    def allow(action: int, first: str | None, second: str | None, *_: Any) -> int:
        actions.append(action)
        loads_code = action == sqlite3.SQLITE_FUNCTION and second == "load_extension"
        # To learn the columns of json_each and the like, SQLite claims to update its list of tables.
        lists = action == sqlite3.SQLITE_UPDATE and first == "sqlite_master" and actions[0] == sqlite3.SQLITE_SELECT
        return sqlite3.SQLITE_OK if lists or (action in _ALLOWED and not loads_code) else sqlite3.SQLITE_DENY

    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.set_authorizer(allow)
            connection.execute(f"EXPLAIN {sql}")
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        problem = "it does more than read the file's own tables" if "not authorized" in str(error) else str(error)
        raise DataError(f"the sql cannot be used: {problem}; one SELECT is needed") from error
    # VACUUM asks for nothing until it runs.
    if actions[:1] != [sqlite3.SQLITE_SELECT]:
        raise DataError("the sql cannot be used: it reads no table; one SELECT is needed")


def _impatient(address: str) -> str:
    """Add a connection timeout if the address has none: libpq would wait minutes for an unreachable host."""
    if "connect_timeout" in address:
        return address
    joint = "&" if "?" in address.rpartition("@")[2] else "?"
    return f"{address}{joint}connect_timeout={_CONNECT_SECONDS}"


def _driver(name: str) -> Any:
    try:
        return importlib.import_module(f"{name}.dbapi")
    except ImportError as error:
        raise MissingExtraError("reading from a SQL database", "sql") from error


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
