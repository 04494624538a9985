"""A federation that is cut off at any moment goes on from the last checkpoint that all have, and ends the same."""

from __future__ import annotations

import errno
import random
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.contracts import assert_same_state
from support.federation import Network, run_sites, write_shops

from evenhand.errors import EvenhandError, ResourceError, RunError
from evenhand.jobs.federation.checkpointing import CheckpointManager
from evenhand.jobs.federation.dispatch import party_part
from evenhand.jobs.federation.files import read_federation_job, read_party, site_env
from evenhand.jobs.federation.folders import SideFolder, side_folder
from evenhand.jobs.federation.sites import server_program
from evenhand.models.saved import to_state
from evenhand.runtime.consistent_cut import ConsistentCut
from evenhand.runtime.files import disk_error
from evenhand.runtime.site import Site
from evenhand.training.run import one_blas_thread

PARTIES = ("bank", "shop", "phone")
FAIR = {"kind": "equal-opportunity", "epsilon": 0.05}


class Cutting(Network):
    """A network that, once the server has kept a checkpoint, carries so many packets and then ends every site.

    Counted from the checkpoint, not from the start: how often a packet is sent again depends on the machine's pace.
    """

    def __init__(self, packets: int, seed: int, kept: Path) -> None:
        super().__init__(loss=0.1, seed=seed)
        self.left = packets
        self.kept = kept
        self.over = threading.Event()
        self.meddle = self._count

    def _count(self, _sender: str, _to: str, content: bytes) -> bytes:
        self.left -= self.kept.exists()
        if self.left <= 0:
            self.over.set()
        return content


def run(paths: dict[str, Path], network: Network, runs: Path, resume: bool, **settings: Any) -> dict[str, Any]:
    """Everybody's end; each side has its run folder under a name of its own."""
    job = read_federation_job(paths["job"])
    with ExitStack() as stack:

        def folder(name: str) -> SideFolder:
            return stack.enter_context(side_folder(runs / name, name, job, None, resume))

        others = list(job.parts)
        folders = {name: folder(name) for name in ("server", *others)}

        def server(site: Site) -> Any:
            checkpoints = CheckpointManager(site, folders["server"], others, 0.0)
            own = read_party(paths["bank"])
            return server_program(
                job, own, paths["bank"].parent, lambda: site.transcript, checkpoints, paths["identity"]
            )

        def party(name: str) -> Any:
            def program(site: Site) -> Any:
                return party_part(job, site_env(paths[name]), None, CheckpointManager(site, folders[name], others, 0.0))

            return program

        with one_blas_thread():
            return run_sites({"server": server, **{name: party(name) for name in others}}, network, **settings)


def resumed_until_done(paths: dict[str, Path], runs: Path, seed: int) -> tuple[dict[str, Any], int]:
    """What comes out when all are cut off up to three times, and how often they were."""
    rng, cut_off = random.Random(seed), 0
    for cuts in range(4):
        # Few packets at first, so that the run cannot be over before it is cut off.
        packets = rng.randrange(1, (12, 60, 60)[cuts]) if cuts < 3 else 10**6
        network = Cutting(packets, seed, runs / "server" / "checkpoints")
        ends = run(paths, network, runs, cuts > 0, over=network.over)
        if not any(isinstance(end, Exception) for end in ends.values()):
            break
        assert all(isinstance(end, EvenhandError) for end in ends.values() if isinstance(end, Exception)), ends
        cut_off += 1
    return ends, cut_off


@pytest.mark.parametrize(
    ("job", "seed"),
    [
        ({"solver": "subspace", "max_rounds": 20, "tol": 1e-12, "constraint": FAIR, "test_fraction": 0.2}, 0),
        ({"solver": "fairvfl", "max_rounds": 15, "constraint": FAIR}, 1),
        ({"solver": "fedbcd", "max_rounds": 20}, 2),
        ({"solver": "trees", "model": "trees", "max_rounds": 9, "options": {"interactions": "full"}}, 3),
    ],
)
def test_however_often_it_is_cut_off_it_ends_where_it_would_have(
    job: dict[str, Any], seed: int, tmp_path: Path
) -> None:
    if job["solver"] == "trees":
        pytest.importorskip("lightgbm")
    paths = write_shops(tmp_path, job, ("bank",) if "protection" in job else ("bank", "phone"))
    whole = run(paths, Network(), tmp_path / "whole", False)
    ends, cut_off = resumed_until_done(paths, tmp_path / "cut", seed)
    assert cut_off
    if "protection" in job:
        # Every attempt has a new session: columns are hidden again, from new random numbers.
        assert all(ends["server"].pop(name) >= whole["server"].pop(name) for name in ("bytes", "messages"))
    assert ends["server"] == whole["server"]
    for name in PARTIES:
        assert_same_state(to_state(ends[name].model), to_state(whole[name].model))


def test_shared_weights_end_near_where_they_would_have(tmp_path: Path) -> None:
    job = {"solver": "subspace", "max_rounds": 12, "tol": 0.0, "protection": "dealer"}
    paths = write_shops(tmp_path, job, ("bank",))
    whole = run(paths, Network(), tmp_path / "whole", False)
    ends, cut_off = resumed_until_done(paths, tmp_path / "cut", 5)
    assert cut_off
    one, other = (found["server"]["certificate"]["objective"] for found in (ends, whole))
    assert one == pytest.approx(other, rel=1e-6)
    # Shares are drawn anew in each run, and cut a unit apart.
    np.testing.assert_allclose(ends["bank"].model.weights, whole["bank"].model.weights, atol=1e-4)


def test_asynchronous_parties_go_on_too(tmp_path: Path) -> None:
    job = {"solver": "vfb2-saga", "max_rounds": 3, "options": {"batch_size": 30}}
    paths = write_shops(tmp_path, job, ("bank", "phone"))
    ends, cut_off = resumed_until_done(paths, tmp_path / "cut", 4)
    assert cut_off
    assert ends["server"]["certificate"]["rounds"] == 3


def test_a_full_disk_at_a_checkpoint_ends_the_run_with_a_word_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write_shops(tmp_path, {"max_rounds": 20, "constraint": FAIR})
    whole = run(paths, Network(), tmp_path / "whole", False)
    written = SideFolder.keep

    def full(self: SideFolder, cut: ConsistentCut) -> None:
        if self.name == "shop" and cut.number == 1:
            raise disk_error(self.folder.path, OSError(errno.ENOSPC, "no room"))
        written(self, cut)

    monkeypatch.setattr(SideFolder, "keep", full)
    ends = run(paths, Network(), tmp_path / "cut", False)
    assert isinstance(ends["shop"], ResourceError)
    assert "the disk is full. Make room, then resume the run with --resume" in str(ends["shop"])
    monkeypatch.undo()
    ends = run(paths, Network(), tmp_path / "cut", True)
    assert ends["server"] == whole["server"]


def test_a_run_goes_on_only_on_the_same_job_and_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write_shops(tmp_path, {"solver": "fedbcd", "max_rounds": 20})
    network = Cutting(10**6, 0, tmp_path)
    kept = SideFolder.keep

    def the_last(self: SideFolder, *checkpoint: Any) -> None:
        kept(self, *checkpoint)
        if self.name == "shop":
            network.over.set()

    monkeypatch.setattr(SideFolder, "keep", the_last)
    run(paths, network, tmp_path / "runs", False, over=network.over)
    monkeypatch.undo()
    table = tmp_path / "shop" / "table.csv"
    before = table.read_text()
    table.write_text(before.replace(",x,", ",y,", 1))
    ends = run(paths, Network(), tmp_path / "runs", True)
    assert "was started with other terms or other data" in str(ends["shop"])
    table.write_text(before)
    paths["job"].write_text(paths["job"].read_text().replace("20", "21"))
    with pytest.raises(RunError, match="was started with another job"):
        run(paths, Network(), tmp_path / "runs", True)


def test_a_party_that_had_finished_does_it_again_with_the_others(tmp_path: Path) -> None:
    """Shop was the only one whose part was on its disk when all others were killed."""
    paths = write_shops(tmp_path, {"max_rounds": 20})
    ends = run(paths, Network(), tmp_path / "runs", False)
    job = read_federation_job(paths["job"])
    with side_folder(tmp_path / "runs" / "shop", "shop", job, None, True) as folder:
        folder.finish(ends["shop"].write(folder.folder))
    again = run(paths, Network(), tmp_path / "runs", True)
    assert again["server"] == ends["server"]
    assert_same_state(to_state(again["shop"].model), to_state(ends["shop"].model))
