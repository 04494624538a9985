"""The recipes meet the papers' counts on the real files."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from evenhand.data import CATALOG, Dataset, PartyEncoder, papers_split

Loader = Callable[[str], Dataset]


@pytest.mark.parametrize(
    ("name", "rows", "raw", "encoded", "positives", "groups"),
    [
        ("adult", 45_222, 14, 104, 11_208, {"Male": 30_527, "Female": 14_695}),
        ("compas", 5_278, 10, 26, 2_795, {"African-American": 3_175, "Caucasian": 2_103}),
        ("crime", 1_994, 99, 99, 1_994 - 413, {"> 0.06": 970, "<= 0.06": 1_024}),
        ("german", 1_000, 20, 61, 700, {"male": 690, "female": 310}),
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


@pytest.mark.parametrize("name", CATALOG)
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


@pytest.mark.parametrize("seed", range(5))
def test_any_training_draw_gives_the_papers_features(load_set: Loader, seed: int) -> None:
    """One country has one row: its column must be there whether that row is drawn for training or not."""
    data = load_set("adult")
    train, test = papers_split("adult", seed)
    encoder = PartyEncoder().fit(data.frame.loc[train])
    assert encoder.transform(data.frame.loc[test]).shape == (5_222, 104)
