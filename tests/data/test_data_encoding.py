"""What a party's columns become, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from evenhand.data import PartyEncoder
from evenhand.errors import DataError

FRAME = pd.DataFrame(
    {
        "age": [20, 30, 40, 50],
        "job": ["cook", "nurse", "cook", "clerk"],
        "member": [True, False, True, True],
        "income": [1.5, 2.5, 0.5, 3.5],
    }
)


def _dense(matrix: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    return matrix.toarray() if sparse.issparse(matrix) else matrix


def _wide(rows: int, seed: int = 0) -> pd.DataFrame:
    """Categories enough for the result to be sparse."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.normal(40, 10, rows),
            "town": rng.choice([f"town {k}" for k in range(50)], rows),
            "job": rng.choice([f"job {k}" for k in range(20)], rows),
        }
    )


def test_names_and_values() -> None:
    encoder = PartyEncoder()
    out = encoder.fit_transform(FRAME)
    names = ["age", "job=clerk", "job=cook", "job=nurse", "member=False", "member=True", "income"]
    assert encoder.feature_names_out == names
    assert encoder.columns_in == list(FRAME.columns)
    assert out.dtype == np.float64
    expected = np.column_stack(
        [
            StandardScaler().fit_transform(FRAME[["age"]]),
            OneHotEncoder(sparse_output=False).fit_transform(FRAME[["job", "member"]]),
            StandardScaler().fit_transform(FRAME[["income"]]),
        ]
    )
    np.testing.assert_allclose(out, expected, atol=1e-15)


def test_sparse_result_agrees_with_scikit_learn() -> None:
    frame = _wide(500)
    out = PartyEncoder().fit_transform(frame)
    assert isinstance(out, sparse.csr_array)
    assert out.has_canonical_format
    expected = np.column_stack(
        [
            StandardScaler().fit_transform(frame[["age"]]),
            OneHotEncoder().fit_transform(frame[["town", "job"]]).toarray(),
        ]
    )
    np.testing.assert_allclose(out.toarray(), expected, atol=1e-12)


def test_form_depends_on_columns_not_rows() -> None:
    encoder = PartyEncoder().fit(_wide(500))
    assert encoder.gives_sparse
    assert isinstance(encoder.transform(_wide(1)), sparse.csr_array)
    assert isinstance(PartyEncoder().fit_transform(FRAME), np.ndarray)


def test_test_rows_have_no_influence() -> None:
    train, test = _wide(300, seed=1), _wide(100, seed=2)
    alone = PartyEncoder().fit(train)
    state = json.dumps(alone.to_state())
    forged = test.assign(age=1e6, town="elsewhere")
    alone.transform(forged)
    assert json.dumps(alone.to_state()) == state
    whole = PartyEncoder().fit(train)
    rows = _dense(whole.transform(pd.concat([test, forged])))[: len(test)]
    np.testing.assert_array_equal(rows, _dense(alone.transform(test)))


@pytest.mark.parametrize("frame", [FRAME, _wide(400)], ids=["dense", "sparse"])
def test_unseen_category_becomes_zeros(frame: pd.DataFrame) -> None:
    encoder = PartyEncoder().fit(frame)
    row = frame.iloc[[0]].assign(job="astronaut")
    out = pd.Series(_dense(encoder.transform(row))[0], encoder.feature_names_out)
    assert (out[[name for name in out.index if name.startswith("job=")]] == 0.0).all()
    known = pd.Series(_dense(encoder.transform(frame.iloc[[0]]))[0], encoder.feature_names_out)
    others = [name for name in out.index if not name.startswith("job=")]
    pd.testing.assert_series_equal(out[others], known[others])


def test_declared_categories_all_count() -> None:
    column = pd.Series(pd.Categorical(["low", "low"], categories=["low", "high"]))
    assert PartyEncoder().fit(column.to_frame("level")).feature_names_out == ["level=high", "level=low"]


def test_category_may_arrive_as_text_and_the_other_way_round() -> None:
    text = FRAME[["job"]]
    category = text.astype("category")
    expected = PartyEncoder().fit_transform(text)
    np.testing.assert_array_equal(PartyEncoder().fit(category).transform(text), expected)
    np.testing.assert_array_equal(PartyEncoder().fit(text).transform(category), expected)


def test_constant_column_has_scale_one() -> None:
    encoder = PartyEncoder().fit(pd.DataFrame({"c": [0.1] * 7}))
    np.testing.assert_array_equal(encoder.transform(pd.DataFrame({"c": [0.1, 1.1]})), [[0.0], [1.0]])


def test_without_scaling_numbers_pass() -> None:
    out = PartyEncoder(scale=False).fit_transform(FRAME[["age", "income"]])
    np.testing.assert_array_equal(out, FRAME[["age", "income"]])


def test_numpy_array_is_a_frame_of_numbers() -> None:
    array = np.arange(12.0).reshape(4, 3)
    encoder = PartyEncoder()
    np.testing.assert_allclose(encoder.fit_transform(array), StandardScaler().fit_transform(array))
    assert encoder.feature_names_out == ["x0", "x1", "x2"]
    objects = np.array([[1, "a"], [2, "b"]], dtype=object)
    assert PartyEncoder().fit(objects).feature_names_out == ["x0", "x1=a", "x1=b"]


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_array, sparse.coo_matrix])
def test_sparse_matrix_is_scaled_without_centring(form: Any) -> None:
    matrix = form(np.array([[0.0, -4.0, 0.0], [2.0, 1.0, 0.0]]))
    encoder = PartyEncoder()
    out = encoder.fit_transform(matrix)
    assert isinstance(out, sparse.csr_array)
    np.testing.assert_array_equal(out.toarray(), [[0.0, -1.0, 0.0], [1.0, 0.25, 0.0]])
    np.testing.assert_array_equal(matrix.toarray(), [[0.0, -4.0, 0.0], [2.0, 1.0, 0.0]])
    assert encoder.feature_names_out == encoder.columns_in == ["x0", "x1", "x2"]
    assert encoder.gives_sparse
    again = PartyEncoder.from_state(json.loads(json.dumps(encoder.to_state())))
    np.testing.assert_array_equal(again.transform(matrix).toarray(), out.toarray())
    raw = PartyEncoder(scale=False).fit_transform(matrix)
    np.testing.assert_array_equal(raw.toarray(), matrix.toarray())


def test_unscaled_sparse_matrix_is_not_copied() -> None:
    matrix = sparse.csr_array(np.eye(3))
    encoder = PartyEncoder(scale=False)
    out = encoder.fit_transform(matrix)
    assert np.shares_memory(out.data, matrix.data)
    assert np.shares_memory(out.indices, matrix.indices)
    assert encoder.sparse_columns == 3
    assert encoder.to_state() == {"version": 1, "scale": False, "unscaled": 3}
    again = PartyEncoder.from_state(json.loads(json.dumps(encoder.to_state())))
    np.testing.assert_array_equal(again.transform(matrix).toarray(), np.eye(3))
    with pytest.raises(DataError, match="has 4 columns; the encoder was fitted on 3"):
        again.transform(sparse.csr_array(np.eye(4)))


def test_scaled_sparse_matrix_shares_where_its_values_stand() -> None:
    matrix = sparse.csr_array(2.0 * np.eye(3))
    out = PartyEncoder().fit_transform(matrix)
    assert np.shares_memory(out.indices, matrix.indices)
    assert not np.shares_memory(out.data, matrix.data)
    assert (out.data.tolist(), matrix.data.tolist()) == ([1.0] * 3, [2.0] * 3)


def test_extra_columns_are_ignored_and_order_does_not_matter() -> None:
    encoder = PartyEncoder().fit(FRAME)
    moved = FRAME.assign(extra=object())[["extra", *reversed(FRAME.columns)]]
    np.testing.assert_array_equal(encoder.transform(moved), encoder.transform(FRAME))


def test_party_without_columns() -> None:
    assert PartyEncoder().fit_transform(FRAME[[]]).shape == (4, 0)


LEVELS = {
    "text": st.text(max_size=5),
    "integer": st.integers(-(2**62), 2**62),
    "decimal": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
}


@settings(max_examples=60)
@given(st.data())
def test_state_round_trip_is_exact(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 8))
    columns: dict[str, Any] = {}
    for kind, levels in LEVELS.items():
        values = data.draw(st.lists(levels, min_size=rows, max_size=rows))
        columns[kind] = pd.Series(values).astype("category")
    numbers = st.lists(st.floats(-1e100, 1e100), min_size=rows, max_size=rows)
    columns["number"] = pd.Series(data.draw(numbers), dtype=float)
    frame = pd.DataFrame(columns)
    encoder = PartyEncoder().fit(frame)
    text = json.dumps(encoder.to_state(), allow_nan=False)
    again = PartyEncoder.from_state(json.loads(text))
    assert json.dumps(again.to_state(), allow_nan=False) == text
    assert again.feature_names_out == encoder.feature_names_out
    np.testing.assert_array_equal(_dense(again.transform(frame)), _dense(encoder.transform(frame)))
    hot = _dense(encoder.transform(frame))[:, :-1]
    assert np.all(hot.sum(axis=1) == len(LEVELS)), "each categorical column lights one feature in every row"


def test_levels_keep_their_type_through_a_careless_json_writer() -> None:
    state = PartyEncoder().fit(pd.DataFrame({"c": pd.Series([1.0, 2.0]).astype("category")})).to_state()
    state["columns"][0]["levels"] = [1, 2]
    assert PartyEncoder.from_state(state).feature_names_out == ["c=1.0", "c=2.0"]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1j, 2j, 3j], r"column 'c' holds complex values"),
        (pd.Series(["a", 1, True], dtype=object), r"column 'c' holds mixed-integer values"),
        ([1e308, -1e308, 1e308], r"column 'c': values from -1e\+308 to 1e\+308 are too large"),
        (pd.Categorical([1.0, np.inf, 2.0]), r"column 'c': an infinite number cannot be a category"),
    ],
)
def test_columns_that_cannot_be_encoded(column: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        PartyEncoder().fit(pd.DataFrame({"c": column}))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1.0, np.nan, np.nan], r"column 'c': 2 of 3 values are missing"),
        ([1.0, np.inf, -np.inf], r"column 'c': 2 of 3 values are infinite"),
        (["a", None, "b"], r"column 'c': 1 of 3 values are missing"),
        (pd.array([1, None, 2], dtype="Int64"), r"column 'c': 1 of 3 values are missing"),
        (pd.array([True, None, False], dtype="boolean"), r"column 'c': 1 of 3 values are missing"),
        (pd.Categorical(["a", None, "b"]), r"column 'c': 1 of 3 values are missing"),
        (pd.to_datetime(["2020-01-01", None, None]), r"column 'c': 2 of 3 values are missing"),
    ],
)
@pytest.mark.parametrize("missing", ["refuse", {"c": "refuse"}])
def test_gaps_are_refused_where_that_is_asked_for(column: Any, message: str, missing: Any) -> None:
    frame = pd.DataFrame({"c": column})
    for learn in (PartyEncoder(missing=missing).fit, PartyEncoder(missing=missing).partial_fit):
        with pytest.raises(DataError, match=message):
            learn(frame)
    complete = frame.iloc[[0]]
    with pytest.raises(DataError, match=message):
        PartyEncoder(missing=missing).fit(complete).transform(frame)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (FRAME.assign(age=FRAME["age"].astype(str)), "column 'age' was fitted as number and now holds text"),
        (FRAME.assign(age=True), "column 'age' was fitted as number and now holds boolean"),
        (FRAME.assign(job=[1, 2, 3, 4]), "column 'job' was fitted as text and now holds number"),
        (FRAME.assign(job=pd.Categorical([1, 2, 3, 4])), "column 'job' was fitted as text and now holds integer"),
        (FRAME.drop(columns=["age", "job"]), "columns age, job are missing"),
        (pd.concat([FRAME, FRAME[["age"]]], axis=1), "columns age occur more than once"),
        (sparse.csr_array(np.eye(4)), "cannot encode a sparse matrix"),
        (np.zeros(4), "1 dimensions"),
        ([[1, 2]], "not list"),
    ],
)
def test_rows_that_cannot_be_transformed(changed: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        PartyEncoder().fit(FRAME).transform(changed)


def test_sparse_rows_that_cannot_be_transformed() -> None:
    encoder = PartyEncoder().fit(sparse.csr_array(np.eye(3)))
    np.testing.assert_array_equal(encoder.transform(np.eye(3)).toarray(), np.eye(3))
    with pytest.raises(DataError, match="has 4 columns; the encoder was fitted on 3"):
        encoder.transform(sparse.csr_array(np.eye(4)))
    with pytest.raises(DataError, match="1 values that are missing or infinite"):
        encoder.transform(sparse.csr_array([[np.nan, 0.0, 0.0]]))
    with pytest.raises(DataError, match="not named columns"):
        encoder.transform(FRAME)


def test_nothing_to_fit_on() -> None:
    with pytest.raises(DataError, match="no rows"):
        PartyEncoder().fit(FRAME.iloc[:0])
    with pytest.raises(DataError, match="no rows"):
        PartyEncoder().fit(sparse.csr_array((0, 3)))
    with pytest.raises(DataError, match="not been fitted"):
        PartyEncoder().transform(FRAME)


NUMBER = {"name": "age", "kind": "number", "missing": "refused", "mean": 40.0, "scale": 2.0}
LEVEL = {"name": "job", "kind": "text", "missing": "refused", "levels": ["clerk", "cook"]}


def scaled(**content: Any) -> dict[str, Any]:
    return {"version": 1, "scale": True, **content}


@pytest.mark.parametrize(
    ("state", "where"),
    [
        ({}, "version"),
        ([], "version"),
        (None, "version"),
        (scaled(), "the state"),
        (scaled(columns=[{}]), r"columns\[0\]"),
        (scaled(columns=[]) | {"version": True}, "version"),
        (scaled(columns=[]) | {"version": "1"}, "version"),
        (scaled(columns=[]) | {"scale": 1}, "scale"),
        (scaled(columns={}), "columns"),
        (scaled(columns=[], more=1), "the state"),
        (scaled(columns=[], divisors=[]), "the state"),
        (scaled(columns=[NUMBER, NUMBER]), "columns is not a list of different names"),
        *(
            (scaled(divisors=[1.0, one]), "divisors")
            for one in (0, -1.0, np.nan, np.inf, None, True, "1", [1.0], 10**400)
        ),
        (scaled(divisors=1.0), "divisors"),
        (scaled(divisors=[1.0]) | {"scale": False}, "divisors"),
        *(
            ({"version": 1, "scale": False, "unscaled": one}, "unscaled")
            for one in (10**30, -1, 2.0, True, None, "3", [])
        ),
        (scaled(unscaled=3), "unscaled"),
        *((scaled(columns=[NUMBER | {"mean": one}]), r"\[0\].mean") for one in (np.nan, np.inf, None, "0", 10**400)),
        *((scaled(columns=[NUMBER | {"scale": one}]), r"\[0\].scale") for one in (0, -1.0, np.nan, 10**30, [])),
        (scaled(columns=[NUMBER]) | {"scale": False}, r"columns\[0\] is not unscaled"),
        *((scaled(columns=[NUMBER | {"name": one}]), r"\[0\].name") for one in (None, 3, [], "\ud800")),
        *((scaled(columns=[NUMBER | {"kind": one}]), r"\[0\]") for one in (None, "words", [], {}, "text")),
        *((scaled(columns=[LEVEL | {"levels": one}]), r"\[0\].levels") for one in ("ab", None, {}, [1], ["a", None])),
        (scaled(columns=[LEVEL | {"levels": ["b", "a"]}]), "sorted, and no level twice"),
        (scaled(columns=[LEVEL | {"levels": ["a", "a"]}]), "sorted, and no level twice"),
        (scaled(columns=[LEVEL | {"kind": "integer", "levels": [1, 2.0]}]), r"levels\[1\] is not integer"),
        (scaled(columns=[LEVEL | {"kind": "integer", "levels": [True]}]), r"levels\[0\] is not integer"),
        (scaled(columns=[LEVEL | {"kind": "boolean", "levels": [0, 1]}]), r"levels\[0\] is not boolean"),
        (scaled(columns=[LEVEL | {"kind": "decimal", "levels": [0.5, np.inf]}]), "levels"),
        (scaled(columns=[LEVEL | {"more": 1}]), r"columns\[0\] is not made of"),
    ],
)
def test_foreign_state(state: Any, where: str) -> None:
    with pytest.raises(DataError, match=f"not the state of an encoder: .*{where}"):
        PartyEncoder.from_state(state)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b"1" * 5000, b'{"version": 1}'])
def test_files_that_hold_no_state(content: bytes) -> None:
    with pytest.raises(DataError, match="not the state of an encoder"):
        PartyEncoder.from_json(content)


def test_a_wide_state_costs_nothing_until_it_is_used() -> None:
    encoder = PartyEncoder.from_state({"version": 1, "scale": False, "unscaled": 2**31 - 1})
    assert encoder.width_out == encoder.sparse_columns == 2**31 - 1


def test_rows_too_far_from_those_fitted_on_are_refused() -> None:
    encoder = PartyEncoder.from_state(scaled(columns=[NUMBER | {"scale": 5e-324}]))
    with pytest.raises(DataError, match="column 'age': values lie too far"):
        encoder.transform(pd.DataFrame({"age": [41.0]}))
    with pytest.raises(DataError, match="far larger than those it was fitted on"):
        PartyEncoder.from_state(scaled(divisors=[5e-324])).transform(sparse.csr_array([[1.0]]))


@pytest.mark.parametrize("version", [0, 2, 99])
def test_state_of_another_version(version: int) -> None:
    with pytest.raises(DataError, match=f"has version {version}; this evenhand reads version 1"):
        PartyEncoder.from_state({"version": version, "scale": True, "columns": []})


def test_summaries_of_clients_add_up_to_the_encoder_of_all_rows() -> None:
    frame = pd.DataFrame(
        {
            "age": [31.5, 1e6 + 2, 1e6 + 3, 44.0, 18.0],
            "town": ["a", "b", "a", "c", "b"],
            "old": [True, False] * 2 + [True],
        }
    )
    parts = {"one": frame[:2], "two": frame[2:]}
    summaries = {
        name: json.loads(json.dumps(PartyEncoder().partial_fit(part).to_summary())) for name, part in parts.items()
    }
    found = PartyEncoder.from_summaries(summaries, scale=True)
    np.testing.assert_allclose(found.transform(frame), PartyEncoder().fit(frame).transform(frame), rtol=1e-12)
    assert found.feature_names_out == PartyEncoder().fit(frame).feature_names_out


@pytest.mark.parametrize("scale", [True, False])
def test_summaries_of_sparse_matrices_add_up(scale: bool) -> None:
    matrix = sparse.random_array((9, 5), density=0.5, random_state=np.random.default_rng(0), format="csr")
    parts = {"one": matrix[:4], "two": matrix[4:]}
    summaries = {name: PartyEncoder(scale=scale).fit(part).to_summary() for name, part in parts.items()}
    found = PartyEncoder.from_summaries(summaries, scale=scale).transform(matrix)
    largest = np.maximum(*(np.abs(part.toarray()).max(axis=0) for part in parts.values()))
    divisors = np.where(largest > 0, largest, 1.0) if scale else 1.0
    np.testing.assert_allclose(found.toarray(), matrix.toarray() / divisors, atol=1e-15)


@pytest.mark.parametrize(
    "change",
    [
        {"rows": -1},
        {"rows": "many"},
        {"spread": -1.0},
        {"mean": float("nan")},
        {"mean": 10**400},
        {"low": 9.0, "high": 1.0},
        {"kind": "text"},
        {"kind": "no such"},
        {"name": "other"},
    ],
)
def test_a_strange_summary_names_its_client(change: dict[str, Any]) -> None:
    good = PartyEncoder().partial_fit(pd.DataFrame({"age": [1.0, 2.0]})).to_summary()
    bad = {"columns": [good["columns"][0] | change]}
    with pytest.raises(DataError, match="client 'two'"):
        PartyEncoder.from_summaries({"one": good, "two": bad}, scale=True)
