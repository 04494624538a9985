"""CSV files: no row is lost, no cell is changed, and what cannot be read names its line."""

from __future__ import annotations

import datetime
import random
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from support.csv_files import random_table, random_writing, written

from evenhand.data import TableSource, read_table
from evenhand.data.tables import csv_records
from evenhand.data.tables.csv_file import read_csv, require_all
from evenhand.data.tables.csv_records import count_records, require_sound
from evenhand.errors import DataError


def write(folder: Path, content: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows_with(first: list[str]) -> str:
    return "id,age\n" + "".join(f"{one},{20 + k % 50}\n" for k, one in enumerate(first))


@pytest.mark.parametrize(
    "first",
    [
        [f"#N/A {k}" if k % 26 == 0 else str(k) for k in range(260)],
        [f"#{k}" if k % 3 == 0 else str(k) for k in range(260)],
        [f"#{k}" if k % 9 == 0 else f"2020-01-{1 + k % 28:02d}" for k in range(260)],
        [f"//{k}" if k % 3 == 0 else str(k) for k in range(260)],
        [f";{k}" if k % 3 == 0 else str(k) for k in range(260)],
        [f"-- {k}" if k % 3 == 0 else str(k) for k in range(260)],
    ],
)
def test_no_sign_at_the_beginning_of_a_line_hides_it(tmp_path: Path, first: list[str]) -> None:
    frame = read_table(TableSource(table=write(tmp_path, rows_with(first))))
    assert frame["id"].tolist() == first


@pytest.mark.parametrize("first_seed", range(0, 400, 20))
def test_rows_columns_and_cells_are_those_of_pandas(tmp_path: Path, first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 20):
        rng = random.Random(seed)
        table, writing = random_table(rng), random_writing(rng)
        path = write(tmp_path, written(table, writing))
        try:
            expected = pd.read_csv(
                path, sep=writing.delimiter, dtype=str, keep_default_na=False, na_values=[""], encoding="utf-8-sig"
            )
        except pd.errors.ParserError as error:
            # A fault of pandas before 3, on one of these files.
            if "Buffer overflow caught" in str(error):
                continue
            raise
        found = read_csv(path, "id")
        assert found.column_names == list(expected.columns) == list(table)
        assert found.num_rows == len(expected) == len(next(iter(table.values())))
        for name in table:
            texts = [None if pd.isna(text) else text for text in expected[name]]
            values = found[name].to_pylist()
            assert all(map(says_the_same, values, texts)), (seed, name)
            if name == "id":
                assert [None if one is None else str(one) for one in values] == texts, "ids stay as they are written"


def says_the_same(value: Any, text: Any) -> bool:
    if value is None or text is None:
        return value is text
    if isinstance(value, bool):
        return str(value).lower() == text.lower()
    if isinstance(value, int | float):
        return float(text) == value
    if isinstance(value, datetime.date):
        return str(value) == text
    return bool(value == text)


@pytest.mark.parametrize("block", [1, 2, 3, 7])
def test_records_are_counted_alike_in_blocks_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(csv_records, "_BLOCK", block)
    for seed in range(40):
        rng = random.Random(seed)
        table, writing = random_table(rng), random_writing(rng)
        if len(next(iter(table.values()))) > 40:
            continue
        path = write(tmp_path, written(table, writing))
        count = count_records(path, writing.delimiter)
        assert count.sound
        assert count.records == require_sound(path, writing.delimiter) == len(next(iter(table.values()))) + 1


@pytest.mark.parametrize(
    ("content", "line", "what"),
    [
        ("id,v\n1,2\n3\n4,5\n", 3, "1 cell where the header has 2"),
        ("id,v\n1,2\n3,3,3\n4,5\n", 3, "3 cells where the header has 2"),
        ('id,v\n1,"a\nb\nc"\n2\n', 5, "1 cell where the header has 2"),
        ("id,v\r\n1,2\r\n\r\n3,\r\n4\r\n", 5, "1 cell where the header has 2"),
        ("id;v\r1;2\r3;4;5\r", 3, "3 cells where the header has 2"),
        ("id,v\n1,'a,b'\n2,c\n", 2, "3 cells where the header has 2"),
        ("a report of 2020\n\nid,v\n1,2\n", 3, "2 cells where the header has 1"),
        ('id,v\n1,x\n2,"b\n3,c\n', 3, "a double quote that is never closed"),
        ('id,v\n1,"a"x\n2,b\n', 2, "after the double quote that closes a cell comes neither ',' nor the end"),
        ('id,v\n1,"a\\"b"\n2,b\n', 2, "after the double quote that closes a cell comes neither"),
        (b"id,v\n1,K\xf6ln\n", 2, "the byte 0xf6 is not UTF-8"),
        ("id,v\n1,a\n".encode("utf-16"), 1, "is not UTF-8"),
    ],
)
def test_what_is_wrong_with_a_file_names_the_line(tmp_path: Path, content: str | bytes, line: int, what: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(DataError) as caught:
        read_table(TableSource(table=path))
    first, advice = str(caught.value).split("\n")
    assert first.startswith(f"{path}, line {line}: ")
    assert what in first
    assert advice


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("id,age,age", "gives columns age more than once\nnames must differ"),
        ("id,,age", "column 2 has no name in the header\nname it, or leave it out"),
        ('id,"",age', "column 2 has no name in the header"),
    ],
)
def test_every_column_has_a_name_of_its_own(tmp_path: Path, header: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_table(TableSource(table=write(tmp_path, f"{header}\n1,2,3\n")))


def test_a_record_the_reader_leaves_out_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, 'id,v\n1,"a\nb"\n2,c\n\n3,"say ""d"""\n4,\n')
    whole = pa.table({"f0": ["id", "1", "2", "3", "4"], "f1": ["v", "a\nb", "c", 'say "d"', None]})
    require_all(path, ",", whole, 5)
    for left_out, line in ((1, 2), (2, 4), (3, 6), (4, 7)):
        kept = whole.take([row for row in range(5) if row != left_out])
        with pytest.raises(DataError, match=rf"line {line}: skipped by the reader, which gives 4 of 5 records"):
            require_all(path, ",", kept, 5)


def test_quotes_within_plain_cells_are_plain_signs(tmp_path: Path) -> None:
    frame = read_table(TableSource(table=write(tmp_path, 'id,pipe\n1,5" wide\n2,7"\n3,"8"", long"\n'), id="id"))
    assert frame["pipe"].tolist() == ['5" wide', '7"', '8", long']


def test_a_cell_of_megabytes(tmp_path: Path) -> None:
    long = "x" * 3_000_000
    frame = read_table(TableSource(table=write(tmp_path, f'id,v\n1,{long}\n2,"{long}\n"\n3,y\n'), id="id"))
    assert frame["v"].str.len().tolist() == [3_000_000, 3_000_001, 1]


@pytest.mark.parametrize(
    ("cells", "read"),
    [
        (["1", "-2", "30"], [1, -2, 30]),
        (["1", " 2", "3 "], [1, 2, 3]),
        (["0", "-0", "5"], [0, 0, 5]),
        (["007", "8", "010"], ["007", "8", "010"]),
        (["0x1F", "2", "3"], ["0x1F", "2", "3"]),
        (["1", "2.5", "1e3"], [1.0, 2.5, 1000.0]),
        (["+1", "-1", "0.50"], [1.0, -1.0, 0.5]),
        (["true", "FALSE", "True"], [True, False, True]),
        (["yes", "no", "true"], ["yes", "no", "true"]),
        (["2020-01-31", "1999-12-01", "2000-02-29"], [datetime.date(2020, 1, 31), datetime.date(1999, 12, 1)]),
        (["01/02/2020", "31/12/1999", "1/1/2000"], ["01/02/2020", "31/12/1999", "1/1/2000"]),
        (["NA", "null", "x"], ["NA", "null", "x"]),
    ],
)
def test_types_are_given_where_every_cell_allows(tmp_path: Path, cells: list[str], read: list[Any]) -> None:
    path = write(tmp_path, "id,v\n" + "".join(f"{k},{cell}\n" for k, cell in enumerate(cells)))
    found = read_table(TableSource(table=path, id="id"))["v"].tolist()
    assert found[: len(read)] == read
    assert [type(one) for one in found] == [type(read[0])] * 3


@pytest.mark.parametrize(
    ("ids", "read"),
    [
        (["7", "8"], [7, 8]),
        (["007", "8"], ["007", "8"]),
        (["-0", "8"], ["-0", "8"]),
        (["1.5", "1.50"], ["1.5", "1.50"]),
        (["7", " 8"], ["7", " 8"]),
        (["12345678901234567890", "12345678901234567891"], ["12345678901234567890", "12345678901234567891"]),
        (["true", "false"], ["true", "false"]),
        (["2020-01-02", "2020-01-03"], [datetime.date(2020, 1, 2), datetime.date(2020, 1, 3)]),
        (["2020-01-02 00:00", "2020-01-02T00:00"], ["2020-01-02 00:00", "2020-01-02T00:00"]),
    ],
)
def test_ids_are_read_as_they_are_written(tmp_path: Path, ids: list[str], read: list[Any]) -> None:
    path = write(tmp_path, "id,v\n" + "".join(f"{one},1\n" for one in ids))
    assert read_table(TableSource(table=path, id="id")).index.tolist() == read
