"""Reading from SQLite and a real PostgreSQL server, without ever showing a password."""

from __future__ import annotations

import sqlite3
import sys
import traceback
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pandas as pd
import pytest

from evenhand.data import PartyEncoder, TableSource, read_table
from evenhand.errors import DataError, MissingExtraError

ROWS = [("c1", 20, 1.5), ("c2", 30, 2.5), ("c3", 40, None)]


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    path = tmp_path / "shop #1?.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table people (customer text, age integer, spent real)")
        connection.executemany("insert into people values (?, ?, ?)", ROWS)
    return f"sqlite:///{path}"


@pytest.fixture(scope="module")
def people(postgres_url: str) -> Iterator[str]:
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(postgres_url) as connection, connection.cursor() as cursor:
        cursor.execute(
            "create table people (customer text primary key, age int, spent numeric(10, 2), member bool, weight real)"
        )
        cursor.execute(
            "insert into people values "
            "('c1', 20, 1.50, true, 1.25), ('c2', 30, 2.25, false, 2.5), ('c3', 40, 0, true, 5)"
        )
        connection.commit()
    yield postgres_url
    with dbapi.connect(postgres_url) as connection, connection.cursor() as cursor:
        cursor.execute("drop table people")
        connection.commit()


def _failure(source: TableSource) -> str:
    """Read, expect a DataError, and return the whole traceback a user would see."""
    with pytest.raises(DataError) as caught:
        read_table(source)
    return "".join(traceback.format_exception(caught.value, chain=True))


def _password(url: str) -> str:
    password = urlsplit(url).password
    assert password
    return password


def test_sqlite(sqlite_url: str) -> None:
    frame = read_table(TableSource(database=sqlite_url, sql="select * from people", id="customer"))
    expected = pd.DataFrame(ROWS, columns=["customer", "age", "spent"]).set_index("customer")
    pd.testing.assert_frame_equal(frame, expected)


def test_sqlite_is_opened_for_reading_only(sqlite_url: str) -> None:
    assert "more than read" in _failure(TableSource(database=sqlite_url, sql="delete from people"))
    assert len(read_table(TableSource(database=sqlite_url, sql="select * from people"))) == 3


@pytest.mark.parametrize(
    "sql",
    [
        "attach database '{folder}/new.db' as other",
        "vacuum into '{folder}/new.db'",
        "vacuum",
        "pragma journal_mode = wal",
        "pragma writable_schema = on",
        "select load_extension('{folder}/code.so')",
        "create temp table t as select * from people",
        "select 1; attach database '{folder}/new.db' as other",
        "delete from people returning customer",
        "update sqlite_master set name = 'others'",
        "select 1\0; attach database '{folder}/new.db' as other",
        "/* select */ attach database '{folder}/new.db' as other",
        "with new as (select 1) insert into people select 1, 2, 3 from new",
    ],
)
def test_sqlite_reaches_nothing_but_its_tables(sqlite_url: str, tmp_path: Path, sql: str) -> None:
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert "SELECT is needed" in _failure(TableSource(database=sqlite_url, sql=sql.format(folder=tmp_path)))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "sql",
    [
        "with old as (select * from people where age > 25) select * from old",
        "with recursive n(v) as (select 1 union all select v + 1 from n where v < 2) select v from n",
        "select value as v from json_each('[1, 2]')",
        "select max(age) as age, upper(customer) as name from people group by spent is null",
    ],
)
def test_sqlite_selects_of_every_kind(sqlite_url: str, sql: str) -> None:
    assert len(read_table(TableSource(database=sqlite_url, sql=sql))) == 2


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("select * from peeple", "no such table: peeple"),
        ("selekt", "syntax error"),
        ("select * from people where age > 99", "gives no rows"),
        ("select age, age from people", "columns age more than once"),
        ("select age from people", r"no column 'customer'"),
    ],
)
def test_sqlite_failures(sqlite_url: str, sql: str, message: str) -> None:
    assert message in _failure(TableSource(database=sqlite_url, sql=sql, id="customer"))


def test_sqlite_file_must_exist(tmp_path: Path) -> None:
    assert "there is no SQLite file" in _failure(TableSource(database=f"sqlite:///{tmp_path}/x.db", sql="select 1"))
    assert not (tmp_path / "x.db").exists()


def test_type_that_changes_late(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection, connection:
        connection.execute("create table t (v)")
        connection.executemany("insert into t values (?)", [(1,)] * 70_000 + [("x",)])
    told = _failure(TableSource(database=f"sqlite:///{tmp_path}/t.db", sql="select v from t"))
    assert "Type mismatch" in told
    assert "cast(v as text)" in told


def test_postgresql(people: str) -> None:
    frame = read_table(TableSource(database=people, sql="select * from people order by customer", id="customer"))
    assert frame.index.to_list() == ["c1", "c2", "c3"]
    assert frame["spent"].dtype == float, "numeric arrives as text and would be taken for categories"
    assert frame["spent"].to_list() == [1.5, 2.25, 0.0]
    names = ["age", "spent", "member=False", "member=True", "weight"]
    assert PartyEncoder().fit(frame).feature_names_out == names


def test_postgresql_with_variables(people: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", _password(people))
    database = people.replace(_password(people), "${SHOP_PASSWORD}")
    assert len(read_table(TableSource(database=database, sql="select * from people"))) == 3
    monkeypatch.delenv("SHOP_PASSWORD")
    assert "needs the environment variable SHOP_PASSWORD" in _failure(TableSource(database=database, sql="select 1"))


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("select * from peeple", 'relation "peeple" does not exist'),
        ("delete from people", "read-only transaction"),
        ("select * from people where age > 99", "gives no rows"),
        ("set timezone = 'UTC'", "a SELECT is needed"),
    ],
)
def test_postgresql_failures_hide_the_password(people: str, sql: str, message: str) -> None:
    told = _failure(TableSource(database=people, sql=sql))
    assert message in told
    for form in (_password(people), unquote(_password(people))):
        assert form not in told


def test_wrong_password_is_not_shown(people: str) -> None:
    told = _failure(TableSource(database=people.replace(_password(people), "s3cret-guess"), sql="select 1"))
    assert "password authentication failed" in told
    assert "s3cret-guess" not in told


def test_server_that_cannot_be_reached() -> None:
    told = _failure(TableSource(database="postgresql://u:s3cret@127.0.0.1:1/db", sql="select 1"))
    assert "cannot read from postgresql://u:***@127.0.0.1:1/db: " in told
    assert "s3cret" not in told


def test_an_address_that_means_two_things_is_not_tried() -> None:
    told = _failure(TableSource(database="postgresql://u:hunter@two@127.0.0.1/db", sql="select 1"))
    assert "postgresql://*** cannot be told apart" in told
    assert "%40" in told
    assert "hunter" not in told


def test_unknown_database_is_refused_without_its_password() -> None:
    told = _failure(TableSource(database="mysql://u:s3cret@h/db", sql="select 1"))
    assert "mysql://u:***@h/db is not known; it starts with sqlite:/// or postgresql://" in told
    assert "s3cret" not in told


def test_sql_is_needed() -> None:
    with pytest.raises(DataError, match=r"reading from postgresql://u:\*\*\*@h/db needs sql"):
        TableSource(database="postgresql://u:s3cret@h/db")


def test_drivers_are_an_extra(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adbc_driver_sqlite.dbapi", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'evenhand\[sql\]'"):
        read_table(TableSource(database=sqlite_url, sql="select 1"))
