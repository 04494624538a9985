"""A party's processes are killed in the middle of training, for good: the others train a model without it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

pytest.importorskip("nvflare", reason="make federation runs these in an environment with NVIDIA FLARE")

from support.shops import Shops, job_processes, running_shops, wait_until

import evenhand.federation
from evenhand.jobs.federation.client import Submission
from evenhand.jobs.federation.files import FederationJob, read_federation_job
from evenhand.report.page import make_page
from evenhand.report.record import RunRecord

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]
SOLVERS: dict[str, dict[str, Any]] = {
    "subspace": {"tol": 1e-12, "max_rounds": 60},
    "learners": {"max_rounds": 40, "options": {"patience": 40}},
    "trees": {"max_rounds": 40, "options": {"patience": 40}},
}


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shops]:
    """The label holder and two passive parties; what a sum hides is tested in one process."""
    with running_shops(tmp_path_factory.mktemp("lost"), protection="none") as running:
        yield running


def submitted(shops: Shops, federation: evenhand.federation.Federation, **changes: Any) -> Submission:
    content = read_federation_job(shops.paths["job"])
    assert isinstance(content, FederationJob)
    changes = {"lost_party": "continue", **changes}
    job = FederationJob(job=content.job.model_copy(update=changes), party=content.party)
    return federation.submit(job, name="shops", detach=True)


def log(shops: Shops, name: str) -> str:
    return (shops.folder / f"{name}.log").read_text(errors="replace")


def step_into_training(shops: Shops, name: str, submission: Submission, length: int) -> int:
    """Let a party run for moments only from its terms on, until a round of training is done; it is then stopped."""
    wait_until(lambda: "terms of this run" in log(shops, name)[length:])
    while True:
        for process in job_processes(shops.running[name]):
            process.suspend()
        found = submission.progress()
        if found is not None and found.report.get("round", 0) >= 1:
            return int(found.report["round"])
        assert submission.status in ("SUBMITTED", "DISPATCHED", "RUNNING"), submission.status
        for process in job_processes(shops.running[name]):
            process.resume()
        time.sleep(0.01)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("whole", [False, True])
def test_the_others_go_on(shops: Shops, solver: str, whole: bool) -> None:
    """Its process of the job is killed, or all its processes."""
    with evenhand.federation.connect(shops.folder / "kits" / "admin", 120.0) as federation:
        length = len(log(shops, "phone"))
        submission = submitted(shops, federation, solver=solver, **SOLVERS[solver])
        done = step_into_training(shops, "phone", submission, length)
        victims = shops.running["phone"].processes() if whole else job_processes(shops.running["phone"])
        for process in victims:
            process.kill()
        began = time.monotonic()
        outcome = submission.wait()
        print(f"{solver}, {'all' if whole else 'job'} killed after round {done}: {time.monotonic() - began:.0f} s")
        (gone,) = outcome.result["gone"]
        assert gone["party"] == "phone"
        assert gone["round"] >= done
        assert outcome.result["certificate"]["without"] == f"phone (gone in round {gone['round']})"
        assert outcome.result["certificate"]["violation"] <= 1e-6
    if whole:
        shops.start("phone")
    for name in ("bank", "shop", "server"):
        assert shops.side(name).finished
    assert shops.side("shop").result["gone"] == ["phone"]
    page = make_page([RunRecord.read(Path(outcome.folder))])
    assert f"The model is without phone, which was gone in round {gone['round']} of training" in page
    scores = asked(shops, outcome.run)
    assert len(scores) == 120


def asked(shops: Shops, run: str) -> pd.DataFrame:
    """Scores of all people by those that are left."""
    ids = shops.folder / "ids.csv"
    pd.read_csv(shops.folder / "sites" / "bank" / "table.csv")[["id"]].to_csv(ids, index=False)
    out = shops.folder / f"{run}.csv"
    words = ["predict", "--remote", run, str(ids), "--kit", str(shops.folder / "kits" / "admin"), "--out", str(out)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run([sys.executable, "-m", "evenhand", *words], env=env, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    return pd.read_csv(out)
