"""A real SuperLink and SuperNodes on loopback, with TLS and node keys: the run is that of one process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.federation import write_shops

pytest.importorskip("flwr", reason="make flower runs these in an environment with Flower")

from support.superlink import SuperLink
from support.tls import make_node_key

from evenhand.cli.demo import write_demo
from evenhand.cli.demo_federation import split_files
from evenhand.data import load
from evenhand.errors import FetchError
from evenhand.jobs.federation.files import read_federation_job
from evenhand.jobs.federation.flower_app import write_app
from evenhand.jobs.folder import read_job
from evenhand.jobs.vertical.runs import run_vertical_job
from evenhand.runtime.checkpointfiles import state_bytes

FAIR = {"max_rounds": 4, "constraint": {"kind": "equal-opportunity", "epsilon": 0.05}, "test_fraction": 0.2}
pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]


def assert_run_of_one_process(link: SuperLink, run: str, together: Path, tmp_path: Path) -> None:
    alone = run_vertical_job(read_job(together), together.parent, tmp_path / "alone")  # type: ignore[arg-type]
    assert link.side("superlink", run).result == json.loads(json.dumps(alone.result))
    for name in link.parties:
        side = link.side(name, run)
        side.check()
        assert state_bytes(side.read_party(name, "weights")) == state_bytes(alone.folder.read_party(name, "weights"))
        assert {path.name for path in (side.path / "parties").iterdir()} == {name}
        assert "terms of this run" in link.log(name)


def test_three_shops_on_a_superlink(tmp_path: Path) -> None:
    paths = write_shops(tmp_path / "sites", FAIR, ("bank",))
    write_app(read_federation_job(paths["job"]), "shops", tmp_path / "app")
    parties = {name: paths[name] for name in ("bank", "shop", "phone")}
    with SuperLink(tmp_path / "link", parties, paths["bank"]) as link:
        make_node_key(link.folder, "thief")
        thief = link.start_node("thief", paths["shop"], key="thief")
        run, status = link.run(tmp_path / "app")
        assert status == "finished:completed", link.log("superlink")
        assert_run_of_one_process(link, run, paths["together"], tmp_path)
        # A key that nobody registered is not let in.
        assert thief.poll() not in (None, 0)


def test_the_demo_on_a_superlink(tmp_path: Path) -> None:
    try:
        data = load("adult")
    except FetchError as error:
        pytest.skip(f"Adult cannot be had here: {error}")
    jobs = write_demo(data, tmp_path / "demo", 0.01, 1000, published=False)
    parties, public = split_files(jobs, tmp_path / "demo")
    write_app(read_federation_job(public["fair"]), "fair", tmp_path / "app")
    with SuperLink(tmp_path / "link", parties, parties["bank"]) as link:
        run, status = link.run(tmp_path / "app")
        assert status == "finished:completed", link.log("superlink")
        assert_run_of_one_process(link, run, jobs["fair"], tmp_path)
