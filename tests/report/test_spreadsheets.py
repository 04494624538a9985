"""Predictions opened in a spreadsheet run nothing, and numbers stay numbers."""

from __future__ import annotations

import io
import random

import pandas as pd
import pytest

from evenhand.report.tables import csv_text, harmless


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("+1+1", "'+1+1"),
        ("-1+1", "'-1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t'=1"),
        ("\r=1", "'\r'=1"),
        ("＝1+1", "'＝1+1"),
        ("x;=1+1", "x;'=1+1"),
        ("-inf", "'-inf"),
        ("-", "'-"),
        *((plain, plain) for plain in ("", "a=b", "c0001", "-5", "+49", "-1.5e-3", "-1,5", "x-y", "mail@home", "'=x")),
        *((number, number) for number in (-5, -1.5, True, None)),
    ],
)
def test_what_would_be_a_formula_begins_with_an_apostrophe(cell: object, written: object) -> None:
    assert harmless(cell) == written


def scores(ids: list[object], label: str = "yes") -> pd.DataFrame:
    columns = {"score": [-1.5] * len(ids), "prediction": [label] * len(ids)}
    return pd.DataFrame(columns, index=pd.Index(ids, name="=id"))


def test_ids_labels_and_names_of_columns() -> None:
    text = csv_text(scores(["=1+1", "-2", "c"], "@yes"))
    assert text.splitlines() == ["'=id,score,prediction", "'=1+1,-1.5,'@yes", "-2,-1.5,'@yes", "c,-1.5,'@yes"]
    assert csv_text(scores(["=1+1"]), as_is=True) == scores(["=1+1"]).to_csv()


@pytest.mark.parametrize(
    "frame",
    [
        scores([1, -2, 3]),
        scores(["a", "b", "c"]).rename_axis(None),
        pd.concat({"ghent": scores([1, 2]), "lyon": scores([1])}, names=["client", "row"]),
        scores(list(pd.date_range("2024-01-01", periods=3))),
    ],
)
def test_harmless_tables_are_written_as_pandas_does(frame: pd.DataFrame) -> None:
    frame.index.names = [None if name is None else str(name).removeprefix("=") for name in frame.index.names]
    assert csv_text(frame) == frame.to_csv()


def test_no_cell_of_any_text_begins_like_a_formula() -> None:
    rng = random.Random(0)
    ids = ["".join(rng.choices("=+-@\t\r\n;,'\"a1 ", k=rng.randrange(6))) for _ in range(2000)]
    found = pd.read_csv(io.StringIO(csv_text(scores(list(ids)))), dtype=str, keep_default_na=False)
    for before, after in zip(ids, found.iloc[:, 0], strict=True):
        assert after[:1] not in ("=", "+", "-", "@", "\t", "\r") or after.lstrip("+-").replace(",", "").isdigit(), (
            before
        )
        assert after.replace("'", "") == before.replace("'", "")
