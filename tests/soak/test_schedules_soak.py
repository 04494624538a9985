"""Fault schedules over every solver. EVENHAND_SCHEDULES says how many each, EVENHAND_SEED which is the first."""

from __future__ import annotations

import os

import pytest
from support.schedules import ASYNCHRONOUS, EXCHANGES, NAMES, case_of

FIRST = int(os.environ.get("EVENHAND_SEED", "1000"))
COUNT = int(os.environ.get("EVENHAND_SCHEDULES", "400"))
RUN: list[int] = []


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [*NAMES, *EXCHANGES])
def test_any_schedule_of_faults_ends_as_it_should(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    case = case_of(name)
    count = -(-COUNT // 16) if name in ASYNCHRONOUS else COUNT
    for seed in range(FIRST, FIRST + count):
        case.run(seed)
    RUN.append(count)
    with capsys.disabled():
        print(f"\n{name}: {count} schedules, {sum(RUN):,} so far")
