"""Across rows between organisations: every client on its own file, the same model as in one process, bit for bit."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w
from support.clinics import CLIENTS, FAIR, write_clinics
from support.federation import Network, run_sites

from evenhand.errors import EvenhandError, JobError
from evenhand.jobs.federation.clients import ClientEnd, client_program, clients_server_program
from evenhand.jobs.federation.files import ClientsJob, read_federation_job, read_party, site_env
from evenhand.jobs.federation.folders import side_folder
from evenhand.jobs.folder import read_job
from evenhand.jobs.horizontal.runs import run_horizontal_job
from evenhand.jobs.new_rows import score_new_clients
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.site import Site
from evenhand.training.run import one_blas_thread


def run(paths: dict[str, Path], network: Network | None = None) -> dict[str, Any]:
    job = read_federation_job(paths["job"])
    assert isinstance(job, ClientsJob)

    def server(site: Site) -> Any:
        return clients_server_program(job, lambda: site.transcript, identity=paths["identity"])

    def client(name: str) -> Any:
        return lambda _: client_program(job, read_party(paths[name]), paths[name].parent)

    with one_blas_thread():
        programs = {"server": server, **{name: client(name) for name in CLIENTS}}
        return run_sites(programs, Network() if network is None else network)


@pytest.mark.parametrize(
    ("job", "loss"),
    [
        ({"solver": "sqp", "constraint": FAIR}, 0.2),
        ({"solver": "sqp", "constraint": FAIR, "protection": "masked"}, 0.1),
        (
            {
                "solver": "sqp",
                "constraint": {**FAIR, "measure": "error"},
                "scope": "local",
                "missing_slices": "leave out",
            },
            0.0,
        ),
        ({"solver": "prox-al", "constraint": FAIR, "max_rounds": 3}, 0.0),
        ({"solver": "fedavg", "max_rounds": 3}, 0.1),
        ({"solver": "fairfedavgalm", "max_rounds": 3, "constraint": FAIR}, 0.0),
        ({"solver": "fairalm", "max_rounds": 3, "constraint": FAIR}, 0.0),
        ({"solver": "fairfed", "max_rounds": 3}, 0.0),
        ({"solver": "fpfl", "max_rounds": 3, "constraint": FAIR}, 0.0),
        ({"solver": "fedavg", "max_rounds": 2, "model": {"kind": "mlp", "hidden": [3]}}, 0.0),
        ({"solver": "trees", "max_rounds": 12, "constraint": FAIR}, 0.0),
    ],
)
def test_the_model_and_its_result_are_those_of_one_process(job: dict[str, Any], loss: float, tmp_path: Path) -> None:
    if job["solver"] not in ("sqp", "prox-al"):
        pytest.importorskip("torch")
    paths = write_clinics(tmp_path, job)
    ends = run(paths, Network(loss))
    together = run_horizontal_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    kept = together.folder.read_model("weights")
    for name in CLIENTS:
        assert isinstance(ends[name], ClientEnd), ends
        np.testing.assert_array_equal(ends[name].state["weights"], kept["weights"])
        assert ends[name].state["weights"].dtype == kept["weights"].dtype
        assert ends[name].encoder.to_state() == together.folder.read_model("encoder")
    told, alone = ends["server"], together.result
    assert told["certificate"] == alone["certificate"]
    assert told["clients"] == alone["clients"]
    for part, groups in alone["groups"].items():
        counts = [{name: value for name, value in one.items() if name != "calibration"} for one in groups]
        assert told["groups"][part] == counts
    for part, measured in alone["quality"].items():
        assert told["quality"][part] == pytest.approx(measured, rel=1e-9)


def test_a_client_scores_its_own_table_with_its_own_side_of_the_run(tmp_path: Path) -> None:
    paths = write_clinics(tmp_path, {"solver": "sqp", "constraint": FAIR})
    end, job = run(paths)["north"], read_federation_job(paths["job"])
    with side_folder(tmp_path / "own", "north", job, site_env(paths["north"]), resume=False) as side:
        side.finish(end.write(side.folder))
    together = run_horizontal_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    alone = score_new_clients(RunFolder.open(tmp_path / "own")).scores
    pd.testing.assert_frame_equal(alone, score_new_clients(together.folder).scores.loc[["north"]])


CLIPPED = {"mechanism": "clipped-gaussian", "clip": 1.0, "noise_multiplier": 1.0}
OF_RECORDS = {"mechanism": "record-gaussian", "clip": 1.0, "noise_multiplier": 1.0, "rate": 0.3, "steps": 4}


@pytest.mark.parametrize("privacy", [CLIPPED, OF_RECORDS], ids=lambda one: one["mechanism"])
def test_clients_updates_have_noise_that_the_job_does_not_give_away(privacy: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    job = {"solver": "fedavg", "max_rounds": 2}
    paths = write_clinics(tmp_path, job, privacy=privacy)
    ends = run(paths)
    weights = ends["north"].state["weights"]
    # Neither what one process draws from the job's seed, nor the same again, nor none at all.
    together = run_horizontal_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    (tmp_path / "bare").mkdir()
    for other in (
        together.folder.read_model("weights")["weights"],
        run(paths)["north"].state["weights"],
        run(write_clinics(tmp_path / "bare", job))["north"].state["weights"],
    ):
        assert np.abs(weights - other).max() > 1e-3
    assert ends["server"]["privacy"].keys() == set(CLIENTS)


def test_what_is_stated_of_a_federation_is_of_secret_noise(tmp_path: Path) -> None:
    for name in ("torch", "dp_accounting"):
        pytest.importorskip(name)
    paths = write_clinics(tmp_path, {"solver": "fedavg", "max_rounds": 2}, privacy=OF_RECORDS)
    together = run_horizontal_job(read_job(paths["together"]), tmp_path, tmp_path / "run")  # type: ignore[arg-type]
    for folder in (tmp_path, *(paths[name].parent for name in CLIENTS)):
        (folder / "encoder.json").write_text(json.dumps(together.folder.read_model("encoder")), encoding="utf-8")
    for name in ("job", "together"):
        content = tomllib.loads(paths[name].read_text())
        content["data"] |= {"encoder": "encoder.json", "groups": {"sex": ["f", "m"]}}
        paths[name].write_text(tomli_w.dumps(content))
    alone = run_horizontal_job(read_job(paths["together"]), tmp_path, tmp_path / "again").result  # type: ignore[arg-type]
    stated, simulated = run(paths)["server"]["privacy"]["north"], alone["privacy"]["north"]
    assert stated["epsilon"] == simulated["epsilon"]
    assert stated["epsilon"] is not None
    assert simulated["words"].startswith("Simulated")
    assert "Simulated" not in stated["words"]


def test_no_row_leaves_a_client(tmp_path: Path) -> None:
    paths = write_clinics(tmp_path, {"solver": "sqp"})
    network = Network()
    run(paths, network)
    for name in CLIENTS:
        own = network.sites[name].transcript
        assert all(name in (entry.sender, entry.receiver) for entry in own)
        assert max(entry.nbytes for entry in own if entry.sender == name) < 80 * 8 * 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"server": {"table": "x.csv"}}, "the server has no rows"),
        ({"client": [{"name": "server"}]}, "cannot be the name of a site|server's own"),
        ({"client": [{"name": "south", "table": "x.csv"}]}, "table"),
    ],
)
def test_a_job_across_rows_holds_nothing_private(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    path = write_clinics(tmp_path, {"solver": "sqp"})["job"]
    path.write_text(tomli_w.dumps(tomllib.loads(path.read_text()) | change))
    with pytest.raises(JobError, match=says):
        read_federation_job(path)


def test_a_client_keeps_columns_out(tmp_path: Path) -> None:
    paths = write_clinics(tmp_path, {"solver": "sqp"})
    paths["south"].write_text(paths["south"].read_text() + '\n[policy]\ncolumns = ["a", "b", "c", "sick", "sex"]\n')
    ends = run(paths)
    assert "the job asks for column 'ward'" in str(ends["south"])
    assert all(isinstance(end, EvenhandError) for end in ends.values())


def test_a_client_that_lacks_a_column_ends_the_run_everywhere(tmp_path: Path) -> None:
    paths = write_clinics(tmp_path, {"solver": "sqp"})
    table = tmp_path / "south" / "table.csv"
    pd.read_csv(table).drop(columns="b").to_csv(table, index=False)
    ends = run(paths)
    assert all(isinstance(end, EvenhandError) for end in ends.values())
    assert "client 'south'" in str(ends["server"])


@pytest.mark.parametrize("kind", ["party", "client"])
def test_a_job_file_with_tables_is_for_training_in_one_place(tmp_path: Path, kind: str) -> None:
    section = {"name": "north", "table": "north.csv", "id": "patient"}
    split = "vertical" if kind == "party" else "horizontal"
    path = tmp_path / "job.toml"
    path.write_text(tomli_w.dumps({"job": {"split": split}, kind: [section, {**section, "name": "south"}]}))
    with pytest.raises(JobError, match=r"job\.toml: this job file is for evenhand train") as caught:
        read_federation_job(path)
    assert "unknown key" not in str(caught.value)
