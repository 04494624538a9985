"""Run folders under many more kills and much more damage than `make test` has time for."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.damaged_runs import Subjects, tally
from support.kills import JOBS, kill_and_compare

KILLS_EACH = 26
DAMAGED = 1200


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_killed_runs_end_bit_for_bit_where_they_would_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def kill(number: int, name: str) -> Counter[str]:
        return kill_and_compare(name, KILLS_EACH, tmp_path / f"job {number}", seed=number)

    with ThreadPoolExecutor(2) as two_at_once:
        counts = dict(zip(JOBS, two_at_once.map(kill, range(len(JOBS)), JOBS), strict=True))
    total = sum(counts.values(), Counter[str]())
    with capsys.disabled():
        print()
        for name, count in counts.items():
            print(f"  {name}: {count['kills']} kills of {count['runs']} runs, {count['identical']} ended identical")
        different = total["runs"] - total["identical"]
        print(f"kills: tried {total['kills']}, recovered {total['identical']} runs, silently wrong {different}")
    assert different == 0
    assert total["kills"] >= 200


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_spoiled_folders_are_refused_or_recovered_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The slice in `make test` has the seeds before these.
    counts, wrong = tally(Subjects(tmp_path), range(1000, 1000 + DAMAGED), tmp_path / "scratch")
    others = DAMAGED - counts["refused"] - counts["recovered"] - counts["silently wrong"]
    with capsys.disabled():
        print(
            f"\ndamaged folders: tried {DAMAGED}, refused {counts['refused']}, recovered {counts['recovered']}, "
            f"silently wrong {counts['silently wrong']}, tracebacks and other errors {others}"
        )
    assert not wrong, "\n".join(wrong)
