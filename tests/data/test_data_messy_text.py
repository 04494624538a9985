"""CSV files as people have them: other encodings and signs, numbers as text; what `types` makes of columns."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.data import TableSource, read_table
from evenhand.data.tables.numerals import guessed_numbers, read_numbers
from evenhand.data.tables.party_tables import open_table
from evenhand.errors import ColumnWarning, DataError


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["€ 1.234,50", "€ 12,00", None], [1234.5, 12.0, np.nan]),
        (["$1,234.50", "-$12", "12"], [1234.5, -12.0, 12.0]),
        (["1'234.5 CHF", "10 CHF"], [1234.5, 10.0]),
        (["1 234 567,8", "9"], [1234567.8, 9.0]),
        (["12 %", "7,5 %"], [12.0, 7.5]),
        (["1,234", "5,678"], [1234.0, 5678.0]),
        (["1.234.567", "1"], [1234567.0, 1.0]),
        (["1,5", "2"], [1.5, 2.0]),
        ([*"123456789", "n/a"], [*range(1, 10), np.nan]),
    ],
)
def test_text_that_stands_for_numbers(cells: list[str | None], numbers: list[float]) -> None:
    found = guessed_numbers(pd.Series(cells, dtype=object))
    assert found is not None
    np.testing.assert_array_equal(found.values, numbers)


@pytest.mark.parametrize(
    "cells",
    [
        ["red", "green"],
        ["007", "012"],
        ["1.5", "1,5"],
        ["1", "2", "3", "n/a"],
        ["18-25", "26-35"],
        ["0470 12 34 56"],
        ["2020-01-31"],
        ["ABC 123"],
        ["12,34,56"],
        [None],
    ],
)
def test_text_that_does_not(cells: list[str | None]) -> None:
    assert guessed_numbers(pd.Series(cells, dtype=object)) is None


@given(st.lists(st.floats(-1e9, 1e9).map(lambda one: round(one, 2)), min_size=1), st.sampled_from(".,"))
def test_numbers_come_back_from_how_they_are_written(values: list[float], decimal: Any) -> None:
    swap = str.maketrans(",.", ".,")
    written = [f"€ {one:,.2f}" if decimal == "." else f"€ {one:,.2f}".translate(swap) for one in values]
    np.testing.assert_array_equal(read_numbers(pd.Series(written), decimal).values, values)


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


GERMAN = "id;Straße;Einkommen;seit\na;Königsallee;1.234,50;31.12.2020\nb;Zoo;7;01.02.2021\n"


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8-sig", "latin-1"])
def test_encodings_delimiters_and_decimals_are_what_is_said(tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path / "t.csv", GERMAN, encoding)
    source = TableSource(table=path, id="id", encoding=encoding, delimiter=";", decimal=",", types={"seit": "date"})
    frame = read_table(source)
    assert frame["Straße"].tolist() == ["Königsallee", "Zoo"]
    assert frame["Einkommen"].tolist() == [1234.5, 7.0]
    assert frame["seit"].tolist() == [pd.Timestamp("2020-12-31"), pd.Timestamp("2021-02-01")]


def test_what_is_not_utf_8_names_the_line_and_the_key(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", GERMAN, "cp1252")
    with pytest.raises(DataError, match=r'line 1: the byte 0xdf is not UTF-8\n.*encoding = "cp1252"'):
        read_table(TableSource(table=path))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"encoding": "klingon"}, "encoding is 'klingon', which is unknown"),
        ({"encoding": "utf-32"}, "is not in the encoding 'utf-32'"),
        ({"delimiter": ";;"}, "delimiter is ';;'; give one character"),
        ({"delimiter": '"'}, "delimiter is"),
        ({"decimal": "'"}, "decimal is"),
        ({"decimal": ",", "delimiter": ","}, "cannot be both the delimiter and the decimal sign"),
        ({"types": {"b": "words"}}, "types.b is 'words'; choose one of 'number'"),
        ({"types": {"b": "date"}}, "column 'b': 2 of 2 cells can be read as dates in no known way"),
        ({"types": {"b": "number"}}, "column 'b' holds 'x', 'y' and no numbers"),
        ({"types": {"c": "date"}}, "column 'c' can be read as dates in more than one way"),
        ({"types": {"a": "date"}}, "column 'a' holds number values, no dates"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, how: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "t.csv", "a,b,c\n1,x,01/02/2020\n2,y,03/04/2020\n3,,\n")
    with pytest.raises(DataError, match=message):
        read_table(TableSource(table=path, **how))


def test_types_make_of_columns_what_is_said(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.csv", "id,zip,on,paid,flag\na,9000,2020-01-31,€ 5,true\nb,,2020-02-01,,false\nc,1000,,x,\n"
    )
    types: Any = {"zip": "category", "on": "number", "paid": "number", "flag": "number"}
    frame = read_table(TableSource(table=path, id="id", types=types))
    assert frame["zip"].cat.categories.tolist() == ["1000", "9000"]
    np.testing.assert_array_equal(frame["on"], [18292.0, 18293.0, np.nan])
    np.testing.assert_array_equal(frame["paid"], [5.0, np.nan, np.nan])
    assert frame["flag"].tolist()[:2] == [1.0, 0.0]


def test_a_party_table_warns_of_what_it_read_as_numbers_and_says_the_key(tmp_path: Path) -> None:
    rows = "".join(f"r{k},{'n/a' if k == 3 else k},{k}.000 €,t{k % 2}\n" for k in range(30))
    path = write(tmp_path / "t.csv", f"id,age,own income,town\n{rows}")
    with pytest.warns(ColumnWarning) as said:
        table = open_table(TableSource(table=path, id="id"), known=["town"])
    first, second = (str(one.message) for one in said)
    assert "column 'age' is read as numbers" in first
    assert "('n/a') count as missing" in first
    assert "'0.000 €'" in second
    assert 'types = { "own income" = "number" }' in second
    encoder, _ = table.encode(np.ones(30, dtype=bool), True)
    assert encoder.kinds == {"age": "number", "own income": "number"}
    # A single new row says little about its columns; the encoder knows them.
    new = write(tmp_path / "new.csv", "id,age,own income\nz,n/a,unknown\n")
    again = open_table(TableSource(table=new, id="id"), encoder=encoder)
    np.testing.assert_array_equal(again.transform(encoder)[0][1::2], [1.0])


def test_types_hold_for_batches_of_a_parquet_file_too(tmp_path: Path) -> None:
    frame = pd.DataFrame({"id": list("abcd"), "zip": [1, 2, 1, 3], "x": [0.0, 1.0, 2.0, 3.0], "no": [1, 2, 3, 4]})
    frame.to_parquet(tmp_path / "t.parquet")
    types: Any = {"zip": "category", "no": "leave out"}
    table = open_table(TableSource(table=tmp_path / "t.parquet", id="id", types=types))
    encoder, matrix = table.encode(np.ones(4, dtype=bool), False)
    assert encoder.feature_names_out == ["zip=1", "zip=2", "zip=3", "x"]
    np.testing.assert_array_equal(table.transform(encoder), matrix)


# -- tables whose columns have types


@pytest.mark.parametrize("kind", ["parquet", "sqlite"])
def test_text_of_typed_tables_is_numbers_only_where_it_is_no_code(kind: str, tmp_path: Path) -> None:
    texts = {
        "paid": ["€ 1.234,50", "€ 12,00", "€ 7,25", "€ 3,50"],
        "rate": ["12.5", "7.25", "3", "4"],
        "code": ["12", "7", "3", "4"],
        "town": ["Ghent", "Lyon", "Turin", "Bath"],
    }
    frame = pd.DataFrame({"id": ["a", "b", "c", "d"], **texts})

    def source(rows: pd.DataFrame, name: str) -> TableSource:
        if kind == "parquet":
            rows.to_parquet(tmp_path / f"{name}.parquet")
            return TableSource(table=tmp_path / f"{name}.parquet", id="id")
        with closing(sqlite3.connect(tmp_path / f"{name}.db")) as connection, connection:
            rows.to_sql("people", connection, index=False)
        return TableSource(database=f"sqlite:///{tmp_path / name}.db", sql="select * from people", id="id")

    if kind == "sqlite":
        pytest.importorskip("adbc_driver_sqlite")
    with pytest.warns(ColumnWarning, match="read as numbers") as told:
        table = open_table(source(frame, "fit"))
    assert sorted(str(one.message).split("'")[1] for one in told) == ["paid", "rate"]
    encoder, matrix = table.encode(np.ones(4, dtype=bool), scale=False)
    kinds = encoder.kinds
    assert (kinds["paid"], kinds["rate"], kinds["code"]) == ("number", "number", "text")
    place = list(encoder.feature_names_out).index("paid")
    np.testing.assert_array_equal(np.asarray(matrix)[:, place], [1234.5, 12.0, 7.25, 3.5])
    few = source(frame.iloc[[2]], "new")
    again = open_table(few, encoder=encoder).transform(encoder)
    np.testing.assert_array_equal(np.asarray(again)[0], np.asarray(matrix)[2])
