"""A server that ends a run and resumes it, again and again, gets no unlimited number of answers."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.federation import Network, run_sites, write_shops

pytest.importorskip("nacl")

from evenhand.jobs.federation.checkpointing import CheckpointManager
from evenhand.jobs.federation.dispatch import party_part, server_part
from evenhand.jobs.federation.files import read_federation_job, site_env
from evenhand.jobs.federation.folders import side_folder
from evenhand.protocol.messages import Message
from evenhand.runtime.site import Site
from evenhand.training.run import one_blas_thread

ROUNDS = 3


class EndsEarly:
    """A server's rule that ends the run when it would send the last question."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, message: Message) -> str | None:
        self.asked += message.kind == "derivative" and message.receiver == "shop"
        return "the server has what it wants" if self.asked > ROUNDS else None


def attempt(paths: dict[str, Path], runs: Path, resume: bool) -> tuple[dict[str, Any], int]:
    """Run the job; return everybody's end, and how often the shop answered."""
    job, network = read_federation_job(paths["job"]), Network()
    others = list(job.parts)
    with ExitStack() as stack:
        folders = {
            name: stack.enter_context(side_folder(runs / name, name, job, None, resume)) for name in ("server", *others)
        }
        for folder in folders.values():
            stack.enter_context(folder.recorded())

        def server(site: Site) -> Any:
            # No checkpoint is ever due: each attempt begins anew.
            checkpoints = CheckpointManager(site, folders["server"], others, 1e6)
            env = site_env(paths["bank"])
            return server_part(job, lambda: env, lambda: site.transcript, checkpoints, paths["identity"])

        def party(name: str) -> Any:
            return lambda site: party_part(
                job, site_env(paths[name]), None, CheckpointManager(site, folders[name], others, 1e6)
            )

        with one_blas_thread():
            programs = {"server": server} | {name: party(name) for name in others}
            ends = run_sites(programs, network, {"server": EndsEarly()})
        sent = [entry for entry in network.sites["shop"].transcript if entry.sender == "shop"]
    return ends, sum(entry.messages for entry in sent if entry.kind == "direction")


def test_answers_over_all_attempts_are_limited(tmp_path: Path) -> None:
    paths = write_shops(tmp_path, {"solver": "subspace", "protection": "none", "max_rounds": ROUNDS, "tol": 0.0})
    answered, ends = 0, {}
    for number in range(5):
        ends, count = attempt(paths, tmp_path / "runs", number > 0)
        assert isinstance(ends["server"], Exception)
        answered += count
    assert ROUNDS <= answered <= 2 * ROUNDS
    assert "in all attempts at this run" in str(ends["shop"])
