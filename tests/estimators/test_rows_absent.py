"""Tables that do not have everybody: `fit(..., ids="left")` trains on all rows of the label holder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from evenhand import EqualizedOdds, VerticalClassifier, VerticalRegressor
from evenhand.data import PartyEncoder
from evenhand.data.tables.absence import ABSENT
from evenhand.errors import DataError
from evenhand.privacy import Dealer

ROWS = 900


class People(NamedTuple):
    """Three tables of the same people, labels and groups."""

    bank: pd.DataFrame
    shop: pd.DataFrame
    phone: pd.DataFrame
    label: pd.Series
    sex: pd.Series

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        return {"bank": self.bank, "shop": self.shop, "phone": self.phone}

    def with_gaps(self, seed: int = 1) -> dict[str, pd.DataFrame]:
        """Tables in which shop and phone lack half of the rows, in orders of their own, and have strangers."""
        rng = np.random.default_rng(seed)
        found = self.tables
        for name in ("shop", "phone"):
            table = found[name][rng.random(ROWS) < 0.5]
            strangers = found[name].iloc[:7].set_axis([f"stranger {k}" for k in range(7)])
            found[name] = pd.concat([table, strangers]).sample(frac=1, random_state=seed)
        return found


@pytest.fixture(scope="module")
def people() -> People:
    rng = np.random.default_rng(0)
    ids = pd.Index([f"p{number}" for number in rng.permutation(ROWS)])
    numbers = pd.DataFrame(rng.normal(size=(ROWS, 6)), index=ids, columns=list("abcdef"))
    shop = numbers[["c", "d"]].assign(town=rng.choice(["x", "y", "z"], ROWS))
    score = numbers["a"] + numbers["c"] + (shop["town"] == "x") - numbers["e"]
    sex = pd.Series(rng.choice(["f", "m"], ROWS), index=ids, name="sex")
    label = pd.Series((score + 0.7 * (sex == "f") + rng.logistic(size=ROWS) > 0).astype(int), index=ids)
    return People(numbers[["a", "b"]], shop, numbers[["e", "f"]], label, sex)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"protection": "none"},
        {"constraint": EqualizedOdds(0.05, measure="error")},
        {"model": "trees", "max_rounds": 3},
        {"solver": "fairvfl", "max_rounds": 5},
        {"solver": "vfb2-saga", "max_rounds": 5, "random_state": 1},
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_with_everybody_there_left_is_equal_bit_for_bit(people: People, settings: dict[str, Any]) -> None:
    if "model" in settings:
        pytest.importorskip("lightgbm")
    shuffled = {name: table.sample(frac=1, random_state=3) for name, table in people.tables.items()}
    more = {"sensitive_features": people.sex}
    equal = VerticalClassifier(**settings).fit(shuffled, people.label, **more)
    left = VerticalClassifier(**settings).fit(shuffled, people.label, **more, ids="left")
    assert np.array_equal(equal.decision_function(shuffled), left.decision_function(shuffled))
    assert ABSENT not in " ".join(left.get_feature_names_out())


def _pooled(tables: dict[str, pd.DataFrame], order: pd.Index) -> pd.DataFrame:
    """All columns side by side, made by hand: standardised on the rows that there are, zeros and marks elsewhere."""
    parts = []
    for name, table in tables.items():
        own = table.loc[table.index.isin(order)]
        numbers = own.select_dtypes("number")
        encoded = (numbers - numbers.mean()) / numbers.std(ddof=0)
        if "town" in own:
            encoded = encoded.join(pd.get_dummies(own["town"]).astype(float))
        whole = encoded.reindex(order)
        if name != "bank":
            whole["absent"] = whole.isna().all(axis=1).astype(float)
        parts.append(whole.fillna(0.0).add_prefix(f"{name} "))
    return pd.concat(parts, axis=1)


@pytest.mark.parametrize("protection", ["none", "masked", Dealer()])
def test_the_model_is_a_pooled_one_with_zeros_and_marks(people: People, protection: Any) -> None:
    tables, alpha = people.with_gaps(), 0.01
    model = VerticalClassifier(
        encoder=PartyEncoder(numbers="standard"), alpha=alpha, tol=1e-8, protection=protection, max_rounds=200
    )
    model.fit(tables, people.label, ids="left")
    pooled = _pooled(tables, people.bank.index)
    reference = LogisticRegression(C=1.0 / (alpha * ROWS), tol=1e-10, max_iter=2000)
    reference.fit(pooled, people.label.loc[pooled.index])
    expected = reference.decision_function(pooled)
    scores = sum(model.run_.models[name].predict(_encoded(model, tables, name)) for name in tables)
    assert np.abs(scores - expected).max() < (2e-2 if isinstance(protection, Dealer) else 2e-3)


def _encoded(model: VerticalClassifier, tables: dict[str, pd.DataFrame], name: str) -> Any:
    encoder, order = model.encoders_[name], tables["bank"].index
    there = order.isin(tables[name].index)
    return encoder.spread(encoder.transform(tables[name].loc[order[there]]), there)


def test_more_rows_are_worth_more_than_the_common_ones(people: People) -> None:
    tables = people.with_gaps()
    left = VerticalClassifier().fit(tables, people.label, ids="left")
    inner = VerticalClassifier().fit(tables, people.label, ids="inner")
    assert left.score(people.tables, people.label) > inner.score(people.tables, people.label)


def test_a_party_adds_one_number_where_it_has_no_row(people: People) -> None:
    tables = people.with_gaps()
    model = VerticalClassifier().fit(tables, people.label, ids="left")
    for name in ("shop", "phone"):
        matrix, there = _encoded(model, tables, name), people.bank.index.isin(tables[name].index)
        scores = model.models_[name].predict(matrix)
        weight = model.coefficients()["weight"][name, ABSENT]
        assert weight != 0.0
        assert np.array_equal(scores[~there], np.full(int((~there).sum()), weight))
    assert ("bank", ABSENT) not in model.coefficients().index


def test_scales_and_curves_are_learned_from_rows_that_are_there(people: People) -> None:
    tables = people.with_gaps()
    model = VerticalClassifier().fit(tables, people.label, ids="left")
    own = tables["shop"]
    alone = PartyEncoder(auto_numbers="curves").fit(own.loc[people.bank.index[people.bank.index.isin(own.index)]])
    assert model.encoders_["shop"].to_state() == {**alone.to_state(), "absence": True}


def test_the_order_of_rows_and_strangers_do_not_matter(people: People) -> None:
    tables = people.with_gaps()
    one = VerticalClassifier().fit(tables, people.label, ids="left")
    known = people.bank.index
    other = {
        name: table if name == "bank" else table[table.index.isin(known)].iloc[::-1] for name, table in tables.items()
    }
    two = VerticalClassifier().fit(other, people.label.iloc[::-1], ids="left")
    assert np.array_equal(one.coef_, two.coef_)


def test_ids_that_repeat_or_are_missing_are_refused(people: People) -> None:
    tables = people.with_gaps()
    twice = tables | {"shop": pd.concat([tables["shop"], tables["shop"].iloc[:1]])}
    with pytest.raises(DataError, match="shop: 1 ids occur more than once"):
        VerticalClassifier().fit(twice, people.label, ids="left")
    nameless = tables["shop"].set_axis([None, *tables["shop"].index[1:]])
    with pytest.raises(DataError, match=r"shop: 1 of .* rows have no id"):
        VerticalClassifier().fit(tables | {"shop": nameless}, people.label, ids="left")
    with pytest.raises(DataError, match="y lacks 1 of bank's"):
        VerticalClassifier().fit(tables, people.label.iloc[1:], ids="left")
    strangers = tables["shop"].add_suffix("").set_axis([f"q{k}" for k in range(len(tables["shop"]))])
    with pytest.raises(DataError, match=r"no id is common|no id of bank is at shop"):
        VerticalClassifier().fit(tables | {"shop": strangers}, people.label, ids="left")


def test_sparse_tables_without_ids_have_everybody(people: People) -> None:
    matrix = sp.csr_array(people.shop[["c", "d"]].to_numpy())
    bank = people.bank.to_numpy()
    label = people.label.to_numpy()
    left = VerticalClassifier().fit([bank, matrix], label, ids="left")
    assert np.array_equal(left.coef_, VerticalClassifier().fit([bank, matrix], label).coef_)
    with pytest.raises(DataError, match="rows"):
        VerticalClassifier().fit([bank, matrix[:5]], label, ids="left")


def test_a_regression_has_rows_that_are_absent_too(people: People) -> None:
    tables, target = people.with_gaps(), people.bank["a"] + people.shop["c"]
    left = VerticalRegressor().fit(tables, target, ids="left")
    inner = VerticalRegressor().fit(tables, target, ids="inner")
    assert left.score(people.tables, target) > 0.8
    assert len(left.coef_) == len(inner.coef_) + 2


class Interrupted(Exception):
    """The process ends."""


def test_an_interrupted_fit_gives_the_same_result(
    people: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evenhand.training import run

    tables, place = people.with_gaps(), tmp_path / "checkpoints"
    whole = VerticalClassifier(tol=1e-7, random_state=0).fit(tables, people.label, ids="left")
    written = run.Recorder._checkpoint

    def third(self: Any, *parts: Any) -> None:
        written(self, *parts)
        if len(self.history) >= 2:
            raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(run.Recorder, "_checkpoint", third)
        recorder = run.Recorder
        patch.setattr(run, "Recorder", lambda folder, _, told: recorder(folder, 0.0, told))
        with pytest.raises(Interrupted):
            VerticalClassifier(tol=1e-7, random_state=0).fit(tables, people.label, ids="left", checkpoints=place)
    assert place.is_dir()
    again = VerticalClassifier(tol=1e-7, random_state=0).fit(tables, people.label, ids="left", checkpoints=place)
    assert np.array_equal(whole.coef_, again.coef_)
    assert not place.exists()


def test_rows_that_a_party_lacks_are_scored_only_if_that_is_asked_for(people: People) -> None:
    tables = people.with_gaps()
    model = VerticalClassifier(missing_party="absent").fit(tables, people.label, ids="left")
    scores, there = model.decision_function(tables), model.rests_on(tables)
    expected = sum(model.models_[name].predict(_encoded(model, tables, name)) for name in tables)
    np.testing.assert_allclose(scores, expected, atol=1e-12)
    assert list(there.columns) == ["bank", "shop", "phone"]
    assert there.index.equals(people.bank.index)
    for name in tables:
        assert np.array_equal(there[name], people.bank.index.isin(tables[name].index))
    refusing = VerticalClassifier().fit(tables, people.label, ids="left")
    with pytest.raises(DataError, match=r"shop lacks .* of bank's 900 ids"):
        refusing.decision_function(tables)
    assert np.array_equal(refusing.decision_function(people.tables), model.decision_function(people.tables))
    assert refusing.rests_on(people.tables).all(axis=None)


def test_a_party_that_is_away_adds_its_number_to_every_score(people: People) -> None:
    tables = people.with_gaps()
    model = VerticalClassifier(missing_party="absent").fit(tables, people.label, ids="left")
    without = {name: table for name, table in people.tables.items() if name != "shop"}
    weight = model.coefficients()["weight"]["shop", ABSENT]
    parts = sum(model.models_[name].predict(_encoded(model, people.tables, name)) for name in without)
    np.testing.assert_allclose(model.decision_function(without), parts + weight, atol=1e-12)
    assert not model.rests_on(without)["shop"].any()
    assert model.predict(without).shape == (ROWS,)
    with pytest.raises(DataError, match="the table of bank is missing; it holds the labels"):
        model.predict({"shop": people.shop, "phone": people.phone})
    with pytest.raises(DataError, match=r"the table of shop is missing.*missing_party='absent'"):
        VerticalClassifier().fit(people.tables, people.label).predict(without)
    with pytest.raises(DataError, match="the model was trained on bank, shop, phone"):
        model.predict(people.tables | {"clinic": people.shop})


@pytest.mark.parametrize("kind", ["linear", "trees"])
def test_nothing_is_guessed_of_a_party_that_had_all_rows(people: People, kind: str) -> None:
    if kind == "trees":
        pytest.importorskip("lightgbm")
    tables = people.with_gaps() | {"phone": people.phone}
    model = VerticalClassifier(model=kind, missing_party="absent", max_rounds=3, tol=1.0)
    model.fit(tables, people.label, ids="left")
    assert model.predict(tables).shape == (ROWS,)
    with pytest.raises(DataError, match="phone lacks 900 of 900 rows, and had all rows in training"):
        model.predict({name: tables[name] for name in ("bank", "shop")})
    with pytest.raises(DataError, match="phone lacks 1 of 900 rows"):
        model.predict(tables | {"phone": people.phone.iloc[1:]})


def test_wrong_ids_are_refused_when_scoring(people: People) -> None:
    tables = people.with_gaps()
    model = VerticalClassifier(missing_party="absent").fit(tables, people.label, ids="left")
    for wrong, said in (
        (pd.concat([tables["shop"], tables["shop"].iloc[:2]]), "shop: 2 ids occur more than once"),
        (tables["shop"].reset_index(drop=True), "ids are of different kinds"),
        (tables["shop"].set_axis([None, *tables["shop"].index[1:]]), "have no id"),
        (tables["shop"].to_numpy(), "and no ids to find absent rows by"),
    ):
        with pytest.raises(DataError, match=said):
            model.predict(tables | {"shop": wrong})
    with pytest.raises(ValueError, match="missing_party is 'zero'"):
        VerticalClassifier(missing_party="zero").fit(people.tables, people.label)  # type: ignore[arg-type]
