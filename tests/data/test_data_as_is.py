"""Columns as they are, for trees: gaps stay gaps, categories become codes, one feature a column."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from evenhand.data import PartyEncoder
from evenhand.data.tables.stream import encode_parquet
from evenhand.errors import DataError

NAN = np.nan
FRAME = pd.DataFrame(
    {
        "age": [30, 41, 52, 63],
        "income": [1.5, NAN, 2.5, 1e6],
        "city": ["Lyon", None, "Ghent", "Lyon"],
        "member": pd.array([True, None, False, True], dtype="boolean"),
        "size": pd.Categorical(["s", "m", None, "s"], categories=["s", "m", "l"]),
    }
)
CODES = np.array(
    [[30, 1.5, 1, 1, 2], [41, NAN, NAN, NAN, 1], [52, 2.5, 0, 0, NAN], [63, 1e6, 1, 1, 2]], dtype=np.float64
)


def test_numbers_stay_and_categories_become_codes_with_gaps_in_both() -> None:
    encoder = PartyEncoder(as_is=True).fit(FRAME)
    np.testing.assert_array_equal(encoder.transform(FRAME), CODES)
    assert encoder.categorical == (2, 3, 4)
    assert encoder.feature_names_out == list(FRAME) == encoder.columns_in
    assert encoder.width_out == 5
    assert not encoder.gives_sparse


def test_a_level_not_seen_at_fit_is_a_gap() -> None:
    encoder = PartyEncoder(as_is=True).fit(FRAME[["city"]])
    new = pd.DataFrame({"city": ["Turin", "Lyon", None]})
    np.testing.assert_array_equal(encoder.transform(new), [[NAN], [1.0], [NAN]])


def test_columns_of_nothing_but_gaps_are_learned_and_read() -> None:
    empty = pd.DataFrame({"number": [NAN, NAN], "text": [None, None]})
    encoder = PartyEncoder(as_is=True).fit(empty)
    assert encoder.categorical == (1,)
    assert np.isnan(encoder.transform(empty)).all()
    assert np.isnan(encoder.transform(pd.DataFrame({"number": [NAN], "text": ["seen"]}))).all()


def test_a_state_comes_back_as_it_was_and_a_spoiled_one_is_refused() -> None:
    encoder = PartyEncoder(as_is=True).fit(FRAME)
    state = json.loads(json.dumps(encoder.to_state()))
    np.testing.assert_array_equal(PartyEncoder.from_state(state).transform(FRAME), CODES)
    assert PartyEncoder.from_state(state).categorical == encoder.categorical
    for wrong in ({**state, "as_is": 1}, {**state, "as_is": False}, {**state, "scale": True}):
        with pytest.raises(DataError, match="not the state of an encoder"):
            PartyEncoder.from_state(wrong)


def test_batches_teach_what_the_whole_table_teaches(tmp_path: Path) -> None:
    whole = PartyEncoder(as_is=True).fit(FRAME)
    parts = PartyEncoder(as_is=True)
    for start in range(4):
        parts.partial_fit(FRAME.iloc[start : start + 1])
    assert parts.to_state() == whole.to_state()
    FRAME.to_parquet(tmp_path / "rows.parquet", row_group_size=2)
    _, encoder, matrix = encode_parquet(tmp_path / "rows.parquet", as_is=True)
    assert encoder.categorical == whole.categorical
    # A file does not declare the levels that no row has.
    np.testing.assert_array_equal(matrix[:, :4], CODES[:, :4])


def test_sparse_matrices_pass_as_they_are() -> None:
    matrix = sparse.csr_array(np.array([[0.0, 30.0], [2.0, 0.0]]))
    encoder = PartyEncoder(as_is=True).fit(matrix)
    np.testing.assert_array_equal(encoder.transform(matrix).toarray(), matrix.toarray())
    assert PartyEncoder.from_state(encoder.to_state()).categorical == ()


@pytest.mark.parametrize(
    ("column", "new", "match"),
    [
        ([1.0, NAN], ["1", None], "fitted as number and now holds text"),
        (["a", None], [1.0, NAN], "fitted as text and now holds number"),
    ],
)
def test_values_that_do_not_belong_are_refused(column: list[object], new: list[object], match: str) -> None:
    encoder = PartyEncoder(as_is=True).fit(pd.DataFrame({"x": column}))
    with pytest.raises(DataError, match=match):
        encoder.transform(pd.DataFrame({"x": new}))
