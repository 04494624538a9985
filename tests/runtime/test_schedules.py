"""A slice of the fault schedules over every solver; `make soak` has many more."""

from __future__ import annotations

import pytest
from support.schedules import ASYNCHRONOUS, EXCHANGES, NAMES, case_of


@pytest.mark.parametrize("name", [*NAMES, *EXCHANGES])
def test_any_schedule_of_faults_ends_as_it_should(name: str) -> None:
    if name == "private-align":
        pytest.importorskip("nacl", reason="needs PyNaCl, of the extra privacy")
    case = case_of(name)
    for seed in range(1 if name in ASYNCHRONOUS else 5):
        case.run(seed)


def test_work_that_is_gone_through_again_after_a_crash_counts_once() -> None:
    """Found by the sweep: the server of aligning, put back at its end, had its effort twice."""
    case_of("align").run(1005)
