"""Spoiled folders are refused or recovered from, killed runs end where they would have; `make soak` tries many more."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.damaged_runs import Subjects, tally
from support.kills import kill_and_compare


def test_spoiled_folders_are_refused_or_recovered_from(tmp_path: Path) -> None:
    counts, wrong = tally(Subjects(tmp_path), range(32), tmp_path / "scratch")
    assert not wrong, "\n".join(wrong)
    # Both happen: the damage is done, and some of it does not matter.
    assert counts["refused"] > 10
    assert counts["recovered"] > 2


@pytest.mark.parametrize(("name", "kills"), [pytest.param("fairvfl", 3, marks=pytest.mark.soak), ("sqp", 2)])
def test_killed_runs_end_bit_for_bit_where_they_would_have(name: str, kills: int, tmp_path: Path) -> None:
    counts = kill_and_compare(name, kills, tmp_path, seed=kills)
    assert counts["kills"] == kills
    assert counts["identical"] == counts["runs"]
