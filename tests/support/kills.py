"""Trainings in processes of their own that are killed at random moments and resumed until they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import numpy as np
from support.hospitals import HospitalJob
from support.tables import SmallJob, outcome

from evenhand.errors import FELL_SHORT

_EXACT: Final = {"step": "auto"}
_ASYNCHRONOUS: Final = {"step": "auto", "local_steps": 3, "pace": "until-server-speaks"}
_CLOCK: Final = {"latency": 1e-5, "speeds": {"shop": 1e7}}
JOBS: Final[dict[str, dict[str, Any]]] = {
    "fairvfl": {"job": {"solver": "fairvfl", "options": _EXACT, "max_rounds": 60}},
    "fairvfl, asynchronous": {
        "job": {"solver": "fairvfl", "options": _ASYNCHRONOUS, "max_rounds": 60},
        "clock": _CLOCK,
    },
    "subspace": {"job": {"solver": "subspace", "options": {}, "max_rounds": 40, "tol": 0.0}},
    "vfb2-svrg": {"job": {"solver": "vfb2-svrg", "options": {}, "max_rounds": 30, "constraint": []}},
    "fairvfl, neural": {"job": {"solver": "fairvfl", "options": _EXACT, "max_rounds": 40, "model": "mlp"}},
    "sqp": {"job": {"split": "horizontal", "solver": "sqp", "max_rounds": 60, "tol": 1e-12}},
    "prox-al": {"job": {"split": "horizontal", "solver": "prox-al", "max_rounds": 500}},
    "fairfedavgalm": {
        "job": {"split": "horizontal", "solver": "fairfedavgalm", "max_rounds": 60, "options": {"step": 0.3}}
    },
}
"""Small jobs of several solvers; each checkpoint of each round is written."""


def make_job(name: str, folder: Path) -> Any:
    content = JOBS[name]
    job: Any = (HospitalJob if content["job"].get("split") == "horizontal" else SmallJob)(folder)
    job.content["job"] |= content["job"]
    job.content |= {key: value for key, value in content.items() if key != "job"}
    return job


def start(job: Any, out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "evenhand", "train", str(job.path), "--out", str(out), "-q", "--resume"]
    command += ["--checkpoint-seconds", "0"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, text=True, **pipes)


def killed(job: Any, out: Path, rng: np.random.Generator) -> bool:
    """Go on with the run and be killed; False if the run ended before."""
    before = newest(out)
    process = start(job, out)
    phase = rng.random()
    if phase < 0.1:
        # While libraries are loaded and tables read.
        time.sleep(rng.uniform(0.0, 3.0))
    else:
        # From the first touch of the folder on, or from the first checkpoint of this process on.
        while process.poll() is None and not ((out / "lock").exists() if phase < 0.4 else newest(out) > before):
            time.sleep(0.002)
        time.sleep(rng.uniform(0.0, 1.0) ** 2)
    process.send_signal(signal.SIGKILL)
    words = process.communicate()
    assert process.returncode in (0, FELL_SHORT, -signal.SIGKILL), words
    return process.returncode < 0


def newest(out: Path) -> int:
    return max((int(path.name) for path in out.glob("checkpoints/*") if path.name.isdecimal()), default=0)


def kill_and_compare(name: str, kills: int, folder: Path, seed: int) -> Counter[str]:
    """Runs that are killed, so many times in all and up to eight times each, against one that is not."""
    rng = np.random.default_rng(seed)
    job = make_job(name, folder)
    expected = outcome(job.run("whole").folder.path)
    counts = Counter[str]()
    while counts["kills"] < kills:
        out = folder / f"run {counts['runs']}"
        until = min(counts["kills"] + 8, kills)
        while counts["kills"] < until and killed(job, out, rng):
            counts["kills"] += 1
        last = start(job, out)
        last.communicate()
        counts["runs"] += 1
        counts["identical"] += last.returncode in (0, FELL_SHORT) and outcome(out) == expected
    return counts
