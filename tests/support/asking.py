"""A federation that has finished a vertical run, and questions about people afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from support.federation import Network, run_sites, write_shops

from evenhand.jobs.federation.dispatch import party_part
from evenhand.jobs.federation.files import FederationJob, read_federation_job, read_party, site_env
from evenhand.jobs.federation.folders import side_folder
from evenhand.jobs.federation.predicting import Question, answering_program, asked_run, asking_program
from evenhand.jobs.federation.sites import keep_shares, server_program
from evenhand.models.weight_share import WeightShare
from evenhand.protocol.align import id_sums
from evenhand.runtime.site import Site
from evenhand.training.run import one_blas_thread

PARTIES = ("bank", "shop", "phone")


def trained(
    tmp_path: Path, job: dict[str, Any], change: Callable[[dict[str, Path]], None] = lambda _: None
) -> dict[str, Path]:
    """A federation that has finished a run, on files that `change` may change; each side's folder is under runs/."""
    paths = write_shops(tmp_path, job)
    change(paths)
    content = read_federation_job(paths["job"])
    assert isinstance(content, FederationJob)
    shares: dict[str, WeightShare] = {}

    def server(site: Site) -> Any:
        return server_program(
            content,
            read_party(paths["bank"]),
            paths["bank"].parent,
            lambda: site.transcript,
            identity=paths["identity"],
            keep=shares.update,
        )

    def party(name: str) -> Any:
        return lambda _: party_part(content, site_env(paths[name]), None)

    with one_blas_thread():
        ends = run_sites({"server": server, **{name: party(name) for name in content.parts}}, Network())
    for name, end in ends.items():
        with side_folder(tmp_path / "runs" / name / "first", name, content, None, False) as folder:
            if name == "server":
                keep_shares(folder.folder, shares)
            folder.finish(end if name == "server" else end.write(folder.folder))
    return paths


def asked(paths: dict[str, Path], runs: Path, ids: list[str]) -> dict[str, Any]:
    kind, sums = id_sums(pd.Index(ids))
    question = Question(run="first", kind=kind, sums=sums.tolist())

    def party(name: str) -> Any:
        own = read_party(paths[name])
        return lambda _: answering_program(*asked_run(runs / name / "first"), question, own, paths[name].parent)

    def server(_: Site) -> Any:
        return asking_program(*asked_run(runs / "server" / "first"), question, paths["identity"])

    everybody = [*PARTIES, *(["notary"] if "notary" in paths else [])]
    with one_blas_thread():
        return run_sites({"server": server, **{name: party(name) for name in everybody}}, Network(0.1))
