"""Wrong inputs about tables as they are: `check` names section, key or column and what to do, and writes nothing."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w

pytestmark = pytest.mark.filterwarnings("ignore::evenhand.errors.ColumnWarning")
Command = Callable[..., "subprocess.CompletedProcess[str]"]
Place = tuple[str | int, ...]
ROWS = 120
GONE = object()


def tables() -> dict[str, pd.DataFrame]:
    random = np.random.default_rng(0)
    ids = [f"{number:04d}" for number in range(ROWS)]
    bank = pd.DataFrame(
        {
            "customer": ids,
            "age": random.integers(18, 80, ROWS),
            "region": random.choice(["north", "south"], ROWS),
            "income": random.normal(size=ROWS).round(3),
            "opened": pd.date_range("2020-01-01", periods=ROWS).strftime("%Y-%m-%d"),
            "arrears": random.choice(["yes", "no"], ROWS),
        }
    )
    bank.loc[:3, "region"] = "isles"
    cards = pd.DataFrame({"customer_no": ids, "spent": random.normal(size=ROWS), "cards": random.integers(0, 9, ROWS)})
    return {"bank": bank, "cards": cards, "ghent": bank.iloc[:60], "lyon": bank.iloc[60:]}


GROUPS: dict[str, Any] = {
    "sensitive": ["age", "region"],
    "bands": {"age": [30, 60]},
    "merge": {"region": {"south": ["isles"]}},
    "incomplete": "drop",
    "label": {"column": "arrears", "positive": "yes"},
}
VERTICAL: dict[str, Any] = {
    "job": {"ids": "inner"},
    "party": [
        {"name": "bank", "role": "active", "table": "bank.csv", "id": "customer", **GROUPS},
        {"name": "cards", "table": "cards.csv", "id": "customer_no", "duplicates": "sum"},
    ],
}
HORIZONTAL: dict[str, Any] = {
    "job": {"split": "horizontal"},
    "data": {"id": "customer", "columns": ["income", "opened"], **GROUPS},
    "client": [{"name": "ghent", "table": "ghent.csv"}, {"name": "lyon", "table": "lyon.csv"}],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tables")
    for name, table in tables().items():
        table.to_csv(place / f"{name}.csv", index=False)
    return place


def refused(here: Command, folder: Path, content: Any, parts: tuple[str, ...]) -> None:
    job = folder / "job.toml"
    job.write_text(tomli_w.dumps(content), encoding="utf-8")
    before = sorted(path.name for path in folder.iterdir())
    done = here("check", job)
    said = " ".join(done.stderr.split())
    assert (done.returncode, [one for one in parts if one not in said]) == (2, []), said
    assert "Traceback" not in said
    assert "literal[" not in said, "words of the parser, not of the job file"
    assert len(said) < 1500
    assert sorted(path.name for path in folder.iterdir()) == before


def put(content: Any, path: Place, value: Any) -> Any:
    inside = found = copy.deepcopy(content)
    for part in path[:-1]:
        inside = inside[part] if isinstance(inside, list) else inside.setdefault(part, {})
    if value is GONE:
        del inside[path[-1]]
    else:
        inside[path[-1]] = value
    return found


B, C = ("party", 0), ("party", 1)
BANDS = "for instance bands = { age = [30, 60] }"
MERGE = 'for instance merge = { region = "under 50" }'
COMMAS = "The whole line is one column: name the sign between columns with delimiter"
RISING = "give rising numbers, such as [30, 60]"
UNDER = 'write it as "under 50", or name the groups'
NOT_SENSITIVE = "which sensitive does not list; add it there, or remove it"
OF_PARTIES: list[tuple[Place, Any, tuple[str, ...]]] = [
    ((*B, "bands"), [30, 60], ("key party.0.bands: Input should be a valid table", BANDS)),
    ((*B, "bands"), {"age": []}, ("party 'bank': bands.age is []", RISING)),
    ((*B, "bands"), {"age": 30}, ("key party.0.bands.age: Input should be a valid list (it is 30)", BANDS)),
    ((*B, "bands"), {"age": ["thirty"]}, ("key party.0.bands.age.0", "(it is 'thirty')", BANDS)),
    ((*B, "bands"), {"age": [30, 30]}, ("bands.age is [30.0, 30.0]", RISING)),
    ((*B, "bands"), {"age": [60, 30]}, ("bands.age is [60.0, 30.0]", RISING)),
    ((*B, "bands"), {"age": [float("nan")]}, ("bands.age is [nan]", RISING)),
    ((*B, "bands"), {"age": [float("inf")]}, ("bands.age is [inf]", RISING)),
    ((*B, "bands"), {"age": [True]}, ("key party.0.bands.age.0", "(it is True)")),
    ((*B, "bands"), {"agee": [30]}, ("party 'bank': bands names 'agee'", NOT_SENSITIVE)),
    ((*B, "bands"), {"income": [0]}, ("party 'bank': bands names 'income'", NOT_SENSITIVE)),
    (
        (*B, "bands"),
        {"region": [1]},
        ("bands.region: the column holds 'isles', which is no number; merge groups of text",),
    ),
    ((*B, "bands"), {"age": [200]}, ("'age' has one group only ('under 200')", "change its groups")),
    ((*B, "merge"), "under 50", ("key party.0.merge: Input should be a valid table (it is 'under 50')", MERGE)),
    ((*B, "merge"), {"region": "under50"}, ("merge.region is 'under50'", UNDER)),
    ((*B, "merge"), {"region": "under 0"}, ("merge.region is 'under 0'", UNDER)),
    ((*B, "merge"), {"region": "under -5"}, ("merge.region is 'under -5'", UNDER)),
    ((*B, "merge"), {"region": 50}, ("party.0.merge.region: Input should be a valid string or a valid table", MERGE)),
    ((*B, "merge"), {"region": ["isles"]}, ("party.0.merge.region: Input should be a valid string or a valid", MERGE)),
    ((*B, "merge"), {"regoin": "under 50"}, ("party 'bank': merge names 'regoin'", NOT_SENSITIVE)),
    ((*B, "merge"), {"income": "under 50"}, ("party 'bank': merge names 'income'", NOT_SENSITIVE)),
    ((*B, "merge"), {"region": {"far": ["west"]}}, ("merge.region names 'west'; the groups are 'isles', 'north'",)),
    ((*B, "merge"), {"region": {"far": "isles"}}, ("party.0.merge.region.far: Input should be a valid list",)),
    (
        (*B, "merge"),
        {"region": {"far": [1]}},
        ("key party.0.merge.region.far.0", "(it is 1)"),
    ),
    ((*B, "merge"), {"region": {"far": []}}, ("merge.region has a group without a name, or without groups",)),
    ((*B, "merge"), {"region": {"": ["isles"]}}, ("merge.region has a group without a name",)),
    ((*B, "merge"), {"region": {}}, ("merge.region has a group without a name, or without groups",)),
    ((*B, "merge"), {"region": {"a": ["isles"], "b": ["isles"]}}, ("merge.region names 'isles' twice",)),
    ((*B, "merge"), {"region": "under 9999"}, ("'region' has one group only ('other')",)),
    ((*B, "merge"), {"region": {"all": ["north", "south", "isles"]}}, ("'region' has one group only ('all')",)),
    ((*B, "incomplete"), "ignore", ("key party.0.incomplete: Input should be 'refuse' or 'drop' (it is 'ignore')",)),
    ((*B, "incomplete"), True, ("key party.0.incomplete", "(it is True)")),
    ((*C, "incomplete"), "drop", ("party 'cards': incomplete", "is for the party with the label; remove it")),
    ((*B, "duplicates"), "any", ("key party.0.duplicates: Input should be 'refuse', 'first', 'last' or 'sum'",)),
    ((*B, "duplicates"), ["first"], ("key party.0.duplicates: Input should be 'refuse'",)),
    ((*C, "duplicates"), "mean", ("key party.1.duplicates", "(it is 'mean')")),
    ((*B, "types"), {"opened": "dates"}, ("key party.0.types.opened: Input should be 'number', 'category', 'date'",)),
    ((*B, "types"), {"region": "category"}, ("types names 'region', which is not a feature; remove it",)),
    ((*B, "types"), {"income": "date"}, ("bank.csv: column 'income' holds number values, no dates",)),
    ((*B, "types"), {"incmoe": "number"}, ("types names 'incmoe', which is not a column; the table has 'age'",)),
    ((*B, "types"), "date", ("key party.0.types: Input should be a valid table (it is 'date'); for instance types =",)),
    ((*B, "types"), {"customer": "category"}, ("types names 'customer', which is not a feature; remove it",)),
    ((*B, "types"), {"arrears": "leave out"}, ("types names 'arrears', which is not a feature; remove it",)),
    ((*B, "types"), {"income": "leave out", "opened": "leave out"}, ("no feature columns are left beside id, label",)),
    ((*B, "missing"), {"incmoe": "refuse"}, ("missing names 'incmoe', which is not a column",)),
    ((*B, "missing"), {"income": "drop"}, ("key party.0.missing.income: Input should be 'indicator' or 'refuse'",)),
    ((*B, "missing"), 3, ("key party.0.missing: Input should be 'indicator' or 'refuse' or a valid table (it is 3)",)),
    ((*B, "numbers"), {"incmoe": "bins"}, ("numbers names 'incmoe', which is not a column",)),
    ((*B, "numbers"), {"income": "curve"}, ("party.0.numbers.income: Input should be 'auto'", "(it is 'curve')")),
    ((*B, "max_levels"), 0, ("key party.0.max_levels: Input should be greater than or equal to 1",)),
    ((*B, "max_levels"), 2.5, ("key party.0.max_levels: Input should be a valid integer (it is 2.5)",)),
    ((*B, "max_levels"), "many", ("key party.0.max_levels", "(it is 'many')")),
    ((*B, "decimal"), "comma", ("key party.0.decimal: Input should be '.' or ',' (it is 'comma')",)),
    ((*B, "delimiter"), "", ("party 'bank': delimiter is ''; give one character",)),
    ((*B, "delimiter"), "ab", ("party 'bank': delimiter is 'ab'; give one character",)),
    ((*B, "delimiter"), "|", ("party 'bank': ", "no column 'customer' (there is 'customer,age,region", COMMAS)),
    ((*B, "encoding"), "utf-16", ("bank.csv is not in the encoding 'utf-16'", "name another with encoding")),
    ((*B, "sensitive"), ["arrears"], ("party 'bank': sensitive lists the label 'arrears'",)),
    ((*B, "sensitive"), ["customer"], ("party 'bank': sensitive lists the id 'customer'",)),
    ((*B, "sensitive"), ["age", "age", "region"], ("party 'bank': sensitive lists 'age' twice",)),
    ((*B, "sensitive"), ["Age", "region"], ("bands names 'age', which sensitive does not list",)),
    ((*C, "sensitive"), ["cards"], ("party 'cards' names sensitive columns; only the party with the label may",)),
    ((*B, "label", "positive"), "Yes", ("positive is 'Yes', the values are 'no' and 'yes'",)),
    ((*B, "label", "positive"), True, ("positive is True, the values are 'no' and 'yes'",)),
    ((*B, "label", "column"), "Arrears", ("label column 'Arrears' is not in the table, which has 'age'",)),
    ((*B, "label", "column"), "region", ("sensitive lists the label 'region'",)),
    ((*B, "label"), "arrears", ("key party.0.label: Input should be a valid table", "label = { column = ")),
    ((*B, "id"), "Customer", ("has no column 'Customer' (there is 'customer')",)),
    ((*B, "id"), ["customer"], ("key party.0.id: Input should be a valid string",)),
    ((*C, "id"), "customer", ("party 'cards': ", "has no column 'customer' (there is 'customer_no')")),
    ((*C, "id"), "spent", ("no id is common to bank, cards",)),
    ((*B, "weight"), "region", ("sensitive lists the weight 'region'",)),
    ((*B, "weight"), "none", ("weight column 'none' is not in the table",)),
    ((*B, "columns"), ["income", "incmoe"], ("has no column 'incmoe' (there is 'income')",)),
    ((*B, "columns"), ["age", "arrears"], ("columns lists the label 'arrears'; a model must not use it",)),
    ((*C, "table"), ".", ("party 'cards': ", "is not a file; name a CSV, Parquet")),
    ((*C, "table"), "*.csv", ("looks like a pattern for several files; name one file",)),
    (("bands",), {"age": [30]}, ("unknown key bands; it belongs under [[party]]",)),
    (("job", "duplicates"), "first", ("unknown key job.duplicates; it belongs under [[party]]",)),
]
OF_CLIENTS: list[tuple[Place, Any, tuple[str, ...]]] = [
    (("data", "merge"), {"region": "under 50"}, ("key data.merge.region is 'under 50'", "name the groups: merge =")),
    (("data", "merge"), {"regoin": {"a": ["b"]}}, ("[data]: merge names 'regoin'", NOT_SENSITIVE)),
    (("data", "bands"), {"agee": [30]}, ("[data]: bands names 'agee'", NOT_SENSITIVE)),
    (("data", "bands"), {"age": [60, 30]}, ("[data]: bands.age is [60.0, 30.0]", RISING)),
    (("data", "bands"), {"region": [1]}, ("client 'ghent': bands.region: the column holds 'isles'",)),
    (("data", "incomplete"), "skip", ("key data.incomplete: Input should be 'refuse' or 'drop'",)),
    (("data", "duplicates"), "any", ("key data.duplicates: Input should be 'refuse', 'first', 'last' or 'sum'",)),
    (("data", "types"), {"incmoe": "number"}, ("types names 'incmoe', but columns does not list it",)),
    (("data", "missing"), {"incmoe": "refuse"}, ("data.missing names 'incmoe', which is not a column",)),
    (("data", "numbers"), {"incmoe": "bins"}, ("data.numbers names 'incmoe', which is not a column",)),
    (("data", "groups"), {"age": ["under 30", "old"], "region": ["north", "south"]}, ("not among the agreed groups",)),
    (("client", 0, "bands"), {"age": [30]}, ("unknown key client.0.bands; it belongs under [data]",)),
    (("client", 0, "duplicates"), "first", ("unknown key client.0.duplicates; it belongs under [data]",)),
    (("client", 0, "id"), "customer", ("unknown key client.0.id; it belongs under [data]",)),
    (("data", "decimal"), ",", ("unknown key data.decimal; it belongs under [[client]]",)),
    (("client", 1, "delimiter"), ";", ("client 'lyon': ", "has no column 'customer' (there is 'customer,age", COMMAS)),
]


def named(one: Any) -> str | None:
    return str(one)[:40] if isinstance(one, tuple) else None


@pytest.mark.parametrize(("path", "value", "parts"), OF_PARTIES, ids=named)
def test_keys_of_parties(path: Place, value: Any, parts: tuple[str, ...], folder: Path, here: Command) -> None:
    refused(here, folder, put(VERTICAL, path, value), parts)


@pytest.mark.parametrize(("path", "value", "parts"), OF_CLIENTS, ids=named)
def test_keys_of_clients(path: Place, value: Any, parts: tuple[str, ...], folder: Path, here: Command) -> None:
    refused(here, folder, put(HORIZONTAL, path, value), parts)


def test_the_jobs_that_are_changed_have_nothing_wrong(folder: Path, here: Command) -> None:
    for content in (VERTICAL, HORIZONTAL):
        (folder / "job.toml").write_text(tomli_w.dumps(content), encoding="utf-8")
        assert here("check", folder / "job.toml").returncode == 0
