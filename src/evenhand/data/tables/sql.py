"""Tables in SQLite and PostgreSQL databases, read through the ADBC drivers (extra ``sql``)."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from evenhand.data.tables.addresses import Address, FilledAddress
from evenhand.data.tables.showing import SQLITE, can_be_taken_apart
from evenhand.data.tables.sqlite_select import require_select
from evenhand.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    import pyarrow as pa

_POSTGRES: Final = ("postgresql://", "postgres://")
_CONNECT_SECONDS: Final = 10
# The SQLite driver takes a column's type from its first batch and fails on a later surprise: look at many rows.
_SQLITE_BATCH: Final = {"adbc.sqlite.query.batch_rows": 1 << 16}


def query(address: Address, sql: str) -> pa.Table:
    """Run a SELECT on the database at an address; no message shows more of the address than the address does."""
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
        # Kept in no variable: whoever shows a traceback may show these too.
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
    """The address as the drivers take it, once it is known that the SQL only reads."""
    if not address.startswith(SQLITE):
        return _impatient(address)
    path = Path(address.removeprefix(SQLITE))
    if not path.is_file():
        raise DataError("there is no SQLite file of that name")
    # Opened read-only; quoting keeps ? and # in a file's name from being taken for options.
    uri = f"file:{quote(str(path.resolve()))}?mode=ro"
    require_select(uri, sql)
    return uri


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
