"""From parties' tables to columns ready for training, whatever they come from and whatever is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from support.tables import SmallJob, write_postgres, write_sqlite

from evenhand.data import TableSource
from evenhand.data.tables.party_tables import open_table
from evenhand.errors import ConstraintError, DataError, InputError
from evenhand.jobs.vertical.runs import VerticalTables, align_parties, load_vertical_tables


@pytest.fixture
def small(tmp_path: Path) -> SmallJob:
    return SmallJob(tmp_path)


def load(small: SmallJob, order: int = 1) -> VerticalTables:
    return load_vertical_tables(small.read(order), small.folder)


def dense(matrix: Any) -> np.ndarray:
    return matrix.toarray() if sparse.issparse(matrix) else matrix


def assert_same(one: VerticalTables, other: VerticalTables) -> None:
    """Equal but for the order of the rows."""
    place = one.ids.get_indexer(other.ids)
    assert sorted(one.ids) == sorted(other.ids)
    np.testing.assert_array_equal(one.held.labels[place], other.held.labels)
    np.testing.assert_array_equal(one.test[place], other.test)
    assert (one.held.names, one.terms.active) == (other.held.names, other.terms.active)
    for name, matrix in one.matrices.items():
        assert one.encoders[name].feature_names_out == other.encoders[name].feature_names_out
        # Means and scales are sums over the rows in their order, so the last digits may differ.
        np.testing.assert_allclose(dense(matrix)[place], dense(other.matrices[name]), rtol=1e-12, atol=1e-12)
    groups = one.held.groups.iloc[place].reset_index(drop=True)
    pd.testing.assert_frame_equal(groups, other.held.groups, check_names=False)


def test_tables_become_aligned_encoded_columns(small: SmallJob) -> None:
    federation = load(small)
    rows = len(federation.ids)
    assert rows == 120
    assert federation.terms.participants == {"bank": "active", "shop": "passive", "social": "passive"}
    # The bank's own features: neither its label nor its sensitive column unless they are named.
    assert federation.encoders["bank"].columns_in == ["age", "city"]
    assert dense(federation.matrices["bank"]).shape == (rows, 4)
    outcome = small.frames["bank"]["outcome"].reindex(federation.ids)
    np.testing.assert_array_equal(federation.held.labels, np.where(outcome == "repaid", 1.0, -1.0))
    assert (federation.held.names.negative, federation.held.names.positive) == ("defaulted", "repaid")
    assert 0 < federation.test.sum() < rows / 2
    spent = small.frames["shop"]["spent"].reindex(federation.ids).to_numpy()
    train = spent[~federation.test]
    shop = dense(federation.matrices["shop"])
    np.testing.assert_allclose(shop[:, 0], (spent - train.mean()) / train.std(), rtol=1e-12)
    assert [len(dense(party.matrix)) for party in federation.training_columns()] == [len(train)] * 3


def test_numbers_of_a_job_of_a_party_and_of_a_column(tmp_path: Path) -> None:
    small = SmallJob(tmp_path, rows=300)
    job, bank = small.content["job"], small.party("bank")

    def ages() -> int:
        return sum(name.startswith("age") for name in load(small).encoders["bank"].feature_names_out)

    assert ages() == 1
    job.update(solver="subspace", options={})
    assert ages() == 4
    job["numbers"] = "standard"
    assert ages() == 1
    bank["numbers"] = "curves"
    assert ages() == 4
    bank["numbers"] = {"age": "standard"}
    job["numbers"] = "auto"
    assert ages() == 1


def test_monotone_columns_of_a_party(tmp_path: Path) -> None:
    """Scores of a run only rise with the column; the others learn that there are such columns, and not which."""
    small = SmallJob(tmp_path, rows=300)
    small.content["job"].update(solver="subspace", options={})
    small.party("bank")["monotone"] = {"age": "up"}
    with pytest.raises(InputError, match=r"'masked' does not support monotone.*Choose 'none'"):
        load(small)
    small.content["job"]["protection"] = "none"
    tables, run = load(small), small.run().run
    signs = tables.encoders["bank"].signs
    assert signs.tolist().count(1) == 4
    assert (run.models["bank"].weights[: len(signs)][signs > 0] >= 0.0).all()
    assert tables.terms.job.options == {"monotone": True}
    small.party("bank")["monotone"] = {"moon": "up"}
    with pytest.raises(DataError, match="monotone names 'moon', which is not a column"):
        load(small)
    small.party("bank")["monotone"] = {"age": "sideways"}
    with pytest.raises(InputError, match=r"monotone.*'up' or 'down'"):
        small.read()
    small.party("bank")["monotone"] = {"age": "up"}
    small.content["job"]["solver"] = "fedbcd"
    with pytest.raises(InputError, match="'fedbcd' does not support monotone"):
        small.read()


def test_named_columns_are_the_features_and_may_be_sensitive(small: SmallJob) -> None:
    small.party("bank")["columns"] = ["sex", "age"]
    small.party("shop")["columns"] = ["visits"]
    federation = load(small)
    assert federation.encoders["bank"].columns_in == ["sex", "age"]
    assert federation.encoders["shop"].columns_in == ["visits"]


def test_every_kind_of_table_gives_the_same_federation(small: SmallJob, postgres_url: str) -> None:
    for name in ("club", "phone"):
        frame = small.frames["social"].rename(columns={"friends": name})
        small.frames[name] = frame * (2.0 if name == "club" else -3.0)
        small.content["party"].append({"name": name, "table": f"{name}.csv", "id": "customer"})
    plain = load(small)

    folder, frames = small.folder, small.frames
    small.party("bank")["table"] = "bank.parquet"
    frames["bank"].iloc[::-1].to_parquet(folder / "bank.parquet")
    small.party("shop")["table"] = "shop.duckdb"
    shop = frames["shop"].reset_index()
    with duckdb.connect(str(folder / "shop.duckdb")) as connection:
        connection.register("frame", shop)
        connection.execute("create table customers as select * from frame")
    social = small.party("social")
    del social["table"]
    social |= {"database": "sqlite:///social.db", "sql": write_sqlite(folder / "social.db", "p", frames["social"])}
    club = small.party("club")
    del club["table"]
    club |= {"database": postgres_url, "sql": write_postgres(postgres_url, "club", frames["club"])}
    # The fifth stays a CSV file, so that one job holds all five kinds.
    assert_same(plain, load(small, order=2))


def test_the_order_of_rows_and_of_parties_does_not_matter(small: SmallJob) -> None:
    first = load(small, order=1)
    assert_same(first, load(small, order=2))
    small.content["party"].reverse()
    assert_same(first, load(small))


def test_held_out_rows_depend_on_ids_and_seed_alone(small: SmallJob) -> None:
    def held(order: int) -> set[str]:
        federation = load(small, order)
        return set(federation.ids[federation.test])

    first = held(1)
    assert held(2) == first
    small.frames = {name: frame.iloc[10:] for name, frame in small.frames.items()}
    assert held(1) == first & set(small.frames["bank"].index)
    small.content["job"]["seed"] = 5
    assert held(1) != first


def test_only_training_rows_shape_the_encoders(small: SmallJob) -> None:
    before = load(small)
    held = before.ids[before.test]
    small.frames["bank"].loc[held, "age"] += 1000
    small.frames["bank"].loc[held, "city"] = "Atlantis"
    small.frames["shop"].loc[held, "spent"] *= 50
    after = load(small)
    for name, encoder in before.encoders.items():
        assert after.encoders[name].to_state() == encoder.to_state()
    train = before.ids[~before.test]
    small.frames["shop"].loc[train, "spent"] *= 50
    assert load(small).encoders["shop"].to_state() != before.encoders["shop"].to_state()


def test_inner_keeps_the_people_everybody_knows(small: SmallJob) -> None:
    small.frames["shop"] = small.frames["shop"].iloc[5:]
    small.frames["social"] = small.frames["social"].iloc[:-7]
    with pytest.raises(DataError, match=r'shop lacks 5 of bank.*ids = "inner" in \[job\]'):
        load(small)
    small.content["job"]["ids"] = "inner"
    assert sorted(load(small).ids) == list(small.frames["bank"].index[5:-7])


@pytest.mark.parametrize(("positive", "negative"), [("repaid", "defaulted"), ("defaulted", "repaid"), (None, None)])
def test_either_label_may_be_the_positive_one(small: SmallJob, positive: str | None, negative: str | None) -> None:
    label = small.party("bank")["label"]
    del label["positive"]
    if positive:
        label["positive"] = positive
    federation = load(small)
    assert (federation.held.names.positive, federation.held.names.negative) == (
        positive or "repaid",
        negative or "defaulted",
    )


@pytest.mark.parametrize(
    ("values", "positive", "classes"),
    [
        ((0, 1), 1, (0, 1)),
        ((0.0, 1.0), 1, (0.0, 1.0)),
        ((2, 7), 2, (7, 2)),
        (("no", "yes"), "yes", ("no", "yes")),
        (("no", "yes"), "no", ("yes", "no")),
        (("false", "true"), True, (False, True)),
        (("false", "true"), "true", (False, True)),
    ],
)
def test_labels_of_any_two_values(
    small: SmallJob, values: tuple[Any, Any], positive: Any, classes: tuple[Any, Any]
) -> None:
    repaid = small.frames["bank"]["outcome"] == "repaid"
    small.frames["bank"]["outcome"] = np.where(repaid, values[1], values[0])
    small.party("bank")["label"]["positive"] = positive
    federation = load(small)
    assert (federation.held.names.negative, federation.held.names.positive) == classes
    assert type(federation.held.names.positive) is type(classes[1])
    assert (federation.held.labels > 0).sum() == (repaid.sum() if positive in (values[1], True) else (~repaid).sum())


def set_column(name: str, column: str, value: Any, rows: Any = slice(None)) -> Callable[[SmallJob], None]:
    def change(small: SmallJob) -> None:
        frame = small.frames[name].copy()
        if column in frame:
            frame[column] = frame[column].astype(object)
        frame.loc[frame.index[rows], column] = value
        small.frames[name] = frame

    return change


def set_key(name: str, key: str, value: Any) -> Callable[[SmallJob], None]:
    return lambda small: small.party(name).__setitem__(key, value)


def repeat_row(small: SmallJob) -> None:
    small.frames["shop"] = pd.concat([small.frames["shop"], small.frames["shop"].iloc[:1]])


def number_rows(small: SmallJob) -> None:
    """In a Parquet file: ids out of a CSV file are text, whatever they look like."""
    frame = small.frames["shop"].set_axis(pd.Index(np.arange(120), name="customer"))
    frame.to_parquet(small.folder / "shop.parquet")
    small.party("shop")["table"] = "shop.parquet"


def one_group_without_positives(small: SmallJob) -> None:
    bank = small.frames["bank"]
    bank.loc[bank["sex"] == "female", "outcome"] = "defaulted"


def no_features(small: SmallJob) -> None:
    small.frames["bank"] = small.frames["bank"][["sex", "outcome"]]


REFUSED: dict[str, tuple[Callable[[SmallJob], Any], type[InputError], str]] = {
    "missing file": (set_key("shop", "table", "shpo.csv"), DataError, "party 'shop': there is no file .*shpo.csv"),
    "unknown format": (set_key("shop", "table", "job.toml"), DataError, "party 'shop': .*cannot tell the format"),
    "missing id column": (set_key("shop", "id", "person"), DataError, "party 'shop': .*no column 'person'"),
    "missing feature": (set_key("shop", "columns", ["spend"]), DataError, "party 'shop': .*no column 'spend'.*'spent'"),
    "missing label": (
        set_key("bank", "label", {"column": "result"}),
        DataError,
        "party 'bank': label column 'result' is not in the table, which has 'age'",
    ),
    "missing group": (
        set_key("bank", "sensitive", ["gender"]),
        DataError,
        "party 'bank': there is no sensitive column 'gender'",
    ),
    "mismatching ids": (
        lambda small: small.frames.update(shop=small.frames["shop"].iloc[3:]),
        DataError,
        "shop lacks 3 of bank's 120 ids",
    ),
    "duplicate ids": (repeat_row, DataError, "party 'shop': .*'customer' occur more than once, such as 'c0000'"),
    "ids of another kind": (number_rows, DataError, "ids are of different kinds.*bank has text.*shop has integers"),
    "one label": (
        set_column("bank", "outcome", "repaid"),
        DataError,
        "party 'bank': label column 'outcome' has 1 diff",
    ),
    "three labels": (
        set_column("bank", "outcome", "moved", slice(4)),
        DataError,
        "label column 'outcome' has 3 different values",
    ),
    "missing label values": (
        set_column("bank", "outcome", None, slice(2)),
        DataError,
        "party 'bank': label column 'outcome' has 2 missing values",
    ),
    "wrong positive": (
        set_key("bank", "label", {"column": "outcome", "positive": "paid"}),
        DataError,
        "party 'bank': label column 'outcome': positive is 'paid', the values are 'defaulted' and 'repaid'",
    ),
    "dates as labels": (
        set_column("bank", "outcome", np.where(np.arange(120) % 3, "2024-01-01", "2024-02-01")),
        DataError,
        "party 'bank': label column 'outcome' holds .* values; labels are text, numbers, true or false",
    ),
    "one group": (set_column("bank", "sex", "female"), DataError, "party 'bank': .*'sex' has one group only"),
    "missing groups": (
        set_column("bank", "sex", None, slice(40)),
        DataError,
        r"party 'bank': .*'sex' has \d+ missing values",
    ),
    "empty slice": (
        one_group_without_positives,
        ConstraintError,
        r"party 'bank': slice \[positives with sex = female\] is empty",
    ),
    "no feature": (no_features, DataError, "party 'bank': no feature columns are left"),
    "no test row": (
        lambda small: small.content["job"].update(test_fraction=1e-9),
        DataError,
        "test_fraction = 1e-09 holds out none of the 120 rows",
    ),
    "no training row": (
        lambda small: small.content["job"].update(test_fraction=0.999999),
        DataError,
        "holds out all of the 120 rows",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_refused_before_training(case: str, small: SmallJob) -> None:
    change, kind, message = REFUSED[case]
    change(small)
    with pytest.raises(kind, match=message):
        small.run("run")
    # Nothing half-written is left behind.
    assert not (small.folder / "run").exists()


def test_one_label_among_training_rows_is_refused(small: SmallJob) -> None:
    before = load(small)
    small.frames["bank"].loc[before.ids[~before.test], "outcome"] = "repaid"
    small.frames["bank"].loc[before.ids[before.test], "outcome"] = "defaulted"
    with pytest.raises(DataError, match="the training rows all have one label"):
        load(small)


def test_a_group_constraint_without_groups_is_refused(small: SmallJob) -> None:
    small.party("bank")["sensitive"] = []
    with pytest.raises(DataError, match="equal-opportunity compares groups"):
        load(small)


def test_a_wrong_database_password_is_not_shown(small: SmallJob, postgres_url: str) -> None:
    shop = small.party("shop")
    del shop["table"]
    address = postgres_url.replace("@127", "hunter2@127")
    shop |= {"database": address, "sql": "select 1"}
    with pytest.raises(DataError, match="party 'shop': cannot read from postgresql://") as caught:
        load(small)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("order", [1, -1])
def test_ids_with_leading_zeros_are_text_at_every_party(tmp_path: Path, order: int) -> None:
    """The shop's own ids would pass for numbers."""
    (tmp_path / "bank.csv").write_text("id,age\n007,20\n012,30\n123,40\n")
    (tmp_path / "shop.csv").write_text("id,spent\n456,1\n123,2\n")
    pd.DataFrame({"id": ["123", "007"], "friends": [1, 2]}).to_parquet(tmp_path / "social.parquet")
    names = ["bank.csv", "shop.csv", "social.parquet"][::order]
    tables = {name: open_table(TableSource(table=tmp_path / name, id="id")) for name in names}
    aligned = align_parties(tables, "inner")
    assert [table.known.index.tolist() for table in aligned.values()] == [["123"]] * 3
    matrices = [table.encode(np.ones(1, dtype=bool), False)[1].tolist() for table in aligned.values()]
    assert matrices == [[[40.0]], [[2.0]], [[1.0]]][::order]
    # Numbers elsewhere than in CSV files are numbers.
    pd.DataFrame({"id": [123, 456], "visits": [1, 2]}).to_parquet(tmp_path / "site.parquet")
    site = open_table(TableSource(table=tmp_path / "site.parquet", id="id"))
    with pytest.raises(DataError, match=r"bank has text \(such as '007'\), site has integers \(such as 123\)"):
        align_parties({"bank": tables["bank.csv"], "site": site}, "inner")
    found = align_parties({"shop": tables["shop.csv"], "site": site}, "equal")
    assert found["shop"].known.index.tolist() == found["site"].known.index.tolist() == [456, 123]
