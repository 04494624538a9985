"""Alignment by id, and what is said when it cannot be done."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import DataError, InputError
from evenhand.training.vertical_sources import align, common_rows


def _frame(ids: list[object], column: str = "x") -> pd.DataFrame:
    return pd.DataFrame({column: [f"{column}-{one}" for one in ids]}, index=ids)


@given(st.lists(st.integers(), min_size=1, unique=True), st.data())
def test_any_order_aligns_to_the_first(ids: list[object], data: st.DataObject) -> None:
    other = data.draw(st.permutations(ids))
    first, second = align([_frame(ids), _frame(other, "y")], ["bank", "shop"])
    assert list(first.index) == list(second.index) == ids
    assert list(second["y"]) == [f"y-{one}" for one in ids], "values travel with their ids"


@given(st.lists(st.sets(st.text(max_size=3)), min_size=1, max_size=4))
def test_inner_keeps_exactly_the_common_ids(groups: list[set[str]]) -> None:
    frames = [_frame(sorted(group)) for group in groups]
    names = [f"party {k}" for k in range(len(groups))]
    common = set.intersection(*groups)
    if common:
        assert all(list(frame.index) == sorted(common) for frame in align(frames, names, how="inner"))
    else:
        with pytest.raises(DataError, match="no id is common"):
            align(frames, names, how="inner")


def test_series_stay_series() -> None:
    frame, label = align([_frame([1, 2]), pd.Series([0, 1], index=[2, 1], name="label")], ["bank", "label"])
    assert isinstance(frame, pd.DataFrame)
    assert isinstance(label, pd.Series)
    assert label.to_list() == [1, 0]


def test_duplicates_name_party_count_and_ids() -> None:
    with pytest.raises(DataError, match=r"shop: 2 ids occur more than once, such as 'a', 'b'"):
        align([_frame(["a", "b"]), _frame(["a", "a", "b", "b", "b"])], ["bank", "shop"])


def test_many_examples_are_cut() -> None:
    with pytest.raises(DataError, match=r"bank: 9 ids occur .* such as 0, 1, 2, \.\.\.;"):
        align([_frame([*range(9), *range(9)])], ["bank"])


def test_different_ids_say_who_lacks_whose() -> None:
    with pytest.raises(DataError) as caught:
        align([_frame([1, 2, 3, 4]), _frame([4, 3, 5]), _frame([1, 2, 3, 4])], ["bank", "shop", "social"])
    message = str(caught.value)
    assert "shop lacks 2 of bank's 4 ids, such as 1, 2" in message
    assert "bank lacks 1 of shop's 3 ids, such as 5" in message
    assert 'how="inner" keeps the common ids' in message
    assert "social" not in message


@pytest.mark.parametrize("how", ["equal", "inner"])
def test_mixed_kinds_of_ids(how: str) -> None:
    with pytest.raises(DataError, match=r"bank has integers \(such as 1\), shop has text \(such as '1'\)"):
        align([_frame([1, 2]), _frame(["1", "2"])], ["bank", "shop"], how=how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        ([1, "2"], "mixed-integer"),
        ([date(2020, 1, 1), "2"], "mixed"),
        ([1, 2.5, "x"], "mixed-integer"),
        ([date(2020, 1, 1), 5], "mixed-integer"),
        ([True, False], "boolean"),
        ([[1], [2]], "mixed"),
        ([{}, {}], "mixed"),
        ([object(), object()], "mixed"),
        ([pd.Interval(0, 2), pd.Interval(1, 3)], "interval"),
    ],
)
def test_ids_of_several_kinds_in_one_table(ids: list[object], kind: str) -> None:
    frame = pd.DataFrame({"x": range(len(ids))}, index=pd.Index(ids, dtype=object))
    for frames in ([_frame(["a", "b"]), frame], [frame, frame]):
        with pytest.raises(DataError, match=f"shop: the ids are {kind} values, such as|bank: the ids are {kind}"):
            align(frames, ["bank", "shop"])


def test_dates_and_text_never_match() -> None:
    days = [date(2020, 1, 1), date(2020, 1, 2)]
    with pytest.raises(DataError, match=r"bank has dates \(.*\), shop has text"):
        align([_frame(days), _frame([str(day) for day in days])], ["bank", "shop"])
    first, second = align([_frame(days), _frame(days[::-1], "y")], ["bank", "shop"])
    assert list(first.index) == list(second.index) == days


def test_categories_are_what_they_stand_for() -> None:
    frame = _frame(["b", "a"], "y")
    frame.index = pd.CategoricalIndex(frame.index)
    assert list(align([_frame(["a", "b"]), frame], ["bank", "shop"])[1]["y"]) == ["y-a", "y-b"]


def test_integers_that_became_decimals() -> None:
    with pytest.raises(DataError, match="shop has decimal numbers"):
        align([_frame([1, 2]), _frame([1.0, 2.0])], ["bank", "shop"])


def test_missing_ids() -> None:
    with pytest.raises(DataError, match="shop: 1 of 2 rows have no id"):
        align([_frame(["a", "b"]), _frame(["a", None])], ["bank", "shop"])


def test_several_index_levels() -> None:
    frame = pd.DataFrame({"x": [1]}, index=pd.MultiIndex.from_tuples([("a", 1)]))
    with pytest.raises(DataError, match="2 levels"):
        align([frame], ["bank"])


def test_wrong_calls() -> None:
    with pytest.raises(InputError, match="1 tables came with 2 names"):
        align([_frame([1])], ["bank", "shop"])
    with pytest.raises(InputError, match="'outer'"):
        align([_frame([1])], ["bank"], how="outer")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"\['equal'\]"):
        align([_frame([1])], ["bank"], how=["equal"])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a DataFrame or Series and a name are needed, not list"):
        align([[1]], ["bank"])  # type: ignore[list-item]
    with pytest.raises(InputError, match="and 3"):
        align([_frame([1])], [3])  # type: ignore[list-item]


@pytest.mark.parametrize("odd", [None, 3, 0.5, object(), len, np.float64(1.0), "ab", [None], {1: 2}, np.array(3)])
def test_arguments_of_any_type_are_refused_with_an_error_of_ours(odd: Any) -> None:
    frame = pd.DataFrame({"row": [1]}, index=["a"])
    for arguments in ((odd, ["bank"]), ([frame], odd), ([frame], ["bank"], odd), ([frame, odd], ["bank", "shop"])):
        with pytest.raises(InputError):
            align(*arguments)


def test_moments_with_a_time_zone_are_not_those_without() -> None:
    days = pd.to_datetime(["2020-01-01", "2020-01-02"])
    zoned = days.tz_localize("UTC")
    frames = [pd.DataFrame({"row": [0, 1]}, index=index) for index in (days, zoned)]
    with pytest.raises(DataError, match=r"different kinds.*bank has moments .*shop has moments with a time zone"):
        align(frames, ["bank", "shop"])
    with pytest.raises(DataError, match="different kinds"):
        common_rows({"bank": days, "shop": zoned})
    with pytest.raises(DataError, match="moments with and without a time zone"):
        common_rows({"bank": pd.Index([days[0], zoned[1]], dtype=object)})
    same = common_rows({"bank": zoned, "shop": zoned.tz_convert("Asia/Tokyo")[::-1]})
    assert [places.tolist() for places in same.values()] == [[0, 1], [1, 0]]


def test_an_id_that_no_file_can_hold_is_refused_in_the_exchange() -> None:
    with pytest.raises(DataError, match="cannot be written as UTF-8"):
        common_rows({"bank": pd.Index(["a", "\ud800"], dtype=object)})
