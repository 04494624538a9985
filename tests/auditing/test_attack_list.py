"""All attacks are in one list, which says what each of them reads."""

from __future__ import annotations

import pytest

from evenhand.auditing import client_views, views
from evenhand.auditing.attacks import HORIZONTAL, VERTICAL, Attack, tried, untried
from evenhand.solvers.announcing import schemas

READ = {**views.READ, **client_views.READ}


@pytest.mark.parametrize("kind", READ)
def test_fields_that_are_read_are_in_the_schema(kind: str) -> None:
    schema = schemas()[kind]
    assert READ[kind].keys() <= schema.fields.keys()


@pytest.mark.parametrize(("read", "attacks"), [(views.READ, VERTICAL), (client_views.READ, HORIZONTAL)])
def test_every_nature_of_a_field_has_an_attack(read: dict[str, dict[str, str]], attacks: tuple[Attack, ...]) -> None:
    natures = {nature for fields in read.values() for nature in fields.values()}
    assert natures == {nature for one in attacks for nature in one.reads}


def test_names_are_unique_and_ideas_are_said() -> None:
    for attacks in (VERTICAL, HORIZONTAL):
        assert len({one.name for one in attacks}) == len(attacks)
        assert all(one.idea.endswith(".") for one in attacks)


def test_only_what_a_run_sent_is_listed() -> None:
    found = tried(VERTICAL, views.READ, ["derivative", "offer"])
    assert found["sign"] == ["derivative"]
    assert found["peaks"] == []
    assert list(untried(views.READ, ["derivative", "offer"])) == ["offer"]
