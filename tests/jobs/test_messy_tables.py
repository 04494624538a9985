"""Tables as banks have them: ages, rare groups, duplicate ids, missing labels, byte order marks."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from evenhand import EqualOpportunity, VerticalClassifier
from evenhand.data import Grouping, one_row_per_id
from evenhand.data.tables.readers import TableSource, read_table
from evenhand.errors import ColumnWarning, DataError, EvenhandWarning, InputError, JobError
from evenhand.jobs.horizontal.file import parse_horizontal
from evenhand.jobs.horizontal.runs import run_horizontal_job
from evenhand.jobs.new_rows import score_new_clients, score_new_parties
from evenhand.jobs.parsing import read_toml
from evenhand.jobs.vertical.file import parse_vertical
from evenhand.jobs.vertical.runs import run_vertical_job

ROWS = 600


def write_tables(folder: Path) -> None:
    """Two tables by id; the bank has ages, a region of twelve people, and rows without a label or age."""
    random = np.random.default_rng(0)
    first, second = random.normal(size=(2, ROWS))
    bank = pd.DataFrame({"first": first, "age": random.integers(18, 80, ROWS).astype(float)})
    bank["region"] = np.where(np.arange(ROWS) < 12, "isles", random.choice(["north", "south"], ROWS))
    bank["default"] = np.where(first + second + random.logistic(size=ROWS) > 0.5, "yes", "no")
    bank.loc[[100, 101], "default"] = None
    bank.loc[102, "age"] = None
    bank.rename_axis("id").to_csv(folder / "bank.csv")
    shop = pd.DataFrame({"id": [*range(ROWS), 5], "spent": [*second, 1.0], "shop": "a"})
    shop.to_csv(folder / "shop.csv", index=False)


def job_of(bank: dict[str, Any] | None = None, shop: dict[str, Any] | None = None) -> dict[str, Any]:
    label = {"column": "default", "positive": "yes"}
    holder = {"name": "bank", "role": "active", "table": "bank.csv", "id": "id", "label": label}
    groups = {
        "sensitive": ["age", "region"],
        "bands": {"age": [30, 60]},
        "merge": {"region": "under 50"},
        "incomplete": "drop",
    }
    other = {"name": "shop", "table": "shop.csv", "id": "id", "duplicates": "first"}
    return {
        "job": {"split": "vertical", "ids": "inner", "max_rounds": 3},
        "party": [holder | groups | (bank or {}), other | (shop or {})],
    }


def run(folder: Path, **changes: Any) -> Any:
    write_tables(folder)
    return run_vertical_job(parse_vertical(job_of(**changes), "job.toml"), folder, folder / "run")


def test_bands_merged_groups_duplicates_and_dropped_rows(tmp_path: Path) -> None:
    with pytest.warns(ColumnWarning, match="3 of 600 rows are dropped: 2 without default, 1 without age"):
        result = run(tmp_path).result
    groups = {(one["attribute"], one["group"]) for one in result["groups"]["train"]}
    assert groups == {
        *(("age", one) for one in ("under 30", "30 to under 60", "60 and over")),
        # Twelve people are too few for a group, so the smaller of the others is merged with them.
        *(("region", one) for one in ("north", "other")),
    }


@pytest.mark.filterwarnings("ignore::evenhand.errors.ColumnWarning")
def test_new_rows_are_grouped_as_in_training(tmp_path: Path) -> None:
    """Twelve people of the north are a group of their own, because they were one in training."""
    folder = run(tmp_path).folder
    table = pd.read_csv(tmp_path / "bank.csv")
    kept = table[(table["region"] != "south") & (table.index < 40)]
    kept.to_csv(tmp_path / "new.csv", index=False)
    found = score_new_parties(folder, tables={"bank": tmp_path / "new.csv"}, base=tmp_path)
    assert found.measured is not None
    ((_, groups),) = found.measured["groups"].items()
    assert {one["group"] for one in groups if one["attribute"] == "region"} == {"north", "other"}


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"bank": {"bands": {"first": [1]}}}, JobError, "bands names 'first', which sensitive does not list"),
        ({"bank": {"bands": {"age": [60, 30]}}}, JobError, r"bands.age is \[60.*give rising numbers"),
        ({"bank": {"merge": {"region": "below 50"}}}, JobError, 'write it as "under 50"'),
        ({"bank": {"merge": {"region": {"all": ["west"]}}}}, DataError, "merge.region names 'west'; the groups are"),
        ({"bank": {"bands": {"region": [3]}}}, DataError, "bands.region: the column holds .*which is no number"),
        ({"shop": {"incomplete": "drop"}}, JobError, "is for the party with the label"),
        ({"shop": {"duplicates": "refuse"}}, DataError, "occur more than once"),
        ({"shop": {"duplicates": "any"}}, JobError, "duplicates"),
        ({"shop": {"types": {"spend": "number"}}}, DataError, "types names 'spend', which is not a column"),
    ],
)
@pytest.mark.filterwarnings("ignore::evenhand.errors.ColumnWarning")
def test_wrong_keys_are_refused_by_name(changes: Any, error: type[Exception], said: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=said):
        run(tmp_path, **changes)


@pytest.mark.parametrize(("rule", "spent"), [("first", 5.0), ("last", 1.0), ("sum", 6.0)])
def test_rows_of_one_id(rule: Any, spent: float, tmp_path: Path) -> None:
    path = tmp_path / "shop.csv"
    path.write_text("id,spent,shop\na,5,x\nb,2,y\na,1,z\n")
    found = read_table(TableSource(path, id="id", duplicates=rule))
    assert found["spent"].to_dict() == {"a": spent, "b": 2.0}
    assert found.loc["a", "shop"] == ("z" if rule == "last" else "x")


def test_groups_that_are_named_are_merged() -> None:
    frame = pd.DataFrame({"region": ["north", "isles", None]})
    found = Grouping(merge={"region": {"far": ["isles"]}}).groups(frame)["region"]
    assert [None if pd.isna(one) else one for one in found] == ["north", "far", None]
    with pytest.raises(InputError, match="rising numbers"):
        Grouping(bands={"age": []})


def test_frames_are_brought_into_shape_as_job_files_do(tmp_path: Path) -> None:
    """The groups and rows of estimators are those of the same keys in a job file."""
    write_tables(tmp_path)
    bank = pd.read_csv(tmp_path / "bank.csv", index_col="id").dropna()
    shop = one_row_per_id(pd.read_csv(tmp_path / "shop.csv", index_col="id")[["spent"]], "first")
    rules = Grouping(bands={"age": [30, 60]}, merge={"region": "under 50"})
    model = VerticalClassifier(constraint=EqualOpportunity(0.2), max_rounds=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvenhandWarning)
        groups = rules.groups(bank[["age", "region"]])
        model.fit([bank[["first"]], shop], bank["default"], sensitive_features=groups, ids="inner")
        found = run(tmp_path).result
    assert {name: set(groups[name]) for name in groups} == {
        name: {one["group"] for one in found["groups"]["train"] if one["attribute"] == name} for name in groups
    }
    assert shop.loc[5, "spent"] != 1.0
    assert rules.groups(pd.DataFrame({"age": [20], "region": ["isles"]}), {"region": {"north"}}).iloc[0].tolist() == [
        "under 30",
        "other",
    ]
    assert Grouping(bands={"age": [30]}).groups(bank["age"])["age"].isin(["under 30", "30 and over"]).all()


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (
            lambda: Grouping(bands={"agee": [30]}).groups(pd.Series([1.0], name="age")),
            "bands names 'agee'",
        ),
        (lambda: Grouping(merge={"x": "few"}), 'write it as "under 50"'),
        (lambda: one_row_per_id(pd.DataFrame({"a": [1]}), "mean"), "duplicates is 'mean'; choose"),  # type: ignore[arg-type]
        (
            lambda: one_row_per_id(pd.DataFrame({"a": [1, 2]}, index=["k", "k"]), "refuse"),
            "occur more than once",
        ),
        (lambda: one_row_per_id(pd.DataFrame({"id": [1]}), "sum"), "the index and a column are both called 'id'"),
    ],
)
def test_wrong_rules_for_frames(what: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        what()


def test_a_job_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(b"\xef\xbb\xbf[job]\nsplit = 'vertical'\n")
    assert read_toml(path) == {"job": {"split": "vertical"}}


def test_one_table_is_no_federation() -> None:
    table = pd.DataFrame({"a": [0.0, 1.0], "b": [1.0, 0.0]})
    with pytest.raises(DataError, match=r"X is one table; give one for each party.*SplitTableClassifier"):
        VerticalClassifier().fit(table, [0, 1])


# -- clients

CLIENTS = ("ghent", "lyon")


def horizontal_job(**data: Any) -> dict[str, Any]:
    groups = {
        "sensitive": ["age", "region"],
        "bands": {"age": [30, 60]},
        "merge": {"region": {"south and isles": ["south", "isles"]}},
        "incomplete": "drop",
        "duplicates": "first",
        "columns": ["first", "second"],
    }
    return {
        "job": {"split": "horizontal", "max_rounds": 3},
        "data": {"label": {"column": "default", "positive": "yes"}, "id": "id", **groups, **data},
        "client": [{"name": name, "table": f"{name}.csv"} for name in CLIENTS],
    }


def run_clients(folder: Path, **data: Any) -> Any:
    """Two clients; only the first has people of the isles, a missing label and a duplicate id."""
    write_tables(folder)
    bank = pd.read_csv(folder / "bank.csv").assign(second=pd.read_csv(folder / "shop.csv")["spent"].iloc[:ROWS])
    parts = bank.iloc[: ROWS // 2], bank.iloc[ROWS // 2 :]
    pd.concat([parts[0], parts[0].iloc[[7]].assign(first=1e6)]).to_csv(folder / "ghent.csv", index=False)
    parts[1].to_csv(folder / "lyon.csv", index=False)
    return run_horizontal_job(parse_horizontal(horizontal_job(**data), "job.toml"), folder, folder / "run")


def test_clients_have_bands_merged_groups_duplicates_and_dropped_rows(tmp_path: Path) -> None:
    with pytest.warns(ColumnWarning, match=r"client 'ghent': 3 of 300 rows are dropped: 2 without default, 1 without"):
        found = run_clients(tmp_path)
    groups = {(one["attribute"], one["group"]) for one in found.result["groups"]["train"]}
    assert groups == {
        *(("age", one) for one in ("under 30", "30 to under 60", "60 and over")),
        *(("region", one) for one in ("north", "south and isles")),
    }
    scored = score_new_clients(found.folder, tables={"new": tmp_path / "ghent.csv"}, base=tmp_path)
    assert len(scored.scores) == 300
    assert scored.measured is not None
    assert {one["group"] for one in scored.measured["groups"]["scored"]} == {group for _, group in groups}


@pytest.mark.parametrize(
    ("data", "error", "said"),
    [
        ({"merge": {"region": "under 50"}}, JobError, "key data.merge.region is 'under 50'.*name the groups: merge ="),
        ({"merge": {"first": {"a": ["b"]}}}, JobError, r"\[data\]: merge names 'first', which sensitive does not list"),
        ({"bands": {"age": [60, 30]}}, JobError, r"\[data\]: bands.age is \[60.*give rising numbers"),
        ({"bands": {"region": [1]}}, DataError, "client 'ghent': bands.region: the column holds 'isles'"),
        ({"incomplete": "refuse"}, DataError, "client 'ghent': label column 'default' has 2 missing values"),
        ({"duplicates": "refuse"}, DataError, "client 'ghent': .*1 values of 'id' occur more than once"),
        ({"id": None}, JobError, "key data.duplicates is 'first', but data.id names no column"),
        ({"types": {"frist": "number"}}, JobError, "types names 'frist', but columns does not list it"),
        ({"numbers": {"frist": "standard"}}, DataError, "data.numbers names 'frist', which is not a column"),
    ],
)
@pytest.mark.filterwarnings("ignore::evenhand.errors.ColumnWarning")
def test_wrong_keys_of_clients_are_refused_by_name(
    data: Any, error: type[Exception], said: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=said):
        run_clients(tmp_path, **data)
