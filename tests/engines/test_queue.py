"""Two submitters queue many jobs; parties restart, one with a renewed certificate, and every job comes to its end.

`EVENHAND_JOBS=6 pytest -m soak -s tests/engines/test_queue.py` queues fewer.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="make federation runs these in an environment with NVIDIA FLARE")

from support.shops import Shops, job_processes, running_shops, wait_until

import evenhand.federation
from evenhand.errors import LostError
from evenhand.jobs.federation.client import JobOutcome, Submission
from evenhand.runtime.nvflare.certificates import Authority, load, write_certificate
from evenhand.runtime.nvflare.kits import AUTHORITY

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]
JOBS = int(os.environ.get("EVENHAND_JOBS", "24"))
RESTARTED = ("shop", "phone")


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shops]:
    with running_shops(tmp_path_factory.mktemp("queue")) as running:
        yield running


def restart(shops: Shops, lost: list[str]) -> None:
    """Restart two parties while a job trains; one of them comes back with a renewed certificate."""
    for name in RESTARTED:
        wait_until(lambda name=name: bool(job_processes(shops.running[name])))  # type: ignore[misc]
        time.sleep(2.0)
        shops.running[name].stop()
        if name == "shop":
            path = shops.folder / "kits" / "shop" / "startup" / "client.crt"
            write_certificate(path, Authority(shops.folder / "kits" / AUTHORITY).renewed(load(path), 400))
        shops.start(name)
        lost.append(name)
        time.sleep(20.0)


def followed(federation: evenhand.federation.Federation, job: Path, submission: Submission) -> tuple[JobOutcome, int]:
    """Follow a job to its result; resume it when it has lost a party that was restarted."""
    for attempt in range(5):
        try:
            return submission.wait(), attempt
        except LostError as error:
            if not error.missing or not set(error.missing) <= set(RESTARTED):
                raise
            print(f"  {submission.run[:8]}: {error}")
            submission = federation.submit(job, resume=submission.run, detach=True)
    raise AssertionError(f"{submission.run} was resumed five times")


def test_all_jobs_of_two_submitters_end_with_the_same_result(shops: Shops) -> None:
    job, kits = shops.paths["job"], shops.folder / "kits"
    restarted: list[str] = []
    with (
        evenhand.federation.connect(kits / "submitter", 300.0) as one,
        evenhand.federation.connect(kits / "admin", 300.0) as other,
    ):
        # All wait at the server at once, four at a time run.
        queued = [(whose, whose.submit(job, detach=True)) for _ in range(JOBS // 2) for whose in (one, other)]
        restarting = threading.Thread(target=restart, args=(shops, restarted))
        restarting.start()
        ends = [followed(whose, job, submission) for whose, submission in queued]
        restarting.join()
        records = one.jobs()
    assert restarted == list(RESTARTED)
    assert len({end.run for end, _ in ends}) == len(queued) == JOBS
    assert not [found for found in records if found.active]
    results = [{key: value for key, value in end.result.items() if key != "statistics"} for end, _ in ends]
    assert all(result["certificate"]["converged"] for result in results)
    assert all(result["quality"] == results[0]["quality"] for result in results)
    print(f"{JOBS} jobs ended with one result; {sum(attempts for _, attempts in ends)} were resumed")
