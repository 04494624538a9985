"""Text that is something else: dates in two formats, numbers among words, free text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evenhand.data import PartyEncoder
from evenhand.data.tables.dates import read_dates
from evenhand.data.tables.readers import TableSource, read_table
from evenhand.errors import DataError

ROWS = 140


def dates(row: int) -> str:
    day = pd.Timestamp("2020-01-01") + pd.Timedelta(days=row)
    return day.strftime("%Y-%m-%d" if row % 3 else "%d.%m.%Y")


CASES: dict[str, tuple[Callable[[int], str], list[str]]] = {
    "two formats": (dates, ["all of 140 cells are dates in 2 formats", "'01.01.2020'", 'types = { x = "date" }']),
    "words": (
        lambda row: "no limit" if row % 7 == 0 else f"{row}.5",
        ["14.3 % of 140 cells are no numbers, such as 'no limit'", 'types = { x = "number" }'],
    ),
    "signs": (lambda row: f"{row},5" if row % 2 else f"{row}.5", ["different decimal signs", '"number"']),
    "notes": (lambda row: f"called about {row // 2}", ["70 different values in 140 cells", 'x = "leave out"']),
}


@pytest.mark.parametrize("case", CASES)
def test_a_remark_names_column_share_examples_and_key(case: str) -> None:
    cell, said = CASES[case]
    frame = pd.DataFrame({"x": [cell(row) for row in range(ROWS)]})
    (remark,) = PartyEncoder().fit(frame).remarks
    assert "column 'x'" in remark
    for part in said:
        assert part in remark
    # A column whose owner says that it is a category is one.
    assert PartyEncoder().fit(frame.astype("category")).remarks == ()


@pytest.mark.parametrize(
    "cell", [lambda row: "abc"[row % 3], lambda row: f"{row % 12:03d}", lambda row: str(row % 8), lambda row: "n/a"]
)
def test_categories_are_not_suspected(cell: Callable[[int], str]) -> None:
    assert PartyEncoder().fit(pd.DataFrame({"x": [cell(row) for row in range(ROWS)]})).remarks == ()


def test_the_key_of_the_remark_mends_the_column(tmp_path: Path) -> None:
    table = pd.DataFrame({"day": [dates(row) for row in range(ROWS)], "id": range(ROWS)})
    table.to_csv(tmp_path / "t.csv", index=False)
    found = read_table(TableSource(tmp_path / "t.csv", id="id", types={"day": "date"}))["day"]
    assert found.tolist() == [pd.Timestamp("2020-01-01") + pd.Timedelta(days=row) for row in range(ROWS)]
    assert PartyEncoder().fit(found.to_frame()).remarks == ()


def test_days_and_months_are_not_guessed_cell_by_cell(tmp_path: Path) -> None:
    """One cell that can only be read with the month first decides for the column."""
    found = read_dates(["01/02/2020", "12/31/2020"])
    assert found.values["01/02/2020"] == pd.Timestamp("2020-01-02")
    assert read_dates(["01/02/2020", "2020-03-01"]).unclear == ("01/02/2020",)
    (tmp_path / "t.csv").write_text(
        "id,day\n" + "".join(f"{k},{'01/02/2020' if k else '1.2.2020'}\n" for k in range(9))
    )
    with pytest.raises(DataError, match=r"more than one way \('01/02/2020'\)"):
        read_table(TableSource(tmp_path / "t.csv", id="id", types={"day": "date"}))


def test_a_few_cells_that_are_no_dates_are_missing(tmp_path: Path) -> None:
    for words, holds in ((1, True), (4, False)):
        cells = ["unknown"] * words + ["2020-01-31"] * (20 - words)
        (tmp_path / "t.csv").write_text("id,day\n" + "".join(f"{k},{one}\n" for k, one in enumerate(cells)))
        source = TableSource(tmp_path / "t.csv", id="id", types={"day": "date"})
        if holds:
            assert int(read_table(source)["day"].isna().sum()) == words
        else:
            with pytest.raises(DataError, match=r"4 of 20 cells can be read as dates in no known way \('unknown'\)"):
                read_table(source)


def test_batches_give_the_same_remark() -> None:
    frame = pd.DataFrame({"x": [dates(row) for row in range(ROWS)], "n": np.arange(ROWS)})
    parts = PartyEncoder()
    for start in range(0, ROWS, 30):
        parts.partial_fit(frame.iloc[start : start + 30])
    assert parts.feature_names_out
    assert parts.remarks == PartyEncoder().fit(frame).remarks
