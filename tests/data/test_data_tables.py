"""Reading CSV, Parquet and DuckDB files."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenhand.data import PartyEncoder, TableSource, read_table
from evenhand.errors import DataError

FRAME = pd.DataFrame(
    {"customer": ["c1", "c2", "c3"], "age": [20, 30, 40], "income": [1.5, 2.5, 3.5], "member": [True, False, True]}
)


@pytest.fixture(params=["csv", "parquet", "duckdb"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    # Quotes and a space: the path must survive its way through SQL.
    path = tmp_path / f'bank\'s "own" table.{request.param}'
    if request.param == "csv":
        FRAME.to_csv(path, index=False)
    elif request.param == "parquet":
        FRAME.to_parquet(path, index=False)
    else:
        _write_duckdb(path, 'create table "my ""table""" as select * from given')
    return path


def _write_duckdb(path: Path, *statements: str) -> Path:
    with duckdb.connect(str(path)) as connection:
        connection.register("given", FRAME)
        for statement in statements:
            connection.execute(statement)
    return path


def test_every_format_gives_the_same_frame(table: Path) -> None:
    frame = read_table(TableSource(table=table, id="customer"))
    pd.testing.assert_frame_equal(frame, FRAME.set_index("customer"))
    assert PartyEncoder().fit(frame).feature_names_out == ["age", "income", "member=False", "member=True"]


def test_chosen_columns_in_the_order_asked(table: Path) -> None:
    frame = read_table(TableSource(table=str(table), id="customer", columns=["income", "age"]))
    assert list(frame.columns) == ["income", "age"]
    assert frame.index.name == "customer"


def test_without_an_id_rows_are_numbered(table: Path) -> None:
    frame = read_table(TableSource(table=table))
    pd.testing.assert_frame_equal(frame, FRAME)


def test_missing_column_names_the_close_ones(table: Path) -> None:
    with pytest.raises(DataError, match=r"no column 'custmer' \(there is 'customer'\)"):
        read_table(TableSource(table=table, id="custmer"))
    with pytest.raises(DataError, match=r"no column 'zzz' \(there is 'customer', 'age', 'income', 'member'\)"):
        read_table(TableSource(table=table, id="customer", columns=["age", "zzz"]))


def test_all_text_csv_keeps_its_header(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("name,town\nanna,Bonn\nbert,Köln\n")
    assert list(read_table(TableSource(table=path, id="name"))["town"]) == ["Bonn", "Köln"]


def test_late_surprise_in_a_csv(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,v\n" + "".join(f"{k},{k}\n" for k in range(30_000)) + "30000,2.5\n")
    assert read_table(TableSource(table=path, id="id"))["v"].iloc[-1] == 2.5


def test_decimals_become_floats(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pd.DataFrame({"price": [Decimal("1.25"), Decimal("2.50")]}).to_parquet(path)
    frame = read_table(TableSource(table=path))
    assert frame["price"].dtype == float
    assert frame["price"].to_list() == [1.25, 2.5]


@pytest.mark.parametrize("ids", ["c1\nc2\nc1\nc1\n", "c1\n\nc1\n"])
def test_ids_that_are_not_unique_or_missing(tmp_path: Path, ids: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,v\n" + "".join(f"{one},1\n" for one in ids.splitlines()))
    with pytest.raises(
        DataError, match=r"1 values of 'id' occur more than once, such as 'c1'|1 of 3 rows have no 'id'"
    ):
        read_table(TableSource(table=path, id="id"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.csv", None, "there is no file"),
        ("empty.csv", b"", "is empty"),
        ("header.csv", b"id,age\n", "gives no rows"),
        ("table.xlsx", b"PK", r"cannot tell the format from '.xlsx'; files end in .csv, .parquet, .duckdb"),
        ("table", b"x", "cannot tell the format from 'no ending'"),
        ("broken.parquet", b"not parquet at all", r"cannot read .*broken\.parquet"),
        ("broken.duckdb", b"not a database", r"cannot read .*broken\.duckdb"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_table(TableSource(table=tmp_path / name))


def test_folder_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a file"):
        read_table(TableSource(table=tmp_path))


@pytest.mark.parametrize("table", ["https://example.org/t.csv", "s3://bucket/t.parquet", "file:///etc/passwd"])
def test_remote_addresses_are_refused(table: str) -> None:
    with pytest.raises(DataError, match=r"table is an address, .*, and not a file on this machine"):
        read_table(TableSource(table=table))


@pytest.mark.parametrize("name", ["*.csv", "t?.csv", "t[12].csv"])
def test_patterns_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "t1.csv").write_text("id\n1\n")
    with pytest.raises(DataError, match="name one file"):
        read_table(TableSource(table=tmp_path / name))


def test_duckdb_file_with_several_tables(tmp_path: Path) -> None:
    path = _write_duckdb(
        tmp_path / "t.duckdb",
        "create table a as select * from given",
        "create schema s",
        "create table s.b as select 1 as id",
    )
    with pytest.raises(DataError, match=r"holds several tables \(a, s\.b\); choose with sql"):
        read_table(TableSource(table=path))
    chosen = read_table(TableSource(table=path, sql="select customer, 2 * age as double_age from a", id="customer"))
    assert chosen["double_age"].to_list() == [40, 60, 80]
    with pytest.raises(DataError, match=r"cannot read .*no_such_table"):
        read_table(TableSource(table=path, sql="select * from no_such_table"))
    with pytest.raises(DataError, match="needed"):
        read_table(TableSource(table=path, sql=""))


def test_duckdb_file_without_tables(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no table"):
        read_table(TableSource(table=_write_duckdb(tmp_path / "t.duckdb")))


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_csv('{secret}')",
        "copy a to '{folder}/stolen.csv'",
        "set enable_external_access = true",
        "insert into a values (4)",
        "attach '{folder}/other.duckdb'",
        "install httpfs",
    ],
)
def test_sql_reaches_nothing_but_its_file(tmp_path: Path, sql: str) -> None:
    path = _write_duckdb(tmp_path / "t.duckdb", "create table a as select 1 as id")
    secret = tmp_path / "secret.csv"
    secret.write_text("id\n1\n")
    with pytest.raises(DataError, match="cannot read"):
        read_table(TableSource(table=path, sql=sql.format(secret=secret, folder=tmp_path)))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["secret.csv", "t.duckdb"]


@pytest.mark.parametrize(
    "content", [b"PAR1" + b"\0" * 40 + b"PAR1", b"PAR1\xff\xff\xff\x7fPAR1", b"PAR1", b"not a table\n" * 99]
)
@pytest.mark.parametrize("name", ["t.parquet", "t.duckdb"])
def test_what_is_wrong_is_told_in_two_lines(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match="cannot read") as caught:
        read_table(TableSource(table=tmp_path / name))
    assert len(str(caught.value).split("\n")) == 2


def test_wrong_sql_is_told_in_two_lines(tmp_path: Path) -> None:
    path = _write_duckdb(tmp_path / "t.duckdb", "create table a as select 1 as id")
    with pytest.raises(DataError, match="no_such_column") as caught:
        read_table(TableSource(table=path, sql="select no_such_column\nfrom a"))
    assert len(str(caught.value).split("\n")) == 2


def test_a_parquet_file_cut_or_changed_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    FRAME.to_parquet(path, index=False, compression="none")
    whole, text = path.read_bytes(), b"c2"
    for end in range(4, len(whole), 97):
        path.write_bytes(whole[:end])
        with pytest.raises(DataError, match="cannot read"):
            read_table(TableSource(table=path, id="customer"))
    assert text in whole
    path.write_bytes(whole.replace(text, b"c\xff"))
    with pytest.raises(DataError, match=r"values that cannot be used: .*UTF8|cannot read"):
        read_table(TableSource(table=path, id="customer"))


def test_columns_of_one_name_in_a_parquet_file(tmp_path: Path) -> None:
    pq.write_table(pa.table([[1, 2], [3, 4], [5, 6]], names=["id", "age", "age"]), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="gives columns age more than once"):
        read_table(TableSource(table=tmp_path / "t.parquet", id="id"))
    pq.write_table(pa.table([[1, 2], [3, 4], [5, 6]], names=["id", "age", "Age"]), tmp_path / "t.parquet")
    assert list(read_table(TableSource(table=tmp_path / "t.parquet", id="id")).columns) == ["age", "Age"]


@pytest.mark.parametrize("ids", [[[1], [2]], [{"a": 1}, {"a": 2}]])
def test_ids_that_are_lists_or_records(tmp_path: Path, ids: list[object]) -> None:
    pq.write_table(pa.table({"id": ids, "age": [1, 2]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="'id' holds mixed values, lists perhaps"):
        read_table(TableSource(table=tmp_path / "t.parquet", id="id"))


@pytest.mark.parametrize("name", ["~nobody-of-this-name/t.csv", "x" * 5000 + ".csv", "a\0b.csv"])
def test_names_that_no_file_can_have(name: str) -> None:
    with pytest.raises(DataError, match="cannot be opened"):
        read_table(TableSource(table=name))


def test_sql_on_a_csv(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id\n1\n")
    with pytest.raises(DataError, match="sql goes with a database or a DuckDB file"):
        read_table(TableSource(table=tmp_path / "t.csv", sql="select 1"))


def test_columns_that_occur_twice(tmp_path: Path) -> None:
    path = _write_duckdb(tmp_path / "t.duckdb", "create table a as select 1 as id")
    frame = read_table(TableSource(table=path, sql="select id, id as again from a"))
    assert list(frame.columns) == ["id", "again"]


@pytest.mark.parametrize("source", [{}, {"table": "t.csv", "database": "sqlite:///t.db", "sql": "select 1"}])
def test_a_source_is_a_file_or_a_database(source: dict[str, str]) -> None:
    with pytest.raises(DataError, match="give one of the two"):
        TableSource(**source)


def test_importing_the_package_loads_no_database() -> None:
    code = "import sys, evenhand.data; print([m for m in sys.modules if m.startswith(('duckdb', 'adbc'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
