"""Processes are killed at random moments, and those that a supervisor would start again are; runs end bit for bit."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="make federation runs these in an environment with NVIDIA FLARE")

import psutil
from support.shops import PARTIES, Shops, job_processes, running_shops

from evenhand.runtime.checkpointfiles import state_bytes

# FLARE's own session leaves a socket open when the server goes away.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
LONG: dict[str, Any] = {"solver": "fedbcd", "max_rounds": 400, "constraint": [], "tol": 0.0}
"""Half a minute without disturbances."""


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shops]:
    with running_shops(tmp_path_factory.mktemp("kills")) as running:
        yield running


@pytest.fixture(scope="module")
def undisturbed(shops: Shops) -> dict[str, Any]:
    """What the run comes to: the result, and everybody's weights."""
    return outcome(shops, shops.submit(**LONG))


def outcome(shops: Shops, told: dict[str, Any]) -> dict[str, Any]:
    weights = {name: state_bytes(shops.side(name).read_party(name, "weights")) for name in PARTIES}
    return {"result": told["result"], **weights}


class Killer:
    """Kills, as long as a job runs.

    Parameters
    ----------
    targets
        Whose processes: ``"shop job"`` is that of the job, ``"shop"`` all the others of the party.
    """

    def __init__(self, shops: Shops, targets: list[str], seed: int, most: int, pause: tuple[float, float]) -> None:
        self._shops = shops
        self._targets = targets
        self._rng = random.Random(seed)
        self._most = most
        self._pause = pause
        self._over = threading.Event()
        self.killed: list[str] = []

    def __enter__(self) -> Killer:
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _live(self) -> None:
        while len(self.killed) < self._most and not self._over.wait(self._rng.uniform(*self._pause)):
            # Where a job is under way: only then something can be lost.
            if all(job_processes(self._shops.running[name]) for name in PARTIES):
                for target in self._rng.sample(self._targets, self._rng.choice([1, 1, 1, min(2, len(self._targets))])):
                    self._kill(target)

    def _kill(self, target: str) -> None:
        name, _, job = target.partition(" ")
        kit = self._shops.running[name]
        jobs = job_processes(kit)
        chosen = jobs if job else [one for one in kit.processes() if one not in jobs]
        for process in chosen:
            process.kill()
        psutil.wait_procs(chosen, timeout=10)
        if chosen:
            self.killed.append(target)
        if not job:
            time.sleep(1.0)
            self._shops.start(name)


@pytest.mark.timeout(400)
def test_a_run_whose_processes_are_killed_ends_as_if_nothing_had_happened(
    shops: Shops, undisturbed: dict[str, Any]
) -> None:
    with Killer(shops, ["shop job"], 0, 1, (6.0, 8.0)) as killer:
        told = shops.submit(retries=3, **LONG)
    assert killer.killed
    assert outcome(shops, told) == undisturbed


@pytest.mark.timeout(900)
@pytest.mark.parametrize("targets", [pytest.param(["phone"], marks=pytest.mark.soak), ["server"]])
def test_parents_and_servers_that_are_started_again_lose_nothing(
    shops: Shops, undisturbed: dict[str, Any], targets: list[str]
) -> None:
    with Killer(shops, targets, 0, 1, (6.0, 8.0)) as killer:
        told = shops.submit(retries=3, **LONG)
    assert killer.killed
    assert outcome(shops, told) == undisturbed


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_fifty_kills_at_random_moments(shops: Shops, undisturbed: dict[str, Any]) -> None:
    everybody = ["server", "server job", *PARTIES, *(f"{name} job" for name in PARTIES)]
    killed: list[str] = []
    seed = 0
    while len(killed) < 50:
        seed += 1
        with Killer(shops, everybody, seed, 5, (3.0, 12.0)) as killer:
            told = shops.submit(retries=20, **LONG)
        assert outcome(shops, told) == undisturbed, f"seed {seed}: {killer.killed}"
        killed += killer.killed
        print(f"{len(killed)} kills, {seed} runs that ended bit for bit")


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_party_that_is_frozen_for_a_minute_costs_only_time(shops: Shops, undisturbed: dict[str, Any]) -> None:
    def freeze() -> None:
        while not job_processes(shops.running["shop"]):
            time.sleep(0.2)
        time.sleep(6.0)
        processes = shops.running["shop"].processes()
        for process in processes:
            process.suspend()
        time.sleep(60.0)
        for process in processes:
            process.resume()

    freezer = threading.Thread(target=freeze, daemon=True)
    freezer.start()
    told = shops.submit(**LONG)
    freezer.join()
    assert outcome(shops, told) == undisturbed


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_party_whose_clock_is_wrong_by_hours_takes_part(
    shops: Shops, undisturbed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Python is told another time of day; nothing of ours goes by it."""
    (tmp_path / "sitecustomize.py").write_text(
        "import time\nreal = time.time\ntime.time = lambda: real() + 5 * 3600.0\n", encoding="utf-8"
    )
    shops.running["shop"].stop()
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    shops.start("shop")
    monkeypatch.undo()
    try:
        assert outcome(shops, shops.submit(**LONG)) == undisturbed
    finally:
        shops.running["shop"].stop()
        shops.start("shop")
