"""Tables in SQLite and PostgreSQL databases, read through the ADBC drivers (extra ``sql``)."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from evenhand.data.tables.addresses import expand, redact, scrub
from evenhand.data.tables.sqlite_select import require_select
from evenhand.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    import pyarrow as pa

_SQLITE: Final = "sqlite:///"
_POSTGRES: Final = ("postgresql://", "postgres://")
_CONNECT_SECONDS: Final = 10
# The SQLite driver takes a column's type from its first batch and fails on a later surprise: look at many rows.
_SQLITE_BATCH: Final = {"adbc.sqlite.query.batch_rows": 1 << 16}


def query(database: str, sql: str) -> pa.Table:
    """Run a SELECT on the database at an address; no message ever shows the address's password."""
    address = expand(database)
    if address.startswith(_SQLITE):
        path = Path(address.removeprefix(_SQLITE))
        if not path.is_file():
            raise DataError(f"there is no SQLite file {path}")
        # Opened read-only; quoting keeps ? and # in a file's name from being taken for options.
        uri = f"file:{quote(str(path.resolve()))}?mode=ro"
        require_select(uri, sql)
        return _run("adbc_driver_sqlite", uri, sql, address, _SQLITE_BATCH)
    if address.startswith(_POSTGRES):
        return _run("adbc_driver_postgresql", _impatient(address), sql, address, None)
    raise DataError(f"the database address {redact(database)} is not known; it starts with {_SQLITE} or {_POSTGRES[0]}")


def _run(driver: str, uri: str, sql: str, address: str, options: dict[str, Any] | None) -> pa.Table:
    dbapi = _driver(driver)
    problem: str
    try:
        with dbapi.connect(uri) as connection, connection.cursor(adbc_stmt_kwargs=options) as cursor:
            if driver == "adbc_driver_postgresql":
                # Reading data must not be able to change it.
                cursor.execute("SET TRANSACTION READ ONLY")
            cursor.execute(sql)
            table = cursor.fetch_arrow_table()
            if table.num_columns:
                return table
            problem = "the sql returns no table; a SELECT is needed"
    except (dbapi.Error, OSError) as error:
        problem = " ".join(str(error).split())
        if "Type mismatch" in problem:
            problem += "; make the column one type in the sql, such as cast(v as text)"
    # Raised outside the handler: the driver's own error, which may quote the address, must not be chained.
    raise DataError(f"cannot read from {redact(address)}: {scrub(problem, address)}")


def _impatient(address: str) -> str:
    """Add a connection time limit where the address has none: libpq would wait for minutes on a host that is away."""
    if "connect_timeout" in address:
        return address
    joint = "&" if "?" in address.rpartition("@")[2] else "?"
    return f"{address}{joint}connect_timeout={_CONNECT_SECONDS}"


def _driver(name: str) -> Any:
    try:
        return importlib.import_module(f"{name}.dbapi")
    except ImportError as error:
        raise MissingExtraError("reading from a SQL database", "sql") from error
