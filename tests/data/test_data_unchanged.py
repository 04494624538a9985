"""Tables that change while a run is on are noticed; those that only look different are not."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

from evenhand.data import TableSource, write_libsvm
from evenhand.data.tables.party_tables import SeenTable, require_unchanged
from evenhand.errors import DataError, RunError

FRAME = pd.DataFrame({"id": ["a", "b", "c"], "age": [20, 30, 40], "paid": ["y", "n", "y"]})


def write_file(path: Path, frame: pd.DataFrame) -> None:
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        write_libsvm(path, frame[["age"]].to_numpy(), np.where(frame["paid"] == "y", 1, -1))


def write_database(path: Path, frame: pd.DataFrame) -> None:
    if path.suffix == ".duckdb":
        with duckdb.connect(str(path)) as connection:
            connection.register("given", frame)
            connection.execute("create or replace table people as select * from given")
    else:
        with closing(sqlite3.connect(path)) as connection, connection:
            frame.to_sql("people", connection, index=False, if_exists="replace")


def source_of(path: Path) -> TableSource:
    if path.suffix == ".db":
        return TableSource(database=f"sqlite:///{path}", sql="select * from people", id="id")
    return TableSource(table=path, id=None if path.suffix == ".svm" else "id")


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.svm"])
def test_a_file_is_its_bytes(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_file(path, FRAME)
    seen = {"party 'shop'": SeenTable.of(source_of(path))}
    before = path.read_bytes()
    os.utime(path, (1, 1))
    require_unchanged(seen)
    stamp = path.stat()
    write_file(path, FRAME.assign(age=[20, 30, 41]))
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    with pytest.raises(RunError, match=rf"the table of party 'shop' \(.*{name}\) changed while the run was on"):
        require_unchanged(seen)
    path.write_bytes(before)
    require_unchanged(seen)
    path.unlink()
    with pytest.raises(RunError, match=r"cannot be read again .* there is no file"):
        require_unchanged(seen)


@pytest.mark.parametrize("name", ["t.db", "t.duckdb"])
def test_a_database_is_what_its_query_gives(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_database(path, FRAME)
    seen = {"party 'shop'": SeenTable.of(source_of(path))}
    write_database(path, FRAME.iloc[[2, 0, 1]])
    require_unchanged(seen)
    changes = [FRAME.assign(age=[20, 30, 41]), FRAME.iloc[:2], pd.concat([FRAME, FRAME.iloc[:1]])]
    for changed in [*changes, FRAME.rename(columns={"age": "years"}), FRAME.assign(age=[20.0, 30.0, 40.0])]:
        write_database(path, changed)
        with pytest.raises(RunError, match="changed while the run was on"):
            require_unchanged(seen)
    path.unlink()
    with pytest.raises(RunError, match="cannot be read again"):
        require_unchanged(seen)


def test_a_table_that_is_not_there_cannot_be_looked_at(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file"):
        SeenTable.of(TableSource(table=tmp_path / "t.csv"))
