"""Names of organisations: one rule for job files of both splits, and every name that it allows can be a folder's."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.hospitals import HospitalJob
from support.tables import SmallJob

from evenhand.errors import InputError, JobError
from evenhand.jobs.new_rows import score_new_clients, score_new_parties
from evenhand.protocol.terms import check_name
from evenhand.runtime.folder import RunFolder

NAMES = ("St. Mary", "Zürich", "a_b-c.2")


def vertical(folder: Path, names: tuple[str, ...]) -> SmallJob:
    small = SmallJob(folder)
    small.content["job"]["max_rounds"] = 3
    for party, name in zip(small.content["party"], names, strict=False):
        party["name"] = name
    return small


def horizontal(folder: Path, names: tuple[str, ...]) -> HospitalJob:
    hospitals = HospitalJob(folder)
    for client, name in zip(hospitals.content["client"], names, strict=False):
        client["name"] = name
    return hospitals


def test_parties_train_and_leave_a_folder_under_their_names(tmp_path: Path) -> None:
    small = vertical(tmp_path, NAMES)
    small.run()
    folder = RunFolder.open(tmp_path / "run")
    assert {path.name for path in (tmp_path / "run" / "parties").iterdir()} == set(NAMES)
    assert {entry["receiver"] for entry in folder.read_lines("transcript.jsonl")} == {*NAMES, "server"}
    new = tmp_path / "new.csv"
    small.frames["bank"].to_csv(new)
    assert len(score_new_parties(folder, tables={"St. Mary": new}).scores) == 120


def test_clients_train_and_leave_a_folder_under_their_names(tmp_path: Path) -> None:
    finished = horizontal(tmp_path, NAMES).run()
    assert set(finished.result["clients"]) == set(NAMES)
    assert set(score_new_clients(finished.folder).scores.index.get_level_values("client")) == set(NAMES)


@pytest.mark.parametrize("name", ["", "../shop", "a/b", " shop", ".shop", "x" * 65, "a\nb", "server"])
@pytest.mark.parametrize(("make", "kind"), [(vertical, "party"), (horizontal, "client")])
def test_a_name_that_is_refused_is_refused_in_both_kinds_of_file(
    make: type, kind: str, name: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as rule:
        check_name(kind, name)
    with pytest.raises(JobError) as caught:
        make(tmp_path, ("a", name)).read()
    assert str(caught.value).endswith(f"job.toml: key {kind}.1.name: {rule.value}")
