"""The recipes meet the papers' counts on the real files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from evenhand.data import PartyEncoder
from evenhand.data.public.catalog import CATALOG
from evenhand.data.public.loaders import _RECIPES, Dataset

Loader = Callable[[str], Dataset]


@pytest.mark.parametrize(
    ("name", "rows", "raw", "encoded", "positives", "groups"),
    [
        ("adult", 45_222, 14, 104, 11_208, {"Male": 30_527, "Female": 14_695}),
        ("compas", 5_278, 10, 26, 2_795, {"African-American": 3_175, "Caucasian": 2_103}),
        ("crime", 1_994, 99, 99, 1_994 - 413, {"> 0.06": 970, "<= 0.06": 1_024}),
        ("german", 1_000, 20, 61, 700, {"male": 690, "female": 310}),
        ("credit-default", 30_000, 23, 90, 23_364, {"female": 18_112, "male": 11_888}),
        ("give-me-some-credit", 120_269, 10, 92, 111_912, {"> 25": 117_845, "<= 25": 2_424}),
    ],
)
def test_counts(
    load_set: Loader, name: str, rows: int, raw: int, encoded: int, positives: int, groups: dict[str, int]
) -> None:
    data = load_set(name)
    assert data.frame.shape == (rows, raw)
    assert PartyEncoder().fit_transform(data.frame).shape == (rows, encoded)
    assert (data.label == data.positive).sum() == positives
    assert data.label.nunique() == 2
    assert data.sensitive.iloc[:, 0].value_counts().to_dict() == groups
    assert not data.frame.isna().any(axis=None)
    assert CATALOG[data.name].title in data.description


@pytest.mark.parametrize("name", [name for name, entry in CATALOG.items() if entry.form == "table"])
def test_all_parts_share_the_row_ids(load_set: Loader, name: str) -> None:
    data = load_set(name)
    assert list(data.frame.index) == list(range(CATALOG[name].rows))
    assert data.frame.index.equals(data.label.index)
    assert data.frame.index.equals(data.sensitive.index)


def test_compas_keeps_no_names_birth_dates_or_leaks(load_set: Loader) -> None:
    data = load_set("compas")
    columns = set(data.frame.columns)
    assert not columns & {"id", "name", "first", "last", "dob", "c_case_number", "c_jail_in", "c_jail_out"}
    assert not columns & {"is_recid", "two_year_recid", "is_violent_recid", "violent_recid", "event", "start", "end"}
    assert not any(column.startswith(("r_", "vr_")) for column in columns)


@pytest.mark.parametrize(("name", "sensitive"), [("adult", "sex"), ("compas", "race"), ("crime", "racepctblack")])
def test_sensitive_attribute_stays_among_the_features(load_set: Loader, name: str, sensitive: str) -> None:
    data = load_set(name)
    assert sensitive in data.frame.columns
    assert list(data.sensitive.columns) == [sensitive]


def test_labels_and_targets_are_no_features(load_set: Loader) -> None:
    assert "income" not in load_set("adult").frame
    assert "ViolentCrimesPerPop" not in load_set("crime").frame
    assert set(load_set("german").label) == {"good", "bad"}


def test_known_rows(load_set: Loader) -> None:
    first = load_set("adult").frame.loc[0]
    assert (first["age"], first["workclass"], first["native-country"]) == (39, "State-gov", "United-States")
    assert load_set("adult").label.iloc[-1] == ">50K", "the test file's full stops are gone"
    assert load_set("german").frame.loc[1, "credit_amount"] == 5951
    assert load_set("german").sensitive.loc[1, "sex"] == "female"


def test_a_small_credit_default(tmp_path: Path) -> None:
    """Codes are categories, SEX and the amounts are numbers, the id is gone."""
    months = [0, 2, 3, 4, 5, 6]
    names = ["ID", "LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE", *(f"PAY_{month}" for month in months)]
    names += [f"{kind}_AMT{month}" for kind in ("BILL", "PAY") for month in range(1, 7)]
    path = tmp_path / "UCI_Credit_Card.csv"
    rows = [[1, 20_000, 2, 2, 1, 24, *[-1] * 6, *range(12), 1], [2, 50_000, 1, 3, 2, 30, *[0] * 6, *range(12), 0]]
    path.write_text("\n".join(",".join(map(str, row)) for row in [[*names, "Default"], *rows]))
    frame, label, positive, sensitive = _RECIPES["credit-default"]({path.name: path})
    assert (label.tolist(), positive) == (["default", "paid"], "paid")
    assert sensitive["sex"].tolist() == ["female", "male"]
    encoded = PartyEncoder().fit(frame).feature_names_out
    assert {"SEX", "AGE", "EDUCATION=2", "MARRIAGE=1", "PAY_0=-1", "PAY_6=0", "PAY_AMT6"} <= set(encoded)
    assert len(encoded) == 15 + 8 * 2
    assert "ID" not in frame


def test_a_small_give_me_some_credit(tmp_path: Path) -> None:
    """Rows with a gap are dropped, each age is a category, and the groups are cut after 25."""
    path = tmp_path / "cs-training.csv"
    path.write_text(",SeriousDlqin2yrs,age,MonthlyIncome\n1,1,45,9120\n2,0,25,2600\n3,0,38,NA\n4,0,26,63\n")
    frame, label, positive, sensitive = _RECIPES["give-me-some-credit"]({path.name: path})
    assert (label.tolist(), positive) == (["delinquent", "paid", "paid"], "paid")
    assert sensitive["age"].tolist() == ["> 25", "<= 25", "> 25"]
    assert PartyEncoder().fit(frame).feature_names_out == ["age=25", "age=26", "age=45", "MonthlyIncome"]
    assert list(frame.index) == [0, 1, 2]
