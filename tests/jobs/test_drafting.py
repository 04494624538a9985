"""Drafts of job files: what is guessed, what a person gave, and what is asked in a terminal."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from evenhand.data.examples import example_files
from evenhand.errors import ColumnWarning, EvenhandWarning, InputError
from evenhand.jobs.checking import check_job_file
from evenhand.jobs.drafted_text import draft_text
from evenhand.jobs.drafting import DraftTable, complete_draft, draft_job
from evenhand.jobs.folder import read_job
from evenhand.jobs.interview import interview
from evenhand.jobs.vertical.file import parse_vertical

GIVEN: dict[str, Any] = {"split": None, "id": [], "label": None, "positive": None, "sensitive": None}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("arrears")
    for name, content in example_files("arrears").items():
        # Enough for every group, and quick to read again and again.
        lines = content.splitlines(keepends=True)
        (place / name).write_bytes(b"".join(lines[: 1 + len(lines) // 4]))
    return place


@pytest.fixture(scope="module")
def tables(folder: Path) -> list[DraftTable]:
    return [DraftTable.look(folder / f"{name}.csv") for name in ("bank", "cards", "bureau")]


def written(draft: Any, folder: Path) -> tuple[str, Any]:
    text, path = draft_text(draft, folder), folder / "draft.toml"
    path.write_text(text, encoding="utf-8")
    return text, read_job(path)


def test_a_draft_of_messy_tables_states_what_they_need(tables: list[DraftTable], folder: Path) -> None:
    text, job = written(complete_draft(draft_job(tables, sensitive=["age", "region"])), folder)
    bank, cards, bureau = job.party
    assert (bank.id, cards.id, bureau.id) == ("customer", "customer_no", "customer")
    assert bank.bands == {"age": [30, 60]}
    assert bank.merge == {"region": "under 50"}
    assert (bank.incomplete, bank.decimal) == ("drop", ",")
    assert bank.types == {"opened": "date", "note": "leave out"}
    assert (cards.duplicates, cards.types) == ("sum", {"owed": "number"})
    assert (job.job.threshold, job.job.costs.missed, job.job.ids) == ("cost", 13, "inner")
    (line,) = [one for one in text.splitlines() if one.startswith("sensitive")]
    assert "(guessed)" not in line
    assert all("(guessed)" in one for one in text.splitlines() if one.startswith(("id =", "bands", "types", "label")))


def test_infinite_numbers_are_no_label(tmp_path: Path) -> None:
    """The bound is a share of their mean, and TOML has another word for infinity."""
    path = tmp_path / "bank.csv"
    rows = {"id": range(100, 140), "age": range(40), "income": [*range(39), float("inf")]}
    pd.DataFrame(rows).to_csv(path, index=False)
    with pytest.raises(InputError, match="label column 'income' has infinite values"):
        draft_job([DraftTable.look(path)], label="income", id=["id"])


def test_a_label_of_more_classes_or_numbers_is_drafted_and_checked(tables: list[DraftTable], folder: Path) -> None:
    for label, kind, asked in (
        ("region", "demographic-parity", ["east", "isles", "north", "south", "west"]),
        ("income", "mean-prediction-parity", None),
    ):
        draft = complete_draft(draft_job(tables, label=label, sensitive=["age"]))
        _, job = written(draft, folder)
        assert job.party[0].label.classes == asked
        assert job.party[0].label.positive is None
        assert [one.kind for one in job.to_job().constraints] == [kind]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EvenhandWarning)
            # Few of the twelve people of the isles are in these tables, and perhaps none in the training rows.
            assert all("label 'isles'" in one for one in check_job_file(job, folder).problems)
        # Nobody is asked which of several classes is the positive one.
        person = Person({})
        interview(tables, {**GIVEN, "id": ["customer", "customer_no"], "label": label}, person.ask, person.told.append)
        assert not [one for one in person.asked if "positive" in one[0]]
    assert job.job.loss == "squared"
    # Five hundredths of the mean, to one digit.
    assert job.to_job().constraints[0].epsilon == 100
    loans = draft_job(tables, label="loans").loss
    assert loans is not None
    assert loans[0] == "poisson"


@pytest.mark.parametrize(
    ("given", "ids"),
    [
        (["customer", "customer_no"], ["customer", "customer_no", "customer"]),
        (["cards=customer_no"], ["customer", "customer_no", "customer"]),
        (["bank=customer", "bureau=customer"], ["customer", "customer_no", "customer"]),
    ],
)
def test_ids_are_given_for_each_table(given: list[str], ids: list[str], tables: list[DraftTable]) -> None:
    draft = draft_job(tables, id=given)
    assert list(draft.ids.values()) == ids
    assert "id" in draft.given


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"id": ["customer", "bank=age"]}, "--id names two columns of bank, customer and age"),
        ({"id": ["bank=nothing"]}, "--id bank=nothing: bank has no column 'nothing'; it has 'customer'"),
        ({"id": ["shop=customer"]}, "--id shop=customer: no table has such a column; write TABLE=COLUMN"),
        ({"id": ["bank=age", "customer_no", "bureau=customer"]}, "no id is in all tables"),
        ({"sensitive": ["arrears"]}, "--sensitive arrears: this column is the label"),
        ({"sensitive": ["customer"]}, "--sensitive customer: this column is the id"),
        ({"positive": "maybe"}, "--positive maybe: the values of arrears are 'no', 'yes'"),
        ({"label": "nothing"}, "--label nothing: no table has such a column"),
        ({"label": "note"}, "but needs exactly two"),
        ({"label": "region", "positive": "north"}, "'region' has 5 different values"),
    ],
)
def test_what_cannot_be_meant_names_the_option(given: Any, said: str, tables: list[DraftTable]) -> None:
    with pytest.raises(InputError) as caught:
        draft_job(tables, **given)
    assert said in str(caught.value)


def test_ids_that_are_written_differently_are_said(folder: Path, tmp_path: Path) -> None:
    """A spreadsheet has dropped the leading zeros of one table."""
    bureau = pd.read_csv(folder / "bureau.csv", dtype={"customer": int})
    bureau.to_csv(tmp_path / "bureau.csv", index=False)
    found = [DraftTable.look(folder / "bank.csv"), DraftTable.look(tmp_path / "bureau.csv")]
    with pytest.raises(InputError, match=r"no id is in all tables \(bank: '0030754'.*leading zeros"):
        draft_job(found, id=["customer"])


def test_check_prints_the_lines_that_a_job_file_lacks(folder: Path) -> None:
    """They are those of a draft, and with them nothing more is proposed."""
    content = {
        "job": {"ids": "inner", "constraint": {"kind": "equal-opportunity", "epsilon": 0.05, "measure": "error"}},
        "party": [
            {
                "name": "bank",
                "role": "active",
                "table": "bank.csv",
                "id": "customer",
                "decimal": ",",
                "label": {"column": "arrears"},
                "sensitive": ["age"],
                "types": {"note": "leave out"},
            },
            {"name": "cards", "table": "cards.csv", "id": "customer_no"},
        ],
    }
    with pytest.warns(ColumnWarning) as caught:
        found = check_job_file(parse_vertical(content, "job.toml"), folder)
    said = [str(one.message) for one in caught if "'opened'" in str(one.message)]
    assert len(said) == 1, "once, though the parts are read again on their own"
    text = found.to_paste()
    lines = [line.split("   #")[0] for line in text.splitlines()]
    assert lines == [
        "# in [[party]] bank",
        'incomplete = "drop"',
        "bands = { age = [30, 60] }",
        'types = { note = "leave out", opened = "date" }',
        "# in [[party]] cards",
        'duplicates = "sum"',
        'types = { owed = "number" }',
    ]
    assert any("duplicates = 'first'" in one for one in found.problems)
    bank, cards = content["party"]
    bank |= tomllib.loads("\n".join(lines[1:4]))
    cards |= tomllib.loads("\n".join(lines[5:]))
    with pytest.warns() as caught:
        again = check_job_file(parse_vertical(content, "job.toml"), folder)
    assert any("column 'born' tells 'age' of all rows" in str(one.message) for one in caught)
    assert (list(again.problems), again.to_paste()) == ([], "")


class Person:
    """Answer questions by what they begin with; take the default of others."""

    def __init__(self, answers: dict[str, list[str]]) -> None:
        self._answers: dict[str, Iterator[str]] = {key: iter(values) for key, values in answers.items()}
        self.asked: list[str] = []
        self.told: list[str] = []

    def ask(self, question: str, default: str) -> str:
        self.asked.append(question)
        for key, answers in self._answers.items():
            if question.startswith(key):
                return next(answers, default)
        return default


def test_answers_are_written_and_are_no_guesses(tables: list[DraftTable], folder: Path) -> None:
    person = Person(
        {
            "Column to predict": ["nothing", "arrears"],
            "Column of bank": ["age", "customer"],
            "Sensitive": ["age, regoin", "age, region"],
            "bands": ["{ age = [60, 30] }", "[30]", "{ age = [25] }"],
            "merge": ["{ region = { far = ["],
            "duplicates": ["any", "first"],
            "threshold": ["accuracy"],
            "costs": ["-"],
            "protection": ["some", "masked"],
            "test_fraction": ["2", "0.3"],
        }
    )
    person._answers["merge"] = iter(['{ region = { far = ["isles", "west"] } }'])
    draft = interview(tables, GIVEN, person.ask, person.told.append)
    text = draft_text(draft, folder)
    for line in (
        'sensitive = ["age", "region"]',
        "bands = { age = [25] }",
        'merge = { region = { far = ["isles", "west"] } }',
        'duplicates = "first"',
        'threshold = "accuracy"',
        'protection = "masked"',
        "test_fraction = 0.3",
    ):
        assert line in text
    assert "costs" not in text
    # What was found out about the file itself stays a guess.
    assert [one.split(" =")[0] for one in text.splitlines() if "(guessed)" in one] == [
        "# A first draft by `evenhand init`. Review the values marked (guessed).",
        "decimal",
    ]
    told = " ".join(person.told)
    assert "job: Protection masked: cards and bureau can work out the label of each row" in told
    for part in (
        "no table has such a column",
        "no id column was found",
        "'regoin'",
        "rising numbers",
        "duplicates cannot be",
    ):
        assert part in told


def test_answers_that_do_not_go_together_are_written_and_said(tables: list[DraftTable]) -> None:
    person = Person({"threshold": ["recall"], "costs": ["-"]})
    draft = interview(tables, GIVEN, person.ask, person.told.append)
    assert [one.key for one in draft.job] == ["test_fraction", "threshold", "protection"]
    assert "the draft: key job.threshold: the rule 'recall' needs target" in " ".join(person.told)


def test_nothing_is_asked_that_was_given(tables: list[DraftTable]) -> None:
    person = Person({})
    given = {"id": ["customer", "customer_no"], "label": "arrears", "positive": "yes", "sensitive": []}
    interview(tables, {**GIVEN, **given}, person.ask, person.told.append)
    assert not [one for one in person.asked if one[0].isupper()]


@pytest.mark.parametrize("arguments", [["--yes"], []])
def test_nobody_is_asked_without_a_terminal(
    arguments: list[str], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from evenhand.cli import main

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a question")

    monkeypatch.setattr("typer.prompt", refuse)
    monkeypatch.setattr("sys.stdin.isatty", lambda: bool(arguments), raising=False)
    out = tmp_path / "job.toml"
    line = ["evenhand", "init", str(folder / "bank.csv"), str(folder / "bureau.csv"), "--out", str(out), *arguments]
    monkeypatch.setattr("sys.argv", line)
    with pytest.raises(SystemExit, match="0"):
        main()
    assert "(guessed)" in out.read_text()


def test_clients_merge_groups_by_name(tmp_path: Path) -> None:
    rows = pd.DataFrame({"age": [*range(18, 78)] * 4, "ward": ["a", "b", "c"] * 80, "ill": ["yes", "no"] * 120})
    rows.loc[:9, "ward"] = "isles"
    found = []
    for name in ("north", "south"):
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
        found.append(DraftTable.look(tmp_path / f"{name}.csv"))
    text, job = written(complete_draft(draft_job(found, sensitive=["age", "ward"])), tmp_path)
    assert job.job.split == "horizontal"
    assert 'merge = { ward = { other = ["a", "isles"] } }' in text
    assert "bands = { age = [30, 60] }" in text
    assert text.index("bands") < text.index("[[client]]")
