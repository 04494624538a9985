"""The contract on NVIDIA FLARE: roles of every solver on its simulator, a job of every solver on a federation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="make federation runs these in an environment with NVIDIA FLARE")

from support.clinics import CLIENTS, FAIR, write_clinics
from support.federation import write_shops
from support.flare_roles import COMPONENTS, cases_job, parties_of, what_came
from support.schedules import ASYNCHRONOUS, EXCHANGES, HORIZONTAL, NAMES, ROWS, VERTICAL, assert_ended_as_it_should
from support.shops import PARTIES

from evenhand.cli.demo_federation import free_port, wait_until_open
from evenhand.cli.federation import run_submitted, start
from evenhand.jobs.federation.files import read_federation_job
from evenhand.jobs.file import read_job
from evenhand.jobs.horizontal.runs import run_horizontal_job
from evenhand.jobs.vertical.runs import run_vertical_job
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.nvflare.kits import provision
from evenhand.runtime.nvflare.submitting import write_job
from evenhand.runtime.statefiles import state_bytes

ACROSS_COLUMNS = [name for name in NAMES if name in VERTICAL]
ACROSS_ROWS = [name for name in NAMES if name not in VERTICAL]
SUITABLE: dict[str, dict[str, Any]] = {
    "trees": {"model": "trees"},
    f"{ROWS}trees": {"max_rounds": 12},
    **{name: {"max_rounds": 2, "options": {"batch_size": 40}} for name in ASYNCHRONOUS},
}
"""Settings of jobs that others than three rounds would not do for."""
pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("names", [[*ACROSS_COLUMNS, *EXCHANGES], ACROSS_ROWS], ids=["columns", "rows"])
def test_roles_of_every_solver_end_as_they_should_on_the_simulator(names: list[str], tmp_path: Path) -> None:
    parties, keep, local = parties_of(names[0]), tmp_path / "keep", tmp_path / "workspace" / "local"
    keep.mkdir()
    local.mkdir(parents=True)
    # The sites' own setting, without which they run no classes but FLARE's.
    (local / "resources.json").write_text(json.dumps({"format_version": 2, "class_allow_list": list(COMPONENTS)}))
    job = write_job(tmp_path / "cases", cases_job(names, keep), parties, components=COMPONENTS)
    simulator = [sys.executable, "-m", "nvflare.private.fed.app.simulator.simulator", str(job)]
    done = subprocess.run(
        [*simulator, "-w", str(local.parent), "-c", ",".join(parties), "-t", str(len(parties))],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    for name in names:
        assert_ended_as_it_should(name, *what_came(name, keep))


def settings(name: str) -> dict[str, Any]:
    solver = name.removeprefix(ROWS)
    declared = (VERTICAL if name in VERTICAL else HORIZONTAL)[solver]
    fair = {"constraint": FAIR} if declared.takes_constraints else {}
    return {"solver": solver, "max_rounds": 3} | fair | SUITABLE.get(name, {})


Submit = Callable[[Path], tuple[dict[str, Any], dict[str, RunFolder]]]


@pytest.fixture(scope="module")
def submit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Submit]:
    """Submits a job to a federation of three shops and three clinics: its result, and each side's run folder."""
    folder, port = tmp_path_factory.mktemp("federation"), free_port()
    shops, clinics = write_shops(folder / "shops", {}), write_clinics(folder / "clinics", {})
    files = {name: (shops if name in PARTIES else clinics)[name] for name in (*PARTIES, *CLIENTS)}
    provision("everybody", "localhost", port, list(files), folder / "kits")
    running = [start(folder / "kits" / "server", shops["bank"], folder / "server", folder / "server.log")]

    def submitted(job: Path) -> tuple[dict[str, Any], dict[str, RunFolder]]:
        content = read_federation_job(job)
        told = run_submitted(content, "every", folder / "kits" / "admin", 120.0, print)
        return told["result"], {name: RunFolder.open(folder / name / told["run"]) for name in content.parts}

    try:
        wait_until_open(port)
        for name, file in files.items():
            running.append(start(folder / "kits" / name, file, folder / name, folder / f"{name}.log"))
        yield submitted
    finally:
        for one in running:
            one.stop()


@pytest.mark.parametrize("name", ACROSS_COLUMNS)
def test_a_job_across_columns_ends_as_in_one_process(name: str, submit: Submit, tmp_path: Path) -> None:
    paths = write_shops(tmp_path, settings(name))
    told, sides = submit(paths["job"])
    if name in ASYNCHRONOUS:
        assert told["certificate"]["rounds"] == 2
        assert told["quality"]["train"]["accuracy"] > 0.5
        return
    alone = run_vertical_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    assert told == json.loads(json.dumps(alone.result))
    for party, side in sides.items():
        assert state_bytes(side.read_party(party, "weights")) == state_bytes(alone.folder.read_party(party, "weights"))


@pytest.mark.parametrize("name", ACROSS_ROWS)
def test_a_job_across_rows_ends_as_in_one_process(name: str, submit: Submit, tmp_path: Path) -> None:
    paths = write_clinics(tmp_path, settings(name))
    told, sides = submit(paths["job"])
    alone = run_horizontal_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    assert told["certificate"] == json.loads(json.dumps(alone.result["certificate"]))
    for side in sides.values():
        assert state_bytes(side.read_model("weights")) == state_bytes(alone.folder.read_model("weights"))
