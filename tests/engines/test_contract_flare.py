"""The contract on NVIDIA FLARE: roles of every solver on its simulator, a job of every solver on a federation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("nvflare", reason="make federation runs these in an environment with NVIDIA FLARE")

from support.clinics import CLIENTS, FAIR, write_clinics
from support.federation import assert_close, write_shops
from support.flare_roles import COMPONENTS, cases_job, parties_of, what_came
from support.problems import Problem, Reference, ReferenceRow
from support.schedules import ASYNCHRONOUS, EXCHANGES, HORIZONTAL, NAMES, ROWS, VERTICAL, assert_ended_as_it_should
from support.shops import PARTIES

from evenhand.cli.demo_federation import free_port, wait_until_open
from evenhand.cli.federation_client import start
from evenhand.jobs.auditing import audit_run
from evenhand.jobs.federation.client import connect, run_to_end
from evenhand.jobs.federation.files import read_federation_job
from evenhand.jobs.folder import read_job
from evenhand.jobs.horizontal.runs import run_horizontal_job
from evenhand.jobs.vertical.runs import run_vertical_job
from evenhand.runtime.checkpointfiles import state_bytes
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.nvflare.kits import provision
from evenhand.runtime.nvflare.submitting import write_job

ACROSS_COLUMNS = [name for name in NAMES if name in VERTICAL]
ACROSS_ROWS = [name for name in NAMES if name not in VERTICAL]
BINDING, TOLERANCE = 0.005, 1e-3
"""A bound that costs something on the shops' rows, and how near to its optimum a solver that gets there is to come."""
SUITABLE: dict[str, dict[str, Any]] = {
    "trees": {"model": "trees"},
    f"{ROWS}trees": {"max_rounds": 12},
    **{
        name: {
            "max_rounds": 500 if VERTICAL[name].exact else 4,
            "tol": TOLERANCE,
            "options": {"batch_size": 40},
            "constraint": {"kind": "equal-opportunity", "epsilon": BINDING},
        }
        for name in ASYNCHRONOUS
    },
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
    with_secret(shops["bank"], folder / "labels.secret")
    files = {name: (shops if name in PARTIES else clinics)[name] for name in (*PARTIES, *CLIENTS)}
    provision("everybody", "localhost", port, list(files), folder / "kits")
    running = [start(folder / "kits" / "server", shops["bank"], folder / "server", folder / "server.log")]

    def submitted(job: Path) -> tuple[dict[str, Any], dict[str, RunFolder]]:
        content = read_federation_job(job)
        with connect(folder / "kits" / "admin", 120.0) as federation:
            told = run_to_end(federation, content, "every", print)._asdict()
        places = {"server": f"{told['run']}-server", **dict.fromkeys(content.parts, told["run"])}
        return told["result"], {name: RunFolder.open(folder / name / place) for name, place in places.items()}

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
        assert_certificate_is_true(name, tmp_path, told["certificate"], sides)
        return
    alone = run_vertical_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    assert_close(told, json.loads(json.dumps(alone.result)))
    assert_same_weights(sides, alone.folder)


def assert_same_weights(sides: Mapping[str, RunFolder], alone: RunFolder) -> None:
    for party in PARTIES:
        assert state_bytes(sides[party].read_party(party, "weights")) == state_bytes(alone.read_party(party, "weights"))


def assert_certificate_is_true(name: str, files: Path, told: Mapping[str, Any], sides: Mapping[str, RunFolder]) -> None:
    """Computed again from everybody's rows, the weights that each party has kept and the server's last multipliers."""
    problem = pooled(files)
    row = ReferenceRow([(1.0, problem.slice(1, "f")), (-1.0, problem.slice(1, "m"))], -BINDING, BINDING)
    reference = Reference(problem, [row], 2.0 / len(problem.labels))
    own = {party: sides[party].read_party(party, "weights")["weights"] for party in PARTIES}
    # The holder of the labels has the intercept.
    weights = np.concatenate([own["bank"][:-1], own["shop"], own["phone"], own["bank"][-1:]])
    last = sides["server"].read_lines("metrics.jsonl")[-1]
    multipliers = np.array(
        [[value for key, value in last.items() if key.startswith(f"{side} multiplier")] for side in ("upper", "lower")]
    )
    stationarity = np.linalg.norm(reference.gradient(weights, multipliers))
    violation = np.max(reference.excess(weights), initial=0.0)
    assert told["stationarity"] == pytest.approx(stationarity, rel=1e-6)
    assert told["violation"] == pytest.approx(violation, abs=1e-12)
    assert told["objective"] == pytest.approx(reference.objective(weights), rel=1e-12)
    assert told["complementarity"] == pytest.approx(np.max(np.abs(multipliers * reference.excess(weights))), abs=1e-12)
    assert told["converged"] == VERTICAL[name].exact
    if told["converged"]:
        best, best_multipliers = reference.optimum()
        assert best_multipliers.max() > 0.1
        assert max(stationarity, violation) <= TOLERANCE
        assert reference.objective(weights) == pytest.approx(reference.objective(best), rel=TOLERANCE)
    else:
        assert told["rounds"] == 4


def pooled(files: Path) -> Problem:
    """The shops' rows in one table, as whoever had all of them would encode them."""
    tables = {party: pd.read_csv(files / party / "table.csv").set_index("id").sort_index() for party in PARTIES}
    columns = pd.concat(
        [tables["bank"][["income", "debt"]], pd.get_dummies(tables["shop"], dtype=float), tables["phone"]], axis=1
    )
    numbers = columns[["income", "debt", "visits", "calls", "age"]]
    columns[numbers.columns] = (numbers - numbers.mean()) / numbers.std(ddof=0)
    labels = np.where(tables["bank"]["good"] == "yes", 1.0, -1.0)
    return Problem(columns.to_numpy(), labels, tables["bank"][["sex"]].reset_index(drop=True))


def with_secret(file: Path, secret: Path) -> None:
    """Let the label holder's part of a file name what its randomised responses are drawn from."""
    secret.write_bytes(bytes(range(32)))
    content = file.read_text().replace('positive = "yes"', f'positive = "yes"\nsecret = "{secret}"')
    file.write_text(content)


def test_labels_leave_their_holder_as_randomised_responses_only(submit: Submit, tmp_path: Path) -> None:
    """Bit for bit as in one process, whose messages an audit looks into: they do not tell what everybody's label is."""
    asked = {"epsilon": 2.0, "finish": True}
    paths = write_shops(tmp_path, settings("subspace") | {"label_privacy": asked, "protection": "none"})
    with_secret(paths["together"], tmp_path / "labels.secret")
    told, sides = submit(paths["job"])
    alone = run_vertical_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    assert_same_weights(sides, alone.folder)
    assert sides["server"].result == alone.folder.result
    stated = told["privacy"]["bank"]
    assert stated == sides["server"].result["privacy"]["bank"]
    assert (stated["epsilon"], stated["simulated"]) == (2.0, False)
    # Who submits is told nothing that was measured on true labels.
    assert not {"quality", "groups", "constraints", "intervals"} & told.keys()
    for side in sides.values():
        for one in side.read_lines("transcript.jsonl"):
            assert one["kind"] != "labels"
            assert one["kind"] != "joint-scores" or {one["sender"], one["receiver"]} == {"server", "bank"}
    assert all(sides[party].result.keys() == {"terms"} for party in PARTIES)
    told_of = [one for one in audit_run(alone.folder).findings if one.target == "each person's label"]
    assert {one.who for one in told_of} >= {"shop", "phone"}
    assert all(one.value.value < 1.0 for one in told_of if one.who in ("shop", "phone"))


@pytest.mark.parametrize("name", ACROSS_ROWS)
def test_a_job_across_rows_ends_as_in_one_process(name: str, submit: Submit, tmp_path: Path) -> None:
    paths = write_clinics(tmp_path, settings(name))
    told, sides = submit(paths["job"])
    alone = run_horizontal_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    assert told["certificate"] == json.loads(json.dumps(alone.result["certificate"]))
    for side in (sides[client] for client in CLIENTS):
        assert state_bytes(side.read_model("weights")) == state_bytes(alone.folder.read_model("weights"))
