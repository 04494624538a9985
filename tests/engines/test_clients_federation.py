"""A job across rows on a provisioned federation, whose server has no file; and people are asked for by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="make federation runs these in an environment with NVIDIA FLARE")

from support.clinics import CLIENTS, FAIR, write_clinics
from support.federation import assert_told

from evenhand.cli.demo_federation import free_port, wait_until_open
from evenhand.cli.federation_client import start
from evenhand.jobs.federation.client import connect, run_to_end
from evenhand.jobs.federation.files import read_federation_job
from evenhand.jobs.folder import read_job
from evenhand.jobs.horizontal.runs import run_horizontal_job
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.nvflare.kits import provision


@pytest.mark.timeout(300)
def test_clients_train_the_model_of_one_process(tmp_path: Path) -> None:
    paths = write_clinics(tmp_path / "sites", {"solver": "sqp", "constraint": FAIR})
    port = free_port()
    provision("clinics", "localhost", port, list(CLIENTS), tmp_path / "kits")
    running = [start(tmp_path / "kits" / "server", None, tmp_path / "server", tmp_path / "server.log")]
    try:
        wait_until_open(port)
        running += [
            start(tmp_path / "kits" / name, paths[name], tmp_path / name, tmp_path / f"{name}.log") for name in CLIENTS
        ]
        job = read_federation_job(paths["job"])
        with connect(tmp_path / "kits" / "admin", 90.0) as federation:
            told = run_to_end(federation, job, "clinics", print)._asdict()
    finally:
        for one in running:
            one.stop()
    alone = run_horizontal_job(read_job(paths["together"]), tmp_path / "sites", tmp_path / "run")  # type: ignore[arg-type]
    assert told["result"]["certificate"] == alone.result["certificate"]
    weights = alone.folder.read_model("weights")["weights"]
    for name in CLIENTS:
        side = RunFolder.open(tmp_path / name / told["run"])
        np.testing.assert_array_equal(side.read_model("weights")["weights"], weights)
        log = (tmp_path / f"{name}.log").read_text()
        assert "counts-by-group: To the server" in log
        messages = side.read_lines("transcript.jsonl")
        assert_told(name, log, [(one["kind"], one["sender"], one["receiver"]) for one in messages])
