"""Tables as they are: gaps, dates, odd types, ids and many levels, learned whole, in batches or by several clients."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from evenhand.data import PartyEncoder
from evenhand.data.tables import parquet_file
from evenhand.data.tables.raw import RawColumn
from evenhand.data.tables.stream import encode_parquet
from evenhand.errors import DataError, InputError

NAN = np.nan
MESSY = pd.DataFrame(
    {
        "income": [1.0, NAN, 3.0, 100.0, 5.0, NAN],
        "age": pd.array([20, 30, None, 50, 60, 70], dtype="Int64"),
        "city": ["Lyon", None, "Ghent", "Lyon", None, "Ghent"],
        "member": pd.array([True, None, False, True, False, True], dtype="boolean"),
        "opened": pd.to_datetime(["2020-01-31", None, "2021-06-01", "2021-06-02", "1969-12-31", "2020-02-29"]),
        "paid": [Decimal("1.50"), None, Decimal("2"), Decimal("3"), Decimal("4"), Decimal("5")],
    }
)


def dense(matrix: Any) -> Any:
    return matrix.toarray() if sparse.issparse(matrix) else matrix


def encoded(encoder: PartyEncoder, frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(dense(encoder.transform(frame)), columns=encoder.feature_names_out)


def test_gaps_of_numbers_are_filled_with_the_median_and_flagged() -> None:
    encoder = PartyEncoder(scale=False).fit(MESSY)
    out = encoded(encoder, MESSY)
    np.testing.assert_array_equal(out["income"], [1.0, 4.0, 3.0, 100.0, 5.0, 4.0])
    np.testing.assert_array_equal(out["income is missing"], [0, 1, 0, 0, 0, 1])
    np.testing.assert_array_equal(out["age"], [20, 30, 50, 50, 60, 70])
    np.testing.assert_array_equal(out["paid"], [1.5, 3, 2, 3, 4, 5])


def test_mean_and_deviation_are_those_of_the_values_that_are_there() -> None:
    out = encoded(PartyEncoder().fit(MESSY), MESSY)
    known = MESSY["income"].dropna()
    expected = (MESSY["income"].fillna(known.median()) - known.mean()) / known.std(ddof=0)
    np.testing.assert_allclose(out["income"], expected)


def test_gaps_of_categories_are_a_level_of_their_own() -> None:
    encoder = PartyEncoder().fit(MESSY)
    out = encoded(encoder, MESSY)
    np.testing.assert_array_equal(out["city is missing"], [0, 1, 0, 0, 1, 0])
    np.testing.assert_array_equal(out[["city=Ghent", "city=Lyon", "city is missing"]].sum(axis=1), 1)
    np.testing.assert_array_equal(out["member is missing"], [0, 1, 0, 0, 0, 0])
    np.testing.assert_array_equal(out["member=True"], [1, 0, 0, 1, 0, 1])


def test_dates_become_days_and_parts_of_the_calendar() -> None:
    out = encoded(PartyEncoder(scale=False).fit(MESSY[["opened"]]), MESSY)
    there = MESSY["opened"].notna().to_numpy()
    days = (MESSY["opened"][there] - pd.Timestamp("1970-01-01")).dt.days
    np.testing.assert_array_equal(out["opened"][there], days)
    for part, values in {"month": MESSY["opened"].dt.month, "weekday": MESSY["opened"].dt.strftime("%a")}.items():
        for value in values.dropna().unique():
            name = value if isinstance(value, str) else str(int(value))
            np.testing.assert_array_equal(out[f"opened {part}={name}"], (values == value).astype(float))
    np.testing.assert_array_equal(out["opened is missing"], ~there)
    assert not any("hour" in name for name in out)


def test_hours_count_where_dates_have_them_and_a_time_of_day_is_a_number() -> None:
    moments = pd.to_datetime(["2024-03-01 00:00", "2024-03-01 07:00", "2024-03-02 23:59:59.999999"], format="ISO8601")
    out = encoded(PartyEncoder().fit(pd.DataFrame({"at": moments})), pd.DataFrame({"at": moments}))
    assert out.filter(like="hour").idxmax(axis=1).tolist() == ["at hour=0", "at hour=7", "at hour=23"]
    clock = pd.DataFrame({"at": [datetime.time(6, 30), None, datetime.time(18)]})
    np.testing.assert_array_equal(encoded(PartyEncoder(scale=False).fit(clock), clock)["at"], [6.5, 12.25, 18.0])
    spans = pd.DataFrame({"for": pd.to_timedelta(["1 days", "36 hours", None])})
    np.testing.assert_array_equal(encoded(PartyEncoder(scale=False).fit(spans), spans)["for"], [1.0, 1.5, 1.25])


@pytest.mark.parametrize(
    "column",
    [
        [datetime.date(2020, 1, 31), None, datetime.date(9999, 12, 31)],
        [datetime.datetime(2020, 1, 31), None, datetime.datetime(9999, 12, 31)],
        pd.PeriodIndex(["2020-01-31", None, "2020-03-01"], freq="D"),
        pd.to_datetime(["2020-01-31", None, "2020-03-01"]).tz_localize("Europe/Brussels"),
        pd.Series(["2020-01-31", None, "2020-03-01"]).astype("date32[pyarrow]"),
    ],
)
def test_dates_of_every_make_are_dates(column: Any) -> None:
    frame = pd.DataFrame({"d": column})
    encoder = PartyEncoder(scale=False).fit(frame)
    assert encoder.kinds == {"d": "date"}
    assert encoded(encoder, frame)["d"][0] == 18292.0
    assert "d is missing" in encoder.feature_names_out
    again = PartyEncoder.from_state(json.loads(json.dumps(encoder.to_state())))
    np.testing.assert_array_equal(dense(again.transform(frame)), dense(encoder.transform(frame)))


def test_a_gap_that_the_training_rows_did_not_have_is_taken() -> None:
    whole = MESSY.iloc[[0, 3]]
    encoder = PartyEncoder().fit(whole)
    assert not [name for name in encoder.feature_names_out if "missing" in name]
    out = encoded(encoder, MESSY.iloc[[1]])
    assert out["income"][0] == 0.0
    assert out[["city=Lyon", "member=True"]].to_numpy().sum() == 0.0


def test_a_column_of_nothing_but_gaps_makes_nothing_and_is_remarked_on() -> None:
    frame = MESSY.assign(fax=NAN, note=None)
    encoder = PartyEncoder().fit(frame)
    assert not [name for name in encoder.feature_names_out if name.startswith(("fax", "note"))]
    assert [remark.split(":")[0] for remark in encoder.remarks] == [
        "column 'fax' has no value in the training rows",
        "column 'note' has no value in the training rows",
    ]
    np.testing.assert_array_equal(
        dense(encoder.transform(frame.assign(fax="now there"))), dense(PartyEncoder().fit_transform(MESSY))
    )


def test_infinite_numbers_count_as_missing_and_are_remarked_on() -> None:
    frame = pd.DataFrame({"ratio": [1.0, np.inf, 3.0, -np.inf]})
    encoder = PartyEncoder(scale=False).fit(frame)
    np.testing.assert_array_equal(encoded(encoder, frame)["ratio"], [1.0, 2.0, 3.0, 2.0])
    assert "column 'ratio': 2 infinite values count as missing" in encoder.remarks[0]


def test_text_that_differs_in_every_row_is_left_out_and_remarked_on() -> None:
    frame = pd.DataFrame({"phone": [f"+32 {k}" for k in range(60)], "age": range(60)})
    whole, parts = PartyEncoder().fit(frame), PartyEncoder()
    for start in range(0, 60, 7):
        parts.partial_fit(frame.iloc[start : start + 7])
    for encoder in (whole, parts):
        assert encoder.feature_names_out == ["age"]
        assert "column 'phone' has another value in each of 60 rows" in encoder.remarks[0]
    assert len(PartyEncoder().fit(frame.astype({"phone": "category"})).feature_names_out) == 61
    assert len(PartyEncoder().fit(frame.iloc[:49]).feature_names_out) == 50


def test_many_levels_are_remarked_on_and_can_be_capped() -> None:
    towns = [f"t{k}" for k in range(600)] * 2 + ["big"] * 5 + ["middle"] * 3
    frame = pd.DataFrame({"town": towns})
    encoder = PartyEncoder().fit(frame)
    assert "column 'town': 602 different values in 1,208 cells" in encoder.remarks[0]
    assert "max_levels" in encoder.remarks[0]
    capped = PartyEncoder(max_levels=3).fit(frame)
    assert capped.remarks == ()
    assert capped.feature_names_out == ["town=big", "town=middle", "town=t0", "town is another"]
    out = encoded(capped, pd.DataFrame({"town": ["big", "t7", "never seen", None]}))
    np.testing.assert_array_equal(out, [[1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0]])


def test_values_that_no_training_row_has_are_told() -> None:
    encoder = PartyEncoder().fit(MESSY)
    assert encoder.remarks_on(MESSY) == []
    (said,) = encoder.remarks_on(MESSY.assign(city=["Turin", "Lyon", None, "Rome", "Ghent", "Lyon"]))
    assert said.startswith("column 'city': 2 of 6 rows have a value that no training row has, such as 'Turin', 'Rome'")


@pytest.mark.parametrize("wrong", [{"missing": "drop"}, {"missing": {"age": None}}, {"max_levels": 0}])
def test_rules_that_there_are_not(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"missing is|max_levels is"):
        PartyEncoder(**wrong)


@pytest.mark.parametrize(
    "change",
    [
        {"missing": "maybe"},
        {"missing": None},
        {"fill": NAN},
        {"fill": "1"},
        {"other": 1},
        {"timed": 1},
        {"more": 1},
    ],
)
def test_a_state_that_no_encoder_wrote_is_refused(change: dict[str, Any]) -> None:
    state = PartyEncoder().fit(MESSY).to_state()
    assert PartyEncoder.from_state(json.loads(json.dumps(state))).to_state() == state
    for place, column in enumerate(state["columns"]):
        columns = [*state["columns"][:place], {**column, **change}, *state["columns"][place + 1 :]]
        with pytest.raises(DataError, match="not the state of an encoder"):
            PartyEncoder.from_state({**state, "columns": columns})


def test_batches_of_a_file_give_what_the_whole_table_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_file, "_BATCH", 2)
    frame = MESSY.drop(columns="paid").assign(fax=NAN)
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=2)
    whole = PartyEncoder().fit(frame)
    _, encoder, matrix = encode_parquet(tmp_path / "t.parquet")
    assert encoder.feature_names_out == whole.feature_names_out
    np.testing.assert_allclose(dense(matrix), dense(whole.transform(frame)), atol=1e-12)
    assert len(encoder.remarks) == 1


@settings(max_examples=30)
@given(st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_clients_agree_on_what_their_rows_together_would_give(owners: list[int]) -> None:
    """Any partition of the rows: also a client that has nothing but gaps in a column."""
    parts = {f"c{k}": MESSY[np.array(owners) == k] for k in sorted(set(owners))}
    options: dict[str, Any] = {"scale": True, "max_levels": 1}
    summaries = {name: PartyEncoder(**options).partial_fit(part).to_summary() for name, part in parts.items()}
    found = PartyEncoder.from_summaries(json.loads(json.dumps(summaries)), **options)
    pooled = PartyEncoder(**options).partial_fit(MESSY)
    assert found.feature_names_out == pooled.feature_names_out
    np.testing.assert_allclose(dense(found.transform(MESSY)), dense(pooled.transform(MESSY)), atol=1e-9)


def test_without_a_cap_clients_do_not_count_their_levels() -> None:
    summary = PartyEncoder().partial_fit(MESSY).to_summary()
    assert not [column for column in summary["columns"] if "counts" in column]


def test_trees_take_gaps_and_dates_as_numbers() -> None:
    encoder = PartyEncoder(as_is=True).fit(MESSY[["income", "opened"]])
    out = encoded(encoder, MESSY)
    assert list(out) == ["income", "opened", "opened month", "opened weekday"]
    assert out.isna().sum().tolist() == [2, 1, 1, 1]
    assert out["opened month"][0] == 0
    assert encoder.categorical == ()


def test_dates_that_lie_far_away_are_counted_all_the_same() -> None:
    """In microseconds they would not fit into 64 bits."""
    days = np.array([-200_000_000, 0, 200_000_000])
    moments = pd.Series(days.astype("datetime64[D]").astype("datetime64[s]"))
    np.testing.assert_array_equal(RawColumn.of(moments, "born").numbers, days)
