"""Numbers as curves and bins: what they encode, what they remember, and what a linear model gains by them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from evenhand import HorizontalClassifier, VerticalClassifier
from evenhand.data import PartyEncoder
from evenhand.data.tables.stream import encode_parquet
from evenhand.errors import DataError, InputError


def money(rows: int = 1000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    income = np.exp(rng.normal(10.0, 1.5, rows))
    income[rng.random(rows) < 0.3] = 0.0
    debt = pd.Series(rng.gamma(0.5, 1000.0, rows)).mask(pd.Series(rng.random(rows) < 0.1))
    return pd.DataFrame({"income": income, "debt": debt, "children": rng.integers(0, 4, rows)})


def curves(frame: pd.DataFrame, **settings: object) -> tuple[PartyEncoder, np.ndarray]:
    encoder = PartyEncoder(numbers="curves", **settings)  # type: ignore[arg-type]
    return encoder, np.asarray(encoder.fit_transform(frame))


def test_each_segment_has_a_centred_feature_and_missing_values_an_indicator() -> None:
    frame = money()
    encoder, matrix = curves(frame)
    names = encoder.feature_names_out
    income = [name for name in names if name.startswith("income")]
    assert len(income) == 4
    assert income[0].startswith("income 0 to ")
    assert "debt is missing" in names
    # Few values: a knot at each of them.
    assert [name for name in names if name.startswith("children")] == [
        "children 0 to 1",
        "children 1 to 2",
        "children 2 to 3",
    ]
    ramps = [place for place, name in enumerate(names) if not name.endswith("is missing")]
    np.testing.assert_allclose(np.abs(matrix[:, ramps].mean(axis=0)), 0.0, atol=1e-12)
    gone = frame["debt"].isna().to_numpy()
    debt = [place for place, name in enumerate(names) if name.startswith("debt ") and name != "debt is missing"]
    assert not matrix[np.ix_(gone, debt)].any()


def test_a_curve_rises_with_the_number_and_is_constant_beyond_the_training_range() -> None:
    frame = money()
    encoder, _ = curves(frame)
    grid = np.linspace(-1e9, 1e9, 2001)
    new = pd.DataFrame({"income": grid, "debt": 0.0, "children": 1})
    encoded = np.asarray(encoder.transform(new))[:, :4]
    assert (np.diff(encoded, axis=0) >= 0.0).all()
    edges = pd.DataFrame({"income": [frame["income"].min(), frame["income"].max()], "debt": 0.0, "children": 1})
    np.testing.assert_array_equal(np.asarray(encoder.transform(edges))[:, :4], encoded[[0, -1]])


@pytest.mark.parametrize(("rows", "segments"), [(39, 1), (40, 2), (149, 2), (150, 3), (200, 4), (5000, 4)])
def test_a_curve_bends_once_from_forty_rows_on(rows: int, segments: int) -> None:
    matrix = curves(pd.DataFrame({"x": np.arange(rows) ** 2.0}))[1]
    assert matrix.shape[1] == segments


def test_sixty_rows_find_an_effect_that_turns() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(2060, 2)), columns=["x", "y"])
    scores = 3.0 * table["x"].abs() + 0.3 * table["y"] - 2.4
    labels = (scores + rng.logistic(size=2060) > 0).astype(int)
    model = VerticalClassifier(random_state=0).fit([table[["x"]][:60], table[["y"]][:60]], labels[:60])
    found = model.decision_function([table[["x"]][60:], table[["y"]][60:]])
    # A line through the rank finds next to nothing.
    assert roc_auc_score(labels[60:], found) > 0.7


def test_ramps_are_linear_in_the_rank() -> None:
    frame = pd.DataFrame({"x": np.exp(np.arange(100.0))})
    matrix = curves(frame)[1]
    total = matrix.sum(axis=1)
    # All segments hold the same share of rows, so the sum of the ramps is linear in the rank.
    np.testing.assert_allclose(np.diff(total), np.diff(total)[0], atol=0.02)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(st.one_of(st.none(), st.floats(-1e12, 1e12)), min_size=1, max_size=300),
    st.sampled_from(["curves", "bins"]),
)
def test_any_column_encodes_and_its_state_encodes_the_same(numbers: list[float | None], how: str) -> None:
    frame = pd.DataFrame({"x": pd.Series(numbers, dtype=float), "y": np.arange(len(numbers))})
    encoder = PartyEncoder(numbers=how)  # type: ignore[arg-type]
    matrix = np.asarray(encoder.fit_transform(frame))
    assert np.isfinite(matrix).all()
    assert matrix.shape == (len(numbers), encoder.width_out)
    again = PartyEncoder.from_json(json.dumps(encoder.to_state()).encode())
    np.testing.assert_array_equal(np.asarray(again.transform(frame)), matrix)
    assert again.feature_names_out == encoder.feature_names_out


def test_bins_hold_equal_shares_of_rows() -> None:
    frame = pd.DataFrame({"x": np.random.default_rng(0).lognormal(size=1000)})
    matrix = np.asarray(PartyEncoder(numbers="bins").fit_transform(frame))
    assert set(np.unique(matrix)) == {0.0, 1.0}
    np.testing.assert_array_equal(matrix.sum(axis=1), 1.0)
    np.testing.assert_allclose(matrix.mean(axis=0), 0.25, atol=0.02)


def test_a_rule_by_column_leaves_the_others_standardised() -> None:
    encoder = PartyEncoder(numbers={"income": "curves"}).fit(money())
    assert {"debt", "children"} <= set(encoder.feature_names_out)
    assert "income" not in encoder.feature_names_out


@pytest.mark.parametrize("how", ["curves", "bins"])
def test_a_streamed_table_is_encoded_like_one_in_memory(how: str, tmp_path: Path) -> None:
    frame = money(700)
    frame.to_parquet(tmp_path / "money.parquet", index=False, row_group_size=100)
    _, encoder, matrix = encode_parquet(tmp_path / "money.parquet", numbers=how)  # type: ignore[arg-type]
    whole = PartyEncoder(numbers=how)  # type: ignore[arg-type]
    np.testing.assert_array_equal(np.asarray(matrix), np.asarray(whole.fit_transform(frame)))
    assert encoder.to_state() == whole.to_state()


def test_a_wrong_rule_is_refused() -> None:
    with pytest.raises(InputError, match="numbers is 'splines'; choose 'auto' or 'curves' or 'standard' or 'bins'"):
        PartyEncoder(numbers="splines")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"numbers is 'curves', but scale is false.*; remove one of the two"):
        PartyEncoder(scale=False, numbers={"income": "curves"})


@pytest.mark.parametrize(
    ("key", "value"),
    [("knots", [0.5, 0.4]), ("ranks", [0.0]), ("means", []), ("values", [1.0, 2.0]), ("steps", 1), ("knots", "no")],
)
def test_a_damaged_state_is_refused(key: str, value: object) -> None:
    state = curves(money())[0].to_state()
    state["columns"][0][key] = value
    with pytest.raises(DataError, match="this is not the state of an encoder"):
        PartyEncoder.from_state(state)


def test_curves_learn_what_a_straight_line_cannot() -> None:
    rng = np.random.default_rng(3)
    frame = money(2000, seed=3)
    chance = np.where(frame["income"].rank(pct=True).between(0.4, 0.7), 0.85, 0.15)
    labels = (rng.random(2000) < chance).astype(int)
    tables = [frame[["debt", "children"]], frame[["income"]]]
    straight = VerticalClassifier(encoder=PartyEncoder(numbers="standard"), random_state=0).fit(tables, labels)
    curved = VerticalClassifier(random_state=0).fit(tables, labels)
    assert curved.score(tables, labels) > straight.score(tables, labels) + 0.1


def test_curves_are_the_default_of_the_subspace_solver_only() -> None:
    frame, labels = money(300), np.arange(300) % 2
    tables = {"bank": frame[["income"]], "shop": frame[["children"]]}
    made = {
        solver: VerticalClassifier(solver=solver, max_rounds=1, tol=1e9, random_state=0).fit(tables, labels)
        for solver in ("auto", "fairvfl", "fedbcd")
    }
    assert [len(one.encoders_["bank"].feature_names_out) for one in made.values()] == [4, 1, 1]
    rule = {"bank": PartyEncoder(numbers={"income": "standard"})}
    named = VerticalClassifier(encoder=rule, max_rounds=1, tol=1e9, random_state=0).fit(tables, labels)
    assert [one.width_out for one in named.encoders_.values()] == [1, 3]


def test_rules_for_columns_that_do_not_exist_are_refused() -> None:
    frame, labels = money(100), np.arange(100) % 2
    for rule in ({"numbers": {"incme": "bins"}}, {"missing": {"incme": "refuse"}}, {"monotone": {"incme": "up"}}):
        with pytest.raises(
            DataError, match=f"{next(iter(rule))} names 'incme', which is not a column; there are 'income'"
        ):
            PartyEncoder(**rule).fit(frame)  # type: ignore[arg-type]
        with pytest.raises(DataError, match="'incme', which is not a column"):
            PartyEncoder(**rule).partial_fit(frame)  # type: ignore[arg-type]
    tables = {"bank": frame[["income"]], "shop": frame[["children"]]}
    options: dict[str, Any] = {"max_rounds": 1, "tol": 1e9}
    with pytest.raises(DataError, match="'incme', which is not a column; there are 'income', 'children'"):
        VerticalClassifier(encoder=PartyEncoder(numbers={"incme": "bins"}), **options).fit(tables, labels)
    # Each party has the rules for its own columns.
    both = PartyEncoder(numbers={"income": "standard", "children": "bins"})
    model = VerticalClassifier(encoder=both, **options).fit(tables, labels)
    assert model.encoders_["bank"].rules.numbers == {"income": "standard"}
    assert model.encoders_["shop"].rules.numbers == {"children": "bins"}
    assert model.encoders_["bank"].width_out == 1


def test_an_infinite_value_of_a_curve_is_remarked() -> None:
    frame = pd.DataFrame({"x": [*np.arange(200.0), np.inf]})
    (remark,) = curves(frame)[0].remarks
    assert "infinite values count as missing" in remark


def test_an_encoder_prints_what_was_given() -> None:
    assert repr(PartyEncoder()) == "PartyEncoder()"
    assert repr(PartyEncoder(numbers="curves", max_levels=9)) == "PartyEncoder(max_levels=9, numbers='curves')"


@pytest.mark.parametrize("how", ["curves", "bins", "standard"])
def test_bins_have_the_features_of_their_ends(how: str) -> None:
    frame = money(400).assign(city=pd.Series(["Ghent", "Liège", None, "Mons"] * 100))
    encoder = PartyEncoder(numbers=how, max_levels=2).fit(frame)  # type: ignore[arg-type]
    places = dict(zip(frame.columns, np.cumsum([0, *encoder.widths.values()]), strict=False))
    usual: dict[str, object] = {"income": 1.0, "debt": 1.0, "children": 1, "city": "Mons"}
    for column, bins in encoder.bins.items():
        for one in bins:
            words = one.name.split()
            ends: dict[object, np.ndarray]
            if words[0] == "from":
                # Names are rounded to six digits; a bin's own end belongs to the next one.
                low, high = float(words[1]), float(words[3])
                inside = low + 1e-4 * (high - low)
                ends = {inside: one.low, **({} if how == "bins" else {high: one.high})}
            elif words[0] == "each":
                continue
            else:
                value = {"missing": None, "another": "Oslo"}.get(one.name, words[-1])
                ends = {float(value) if words[0] == "at" else value: one.low}
            for value, expected in ends.items():
                row = pd.DataFrame({**usual, column: value}, index=[0])
                row = row.astype(dict.fromkeys(("income", "debt", "children"), float))
                found = np.asarray(encoder.transform(row))[0, places[column] :][: len(expected)]
                np.testing.assert_allclose(found, expected, atol=0.01)


def test_a_frequent_value_leaves_knots_for_the_others() -> None:
    rng = np.random.default_rng(5)
    gain = np.where(rng.random(5000) < 0.92, 0.0, rng.lognormal(8.0, 1.0, 5000))
    encoder = curves(pd.DataFrame({"gain": gain}))[0]
    (column,) = encoder.to_state()["columns"]
    knots = np.interp(column["knots"], column["ranks"], column["values"])
    assert len(knots) == 5
    assert knots[0] == 0.0
    shares = np.histogram(gain[gain > 0], knots)[0] / (gain > 0).sum()
    np.testing.assert_allclose(shares, 0.25, atol=0.1)
    # Sixteen rows support no more than one knot between.
    few = np.where(np.arange(200) < 184, 0.0, np.arange(200.0))
    assert len(curves(pd.DataFrame({"gain": few}))[0].to_state()["columns"][0]["knots"]) == 3


def agreed(parts: dict[str, pd.DataFrame], how: str) -> PartyEncoder:
    """The encoder that clients agree on, by messages of plain JSON."""
    told = {name: PartyEncoder().partial_fit(part).to_summary() for name, part in parts.items()}
    server = PartyEncoder.from_summaries(told, scale=True, numbers=how)  # type: ignore[arg-type]
    shared, edges = json.loads(json.dumps([server.to_state(), server.curve_edges()]))
    counts = {name: PartyEncoder.from_state(shared).count_values(part, edges) for name, part in parts.items()}
    server.add_curves(edges, json.loads(json.dumps(counts)))
    return server


@pytest.mark.parametrize("how", ["curves", "bins"])
def test_clients_agree_on_the_curves_of_the_pooled_rows_by_counts(how: str) -> None:
    frame = money(3000)
    parts = {"north": frame.iloc[:300], "south": frame.iloc[300:2000], "west": frame.iloc[2000:]}
    shared, pooled = agreed(parts, how), PartyEncoder(numbers=how).fit(frame)  # type: ignore[arg-type]
    assert shared.widths == pooled.widths
    found, expected = (np.asarray(one.transform(frame)) for one in (shared, pooled))
    # Values are counted between edges, so ranks differ a little. Most rows stay in their bin.
    assert np.abs(found - expected).mean() < 0.03
    # Any split of the rows into clients gives the same curves.
    again = agreed({"all": frame}, how).to_state()
    for one, other in zip(again["columns"], shared.to_state()["columns"], strict=True):
        np.testing.assert_allclose(one["knots"], other["knots"], atol=1e-6)


@pytest.mark.parametrize(
    ("edges", "counts", "said"),
    [
        ({"income": [0.0, 1.0, 1.0]}, {}, "edges of column 'income' are not two or more finite numbers"),
        ({"income": [0.0, float("inf")]}, {}, "edges of column 'income' are not two or more finite numbers"),
        ({"income": "no"}, {}, "edges of column 'income' are not two or more finite numbers"),
        ({"income": [0.0, 1.0, 2.0]}, {"income": {"2": 1}}, "client 'north': the counts of column 'income'"),
        ({"income": [0.0, 1.0, 2.0]}, {"income": {"1": -1}}, "client 'north': the counts of column 'income'"),
        ({"income": [0.0, 1.0, 2.0]}, {"income": {"1": 0.5}}, "client 'north': the counts of column 'income'"),
    ],
)
def test_edges_and_counts_that_nobody_could_have_made_are_refused(edges: Any, counts: Any, said: str) -> None:
    summary = PartyEncoder().partial_fit(money(100)).to_summary()
    server = PartyEncoder.from_summaries({"north": summary}, scale=True, numbers="curves")
    with pytest.raises(DataError, match=said):
        server.add_curves(edges, {"north": counts})
    with pytest.raises(DataError, match="edges for 'wealth', which is not a column of numbers"):
        server.count_values(money(100), {"wealth": [0.0, 1.0]})


def test_clients_train_with_curves_that_they_agree_on() -> None:
    rng = np.random.default_rng(3)
    frame = money(1500, seed=3).drop(columns="debt")
    chance = np.where(frame["income"].rank(pct=True).between(0.4, 0.7), 0.85, 0.15)
    labels, clients = (rng.random(1500) < chance).astype(int), np.array(["north", "south", "west"])[np.arange(1500) % 3]
    scores = [
        HorizontalClassifier(encoder=encoder, random_state=0).fit(frame, labels, clients=clients).score(frame, labels)
        for encoder in (None, PartyEncoder(numbers="curves"))
    ]
    assert scores[1] > scores[0] + 0.1
