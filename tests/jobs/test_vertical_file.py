"""Job files: what is accepted, and what each mistake is answered with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.tables import SmallJob

from evenhand.constraints.kinds import EqualizedOdds, NeymanPearson
from evenhand.data.tables.addresses import Address
from evenhand.errors import JobError
from evenhand.jobs.folder import read_job, with_epsilon
from evenhand.jobs.vertical.file import VerticalJobFile, parse_vertical, table_source
from evenhand.protocol.job import Job
from evenhand.runtime.inprocess import VirtualClock
from evenhand.solvers.registry import resolve
from evenhand.vertical.subspace.party import Subspace

FULL = """
[job]
split = "vertical"
solver = "fairvfl"
constraint = [
    { kind = "equalized-odds", epsilon = 0.02, measure = "error", temperature = 0.1 },
    { kind = "neyman-pearson", limit = 0.3, label = -1 },
]
model = { kind = "mlp", hidden = [8, 4] }
alpha = 1
max_rounds = 30
tol = 1e-3
seed = 7
options = { step = 0.05, local_steps = 3, pace = "until-server-speaks" }
scale = false
test_fraction = 0.2
ids = "inner"

[clock]
speed = 1e8
latency = 0.01
bandwidth = 1e6
speeds = { shop = 1e6 }
latencies = { server = 0.0 }

[[party]]
name = "bank"
role = "active"
table = "bank.parquet"
id = "customer"
columns = ["age", "sex"]
label = { column = "defaulted", positive = true }
sensitive = ["sex"]

[[party]]
name = "shop"
role = "active"
database = "postgresql://reader:${SHOP_PASSWORD}@db/shop"
sql = "select * from customers"
id = "customer"
"""


def test_a_full_file_becomes_a_job_and_a_clock(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(FULL)
    content = read_job(path)
    assert isinstance(content, VerticalJobFile)
    assert content.to_job() == Job(
        solver="fairvfl",
        constraints=(EqualizedOdds(0.02, "error", 0.1), NeymanPearson(0.3, -1)),
        model="mlp",
        alpha=1.0,
        max_rounds=30,
        tol=1e-3,
        seed=7,
        hidden=(8, 4),
        options={"step": 0.05, "local_steps": 3, "pace": "until-server-speaks"},
    )
    assert content.to_clock() == VirtualClock(1e8, 0.01, 1e6, {"shop": 1e6}, {"server": 0.0})
    assert content.label_party.name == "bank"
    assert (content.job.scale, content.job.test_fraction, content.job.ids) == (False, 0.2, "inner")


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("linear", {"model": "linear"}),
        ({"kind": "linear", "fit_intercept": False}, {"model": "linear", "fit_intercept": False}),
        ({"kind": "mlp", "hidden": [3]}, {"model": "mlp", "hidden": (3,)}),
        ({"kind": "trees"}, {"model": "trees"}),
    ],
    ids=str,
)
def test_a_model_is_a_name_or_a_table_with_settings(model: Any, fields: dict[str, Any]) -> None:
    party = {"name": "bank", "role": "active", "table": "b.csv", "id": "c", "label": {"column": "y"}}
    content = parse_vertical({"job": {"model": model}, "party": [party]}, "job.toml")
    assert content.to_job() == resolve(Job(**fields), None)
    assert content.model_dump()["job"]["model"] == model


def test_a_short_file_takes_the_defaults() -> None:
    party = {"name": "bank", "role": "active", "table": "b.csv", "id": "c", "label": {"column": "y"}}
    content = parse_vertical({"party": [party]}, "job.toml")
    assert content.to_job() == resolve(Job(), None)
    assert content.to_clock() is None


def test_a_file_is_resolved_once_and_a_changed_copy_anew() -> None:
    party = {"name": "bank", "role": "active", "table": "b.csv", "id": "c", "label": {"column": "y"}}
    section = {"constraint": {"kind": "equalized-odds", "epsilon": 0.1}}
    content = parse_vertical({"job": section, "party": [{**party, "sensitive": ["sex"]}]}, "job.toml")
    job = content.to_job()
    assert content.to_job() is job
    assert job.settings(Subspace) is job.settings(Subspace)
    assert with_epsilon(content, 0.3).to_job().constraints == (EqualizedOdds(0.3),)
    assert content.to_job().constraints == (EqualizedOdds(0.1),)
    assert content.model_dump(exclude_unset=True) == with_epsilon(content, 0.1).model_dump(exclude_unset=True)


def test_one_constraint_needs_no_list(tmp_path: Path) -> None:
    small = SmallJob(tmp_path)
    alone = small.read().to_job()
    small.content["job"]["constraint"] = [small.content["job"]["constraint"]]
    assert small.read().to_job() == alone


def test_paths_start_at_the_job_file_and_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    small = SmallJob(tmp_path)
    shop, social = small.party("shop"), small.party("social")
    del shop["table"]
    shop |= {"database": "sqlite:///db/shop.db", "sql": "select 1"}
    social["table"] = "~/social.csv"
    bank, shop, social = (table_source(party, Path("/jobs")) for party in small.read().party)
    assert bank.table == Path("/jobs/bank.csv")
    assert str(shop.database) == "sqlite:///db/shop.db", "shown as it was written"
    assert Address.of(shop.database).fill_in().reveal() == "sqlite:////jobs/db/shop.db"
    assert social.table == Path("/home/me/social.csv")


Change = Callable[[SmallJob], Any]


def put(*path: Any) -> Change:
    """A change that sets the value at a place: the keys that lead there, then the value."""
    *steps, key, value = path

    def change(small: SmallJob) -> None:
        place: Any = small.content
        for step in steps:
            place = place.setdefault(step, {}) if isinstance(place, dict) else place[step]
        place[key] = value

    return change


def constraint(**keys: Any) -> Change:
    return put("job", "constraint", keys)


def drop(name: str, key: str) -> Change:
    return lambda small: small.party(name).pop(key)


# What is wrong, the change that makes it so, and the words the message must hold beside the file's name.
MISTAKES: dict[str, tuple[Change, list[str]]] = {
    # unknown keys, at each level
    "unknown section": (put("jbo", {}), ["unknown key jbo", "did you mean 'job'?"]),
    "unknown job key": (put("job", "solvr", "x"), ["unknown key job.solvr", "did you mean 'solver'?"]),
    "unknown clock key": (put("clock", "latancy", 1), ["unknown key clock.latancy", "did you mean 'latency'?"]),
    "unknown party key": (put("party", 1, "tabel", "x"), ["unknown key party.1.tabel", "did you mean 'table'?"]),
    "unknown label key": (
        put("party", 0, "label", "positiv", "x"),
        ["unknown key party.0.label.positiv", "did you mean 'positive'?"],
    ),
    "unlike any key": (put("job", "zzz", 1), ["unknown key job.zzz", "choose one of split, solver"]),
    "unknown constraint key": (
        constraint(kind="equal-opportunity", epsilom=0.1),
        ["job.constraint: equal-opportunity has no option 'epsilom'", "did you mean 'epsilon'?"],
    ),
    "unknown option": (
        put("job", "options", "local_step", 3),
        ["job.options: solver 'fairvfl' has no option 'local_step'", "did you mean 'local_steps'?"],
    ),
    # wrong types
    "text for a number": (put("job", "max_rounds", "many"), ["key job.max_rounds", "valid integer", "'many'"]),
    "number for a whole number": (put("job", "max_rounds", 2.5), ["key job.max_rounds", "valid integer", "2.5"]),
    "number for a flag": (put("job", "scale", 1), ["key job.scale", "valid boolean"]),
    "text for a list": (put("party", 0, "sensitive", "sex"), ["key party.0.sensitive", "valid list"]),
    "text for a table": (put("job", "constraint", "fair"), ["key job.constraint", "table", "'fair'"]),
    "list of text": (put("job", "constraint", ["fair"]), ["key job.constraint", "table"]),
    "list for a label": (put("party", 0, "label", "positive", [1]), ["key party.0.label.positive", "text, a number"]),
    "speed of a party": (put("clock", "speeds", "shop", "x"), ["key clock.speeds.shop", "valid number"]),
    "text for epsilon": (constraint(kind="equal-opportunity", epsilon="x"), ["job.constraint: epsilon is", "'x'"]),
    "flag for epsilon": (constraint(kind="equal-opportunity", epsilon=True), ["job.constraint: epsilon is"]),
    "measure": (constraint(kind="equal-opportunity", measure="odds"), ["job.constraint: measure is", "'odds'"]),
    "text option": (put("job", "options", "local_steps", "3"), ["job.options: local_steps is", "integer", "'3'"]),
    "option of two kinds": (put("job", "options", "step", "fast"), ["job.options: step is", "number or 'auto'"]),
    # wrong values
    "negative epsilon": (constraint(kind="equal-opportunity", epsilon=-0.1), ["job.constraint: epsilon is -0.1"]),
    "epsilon no number": (constraint(kind="loss-parity", epsilon=float("nan")), ["job.constraint: epsilon is nan"]),
    "unknown kind": (constraint(kind="fair"), ["job.constraint.kind is 'fair'", "equal-opportunity"]),
    "no kind": (constraint(epsilon=0.1), ["job.constraint.kind is None"]),
    "list as kind": (constraint(kind=["loss-parity"]), ["job.constraint.kind is ['loss-parity']"]),
    "unknown solver": (put("job", "solver", "sgd"), ["solver is 'sgd'", "'fairvfl'"]),
    "constraint ignored": (put("job", "solver", "fedbcd"), ["solver 'fedbcd' does not support constraints"]),
    "option out of range": (put("job", "options", "local_steps", 0), ["job.options: local_steps is 0"]),
    "unknown model": (put("job", "model", "tree"), ["key job.model", "linear", "'tree'"]),
    "another split": (put("job", "split", "diagonal"), ["key job.split", "'vertical'"]),
    "horizontal": (put("job", "split", "horizontal"), ["unknown key party", "at least one client"]),
    "ids": (put("job", "ids", "outer"), ["key job.ids", "'inner'"]),
    "everything held out": (put("job", "test_fraction", 1.0), ["key job.test_fraction", "less than 1"]),
    "less than nothing held out": (put("job", "test_fraction", -0.1), ["key job.test_fraction"]),
    "negative seed": (put("job", "seed", -1), ["key job.seed", "greater than or equal to 0"]),
    "no rounds": (put("job", "max_rounds", 0), ["max_rounds is 0"]),
    "negative alpha": (put("job", "alpha", -1.0), ["alpha is -1.0"]),
    "negative tol": (put("job", "tol", -1.0), ["tol is -1.0"]),
    "empty layer": (put("job", "model", {"kind": "mlp", "hidden": [4, 0]}), ["hidden is"]),
    "no speed": (put("clock", "speed", 0.0), ["clock", "speed is 0.0"]),
    "negative latency": (put("clock", "latency", -1.0), ["clock", "latency"]),
    "negative speed of a party": (put("clock", "speeds", "shop", -1.0), ["clock", "shop is -1.0"]),
    "speed of nobody": (put("clock", "speeds", "shpo", 1.0), ["clock.speeds names 'shpo'", "did you mean 'shop'?"]),
    # parties
    "no party": (lambda small: small.content.pop("party"), ["key party", "[[party]]"]),
    "empty list of parties": (put("party", []), ["key party", "[[party]]"]),
    "one party as a table": (put("party", {"name": "bank"}), ["key party", "[[party]]"]),
    "no id": (drop("shop", "id"), ["key party.1.id is missing"]),
    "no name": (drop("shop", "name"), ["key party.1.name is missing"]),
    "name that is a path": (put("party", 1, "name", "../shop"), ["key party.1.name", "'../shop'"]),
    "same name": (put("party", 2, "name", "shop"), ["two parties are called 'shop'"]),
    "name of the server": (put("party", 1, "name", "server"), ["key party.1.name: a party's name is 'server'"]),
    "no label": (drop("bank", "label"), ["0 parties have a label"]),
    "two labels": (put("party", 1, "label", {"column": "spent"}), ["2 parties have a label"]),
    "passive label holder": (put("party", 0, "role", "passive"), ["party 'bank' holds the label", '"active"']),
    "unknown role": (put("party", 0, "role", "boss"), ["key party.0.role", "'active'"]),
    "sensitive elsewhere": (put("party", 1, "sensitive", ["spent"]), ["party 'shop' names sensitive columns"]),
    "neither table nor database": (drop("shop", "table"), ["party 'shop'", "give one of the two"]),
    "table and database": (put("party", 1, "database", "sqlite:///x.db"), ["party 'shop'", "give one of the two"]),
    "label as feature": (put("party", 0, "columns", ["age", "outcome"]), ["party 'bank'", "columns lists the label"]),
    "label as group": (put("party", 0, "sensitive", ["outcome"]), ["party 'bank'", "sensitive lists the label"]),
    "id as feature": (put("party", 0, "columns", ["customer"]), ["party 'bank'", "columns lists the id 'customer'"]),
    "id as label": (put("party", 0, "label", "column", "customer"), ["party 'bank'", "label lists the id"]),
    "no columns": (put("party", 1, "columns", []), ["party 'shop'", "columns is empty"]),
    "column twice": (put("party", 1, "columns", ["spent", "spent"]), ["party 'shop'", "lists 'spent' twice"]),
    "group twice": (put("party", 0, "sensitive", ["sex", "sex"]), ["party 'bank'", "sensitive lists 'sex' twice"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_named_with_file_and_key(mistake: str, tmp_path: Path) -> None:
    change, words = MISTAKES[mistake]
    small = SmallJob(tmp_path)
    change(small)
    path = small.write()
    with pytest.raises(JobError) as caught:
        read_job(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert all(word in message for word in words), message


def test_a_database_needs_its_query(tmp_path: Path) -> None:
    small = SmallJob(tmp_path)
    del small.party("shop")["table"]
    small.party("shop")["database"] = "postgresql://reader:hunter2@db/shop"
    with pytest.raises(JobError, match=r"job\.toml: party 'shop': .*needs sql") as caught:
        small.read()
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        put("party", 1, "table", "postgresql://reader:hunter2@db/shop"),
        put("party", 1, "name", "postgresql://reader:hunter2@db/shop"),
        put("party", 1, "database", ["postgresql://reader:hunter2@db/shop"]),
        put("party", {"name": "shop", "database": "postgresql://reader:hunter2@db/shop"}),
        put("party", 1, "role", "postgresql://reader:hunter2@db/shop"),
    ],
)
def test_no_message_shows_a_password_put_in_the_wrong_place(change: Change, tmp_path: Path) -> None:
    small = SmallJob(tmp_path)
    change(small)
    with pytest.raises(JobError) as caught:
        small.read()
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None or "hunter2" not in str(caught.value.__cause__)


def test_several_mistakes_are_told_at_once(tmp_path: Path) -> None:
    small = SmallJob(tmp_path)
    put("job", "solvr", "x")(small)
    put("job", "tol", "small")(small)
    with pytest.raises(JobError) as caught:
        small.read()
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("content", [b"[job\n", b"job = \xff\n", b"a = 1\na = 2\n"])
def test_what_is_not_toml_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(content)
    with pytest.raises(JobError, match=r"job\.toml: not valid TOML"):
        read_job(path)


@pytest.mark.parametrize("path", ["missing.toml", "."])
def test_a_missing_file_is_named(path: str, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="there is no job file"):
        read_job(tmp_path / path)
