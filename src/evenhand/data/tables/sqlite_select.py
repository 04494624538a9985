"""Whether SQL for an SQLite file is one SELECT on its own tables.

To open the file for reading only is not enough: ATTACH and VACUUM INTO would still write others. SQLite itself says
what a statement would do, without doing it.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any, Final

from evenhand.errors import DataError

_ALLOWED: Final = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)


def require_select(uri: str, sql: str) -> None:
    """Refuse what is more, or other, than one SELECT; `uri` opens the file for reading only."""
    actions: list[int] = []

    def allow(action: int, first: str | None, second: str | None, *_: Any) -> int:
        actions.append(action)
        loads_code = action == sqlite3.SQLITE_FUNCTION and second == "load_extension"
        # To learn the columns of json_each and its like, SQLite claims to update its list of tables.
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
