"""A hundred random faults under `evenhand federation submit --patience`: nobody hangs, and each end names who it was.

`EVENHAND_FAULTS=8 pytest -m soak -s tests/engines/test_faults.py` runs fewer, and prints what was expected and what
happened.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("nvflare", reason="make federation runs these in an environment with NVIDIA FLARE")

import tomli_w
from support.shops import PARTIES, Shops, job_processes, running_shops, wait_until

import evenhand.federation
from evenhand.jobs.federation.files import FederationJob, read_federation_job

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]
FAULTS = int(os.environ.get("EVENHAND_FAULTS", "100"))
AT_MOST = 300.0
"""Seconds after which a submitter counts as hanging: patience of links, of the submitter, and a slow start."""


class Fault(NamedTuple):
    """What is done to a run, and what its end must say of the party it is done to."""

    does: Callable[[Shops, str, subprocess.Popen[str]], None]
    codes: tuple[int, ...]
    says: str


def running(shops: Shops, name: str) -> None:
    """Wait until the party trains."""
    length = len(log(shops, name))
    wait_until(lambda: bool(job_processes(shops.running[name])) and "terms of this run" in log(shops, name)[length:])
    time.sleep(random.uniform(0.0, 4.0))


def log(shops: Shops, name: str) -> str:
    return (shops.folder / f"{name}.log").read_text(errors="replace")


def kill_job(shops: Shops, name: str, _: subprocess.Popen[str]) -> None:
    running(shops, name)
    for process in job_processes(shops.running[name]):
        process.kill()


def kill_all(shops: Shops, name: str, _: subprocess.Popen[str]) -> None:
    running(shops, name)
    for process in shops.running[name].processes():
        process.kill()


def freeze(shops: Shops, name: str, _: subprocess.Popen[str]) -> None:
    """A line that is cut for half a minute, and healed."""
    running(shops, name)
    frozen = shops.running[name].processes()
    for process in frozen:
        process.suspend()
    time.sleep(30.0)
    for process in frozen:
        process.resume()


def spoil(shops: Shops, name: str, _: subprocess.Popen[str]) -> None:
    """The id of a row occurs twice; the run comes to that after a while."""


def interrupt(shops: Shops, name: str, submitter: subprocess.Popen[str]) -> None:
    running(shops, name)
    submitter.send_signal(signal.SIGINT)


def nothing(_shops: Shops, _name: str, _submitter: subprocess.Popen[str]) -> None:
    pass


FAULTS_BY_NAME = {
    "job killed": Fault(kill_job, (10,), "{name} is missing"),
    "all killed": Fault(kill_all, (10,), "{name} is missing"),
    "frozen for 30 s": Fault(freeze, (0, 9), "{name} has not been heard from"),
    "table spoilt": Fault(spoil, (4,), "{name}: it stopped"),
    "absent": Fault(nothing, (10,), "{name} missing"),
    "interrupted": Fault(interrupt, (130,), "was aborted"),
}


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shops]:
    with running_shops(tmp_path_factory.mktemp("faults")) as found:
        yield found


def submitter(shops: Shops) -> subprocess.Popen[str]:
    content = read_federation_job(shops.paths["job"])
    assert isinstance(content, FederationJob)
    changes = {"solver": "vfb2-sgd", "max_rounds": 100, "tol": 0.0, "options": {"batch_size": 8}}
    job = FederationJob(job=content.job.model_copy(update=changes), party=content.party)
    path = shops.folder / "faults.toml"
    path.write_text(tomli_w.dumps(job.model_dump(exclude_none=True, mode="json")))
    kit = str(shops.folder / "kits" / "submitter")
    words = [sys.executable, "-m", "evenhand", "federation", "submit", str(path), "--kit", kit, "--patience", "10"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)


def mend(shops: Shops, name: str, tables: dict[str, str]) -> None:
    """Put the party back as it was, and wait until all answer."""
    for party, text in tables.items():
        table(shops, party).write_text(text)
    if not shops.running[name].processes():
        shops.start(name)
    with evenhand.federation.connect(shops.folder / "kits" / "operator", 120.0) as federation:
        wait_until(lambda: all(one.answers for one in federation.parties().values()))
        wait_until(lambda: not any(one.active for one in federation.jobs()))


def table(shops: Shops, name: str) -> Path:
    return shops.paths[name].parent / "table.csv"


def test_random_faults_end_in_time_and_name_who_it_was(shops: Shops) -> None:
    chance = random.Random(int(os.environ.get("EVENHAND_SEED", "7")))
    tables = {name: table(shops, name).read_text() for name in PARTIES}
    wrong = []
    for number in range(FAULTS):
        kind, name = chance.choice(list(FAULTS_BY_NAME)), chance.choice(PARTIES)
        fault, began = FAULTS_BY_NAME[kind], time.monotonic()
        if kind == "absent":
            shops.running[name].stop()
        if kind == "table spoilt":
            table(shops, name).write_text(tables[name] + tables[name].splitlines()[-1] + "\n")
        submitted = submitter(shops)
        try:
            fault.does(shops, name, submitted)
            out, _ = submitted.communicate(timeout=AT_MOST)
        except subprocess.TimeoutExpired:
            submitted.kill()
            out, _ = submitted.communicate()
            out += "\nHANGS"
        expected = fault.says.format(name=name)
        fits = submitted.returncode in fault.codes and expected in out
        told = next((line for line in reversed(out.splitlines()) if expected in line), out.strip().splitlines()[-1])
        print(
            f"{number:3} {kind:16} {name:6} {time.monotonic() - began:5.0f} s  {submitted.returncode:4}  {told[:110]}"
        )
        if not fits:
            wrong.append((kind, name, submitted.returncode, out[-2000:]))
        mend(shops, name, tables)
    assert not wrong, wrong[:3]
