"""How many rows parties have in common, without a list of people."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import tomli_w

from evenhand.cli.federation import align
from evenhand.errors import DataError, InputError, JobError
from evenhand.jobs.overlap import find_overlap

pytest.importorskip("nacl", reason="needs PyNaCl, of the extra privacy")


def party(folder: Path, name: str, ids: list[object], least_rows: int = 0) -> Path:
    own = folder / name
    own.mkdir()
    pd.DataFrame({"id": ids, "x": range(len(ids))}).to_csv(own / "table.csv", index=False)
    path = own / "party.toml"
    content = {"party": {"name": name, "table": "table.csv", "id": "id"}, "policy": {"least_rows": least_rows}}
    path.write_text(tomli_w.dumps(content))
    return path


def test_each_party_has_its_own_ids_of_the_common_rows_in_one_order(tmp_path: Path) -> None:
    files = [
        party(tmp_path, "bank", [f"c{n}" for n in range(30)]),
        party(tmp_path, "shop", [f"c{n}" for n in range(45, 9, -1)]),
        party(tmp_path, "phone", [f"c{n}" for n in range(0, 40, 2)]),
    ]
    found = find_overlap(files)
    assert found.rows == {"bank": 30, "shop": 36, "phone": 20}
    assert found.count == 10
    orders = [list(ids) for ids in found.common.values()]
    assert set(orders[0]) == {f"c{n}" for n in range(10, 30, 2)}
    assert orders[0] == orders[1] == orders[2]


def test_too_small_an_overlap_is_no_overlap_and_nobody_learns_how_small(tmp_path: Path) -> None:
    files = [party(tmp_path, "bank", [1, 2, 3, 4]), party(tmp_path, "shop", [3, 4, 5])]
    assert find_overlap(files, least=2).count == 2
    with pytest.raises(DataError, match="fewer than 3 ids are common to all"):
        find_overlap(files, least=3)
    files.append(party(tmp_path, "phone", [2, 3, 4], least_rows=1000))
    with pytest.raises(DataError, match="fewer than 1,000 ids are common to all"):
        find_overlap(files)


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ([1, 2, 2], "more than once"),
        ([1, 2, None], "'shop'.*1 of 3 rows have no 'id'"),
        (["a", "b", "c"], "of different kinds and would never match"),
        ([7, 8, 9], "no id is common to all"),
    ],
)
def test_ids_that_cannot_be_matched_are_refused(ids: list[object], says: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=says):
        find_overlap([party(tmp_path, "bank", [1, 2, 3]), party(tmp_path, "shop", ids)])


def test_the_command_reports_the_overlap_and_writes_each_partys_own_ids(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    align([party(tmp_path, "bank", [1, 2, 3, 4]), party(tmp_path, "shop", [4, 3, 9])], 2, tmp_path / "common")
    told = capsys.readouterr().out
    assert "50.0%" in told
    assert "66.7%" in told
    written = {path.stem: set(pd.read_csv(path)["id"]) for path in (tmp_path / "common").iterdir()}
    assert written == {"bank": {3, 4}, "shop": {3, 4}}
    assert all(path.stat().st_mode & 0o77 == 0 for path in (tmp_path / "common").iterdir())


def test_it_takes_two_parties_of_different_names(tmp_path: Path) -> None:
    bank = party(tmp_path, "bank", [1])
    with pytest.raises(InputError, match="at least two parties"):
        find_overlap([bank])
    with pytest.raises(JobError):
        find_overlap([bank, bank])
