"""A provisioned federation on loopback: server and parties are processes of their own, with mutual TLS between them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("nvflare", reason="make federation runs these in an environment with NVIDIA FLARE")

from support.federation import assert_told
from support.shops import PARTIES, Shops, job_processes, running_shops, wait_until

from evenhand.cli.federation_client import ask, start
from evenhand.errors import RunError
from evenhand.jobs.folder import read_job
from evenhand.jobs.new_rows import score_new_parties
from evenhand.jobs.vertical.runs import run_vertical_job
from evenhand.models.saved import from_state, joined_model
from evenhand.runtime.checkpointfiles import state_bytes
from evenhand.runtime.nvflare import submitting
from evenhand.runtime.nvflare.admin import Admin
from evenhand.runtime.nvflare.kits import ALLOWED, provision
from evenhand.vertical.messages import DIRECTION

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shops]:
    policy = 'most_rounds = 500\nnever_send = ["scores"]'
    with running_shops(tmp_path_factory.mktemp("shops"), policy) as running:
        yield running


def test_the_run_is_that_of_one_process_and_each_side_keeps_its_own(shops: Shops, tmp_path: Path) -> None:
    told = shops.submit()["result"]
    alone = run_vertical_job(read_job(shops.paths["together"]), shops.folder / "sites", tmp_path / "run")  # type: ignore[arg-type]
    assert told == json.loads(json.dumps(alone.result))
    for name in PARTIES:
        side = shops.side(name)
        assert side.finished
        assert state_bytes(side.read_party(name, "weights")) == state_bytes(alone.folder.read_party(name, "weights"))
        assert {path.name for path in (side.path / "parties").iterdir()} == {name}
        sent = side.read_lines("transcript.jsonl")
        assert {name} == {one["sender"] for one in sent if one["receiver"] == "server"}
        log = (shops.folder / f"{name}.log").read_text()
        assert f"direction: {DIRECTION.reveals[:40]}" in log
        assert_told(name, log, [(one["kind"], one["sender"], one["receiver"]) for one in sent])
    assert not (shops.side("server").path / "parties").exists()


def test_parties_speak_to_each_other_through_the_server(shops: Shops) -> None:
    told = shops.submit(solver="vfb2-svrg", max_rounds=2, options={"batch_size": 40})["result"]
    assert told["certificate"]["rounds"] == 2
    sent = shops.side("shop").read_lines("transcript.jsonl")
    assert [one for one in sent if "server" not in (one["sender"], one["receiver"])]


@pytest.mark.parametrize("level", ["dealer", "encrypted"])
def test_weights_stay_in_shares_and_a_dealer_is_a_site_of_its_own(level: str, tmp_path: Path) -> None:
    with running_shops(tmp_path / "shops", protection=level) as shops:
        told = shops.submit()
        alone = run_vertical_job(read_job(shops.paths["together"]), shops.folder / "sites", tmp_path / "run")  # type: ignore[arg-type]
        # Shares are cut at random, so that both agree to the precision of fixed point.
        objectives = told["result"]["certificate"]["objective"], alone.result["certificate"]["objective"]
        assert objectives[0] == pytest.approx(objectives[1], rel=1e-6)
        for name in PARTIES:
            wanted, other = alone.folder.read_party(name, "weights"), None
            if name != "bank":
                other = from_state(shops.side("server").read_share(name))
            own = joined_model(from_state(shops.side(name).read_party(name, "weights")), other)  # type: ignore[arg-type]
            np.testing.assert_allclose(own.weights, wanted["weights"], atol=1e-4)
        if level == "dealer":
            notary = shops.side("notary")
            assert notary.finished
            assert not (notary.path / "parties").exists()
        pd.read_csv(shops.folder / "sites" / "bank" / "table.csv")[["id"]].to_csv(tmp_path / "ids.csv", index=False)
        assert len(ask(told["run"], tmp_path / "ids.csv", shops.folder / "kits" / "admin")) == 120


def test_people_are_scored_by_the_run_of_a_federation(shops: Shops, tmp_path: Path) -> None:
    run = shops.submit()["run"]
    table = pd.read_csv(shops.folder / "sites" / "bank" / "table.csv")
    asked = table[["id"]].iloc[:7]
    asked.loc[len(asked)] = ["nobody"]
    asked.to_csv(tmp_path / "ids.csv", index=False)
    told = ask(run, tmp_path / "ids.csv", shops.folder / "kits" / "admin")
    alone = run_vertical_job(read_job(shops.paths["together"]), shops.folder / "sites", tmp_path / "run")  # type: ignore[arg-type]
    wanted = score_new_parties(alone.folder).scores.loc[asked["id"].iloc[:7]]
    # Only the run's own folder knows which rows were held out.
    pd.testing.assert_frame_equal(told, wanted.drop(columns="held_out"))


def test_terms_beyond_a_policy_are_refused_and_everybody_is_told(shops: Shops) -> None:
    with pytest.raises(RunError, match="phone: 600 rounds are more than its 500"):
        shops.submit(max_rounds=600)
    kinds = {one["kind"] for one in shops.side("shop").read_lines("transcript.jsonl")}
    assert kinds == {"offer", "accepted", "outcome"}


def test_a_party_keeps_what_its_policy_says_and_others_learn_only_that_it_stopped(shops: Shops) -> None:
    """FairVFL's parties say their scores; phone never does."""
    with pytest.raises(RunError, match=r"phone: it stopped \(RunError\); see the log on its own console"):
        shops.submit(solver="fairvfl", max_rounds=3)
    assert "scores" not in {one["kind"] for one in shops.side("phone").read_lines("transcript.jsonl")}
    assert "messages of kind 'scores' never leave it" in (shops.folder / "phone.log").read_text()


def test_a_job_that_names_other_code_is_not_run(shops: Shops, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = (ALLOWED[0], "nvflare.app_common.np.np_trainer.NPTrainer")
    monkeypatch.setattr(submitting, "submit", partial(submitting.submit, components=theirs))
    with pytest.raises(RunError):
        shops.submit()
    log = "".join((shops.folder / f"{name}.log").read_text() for name in PARTIES)
    assert "'nvflare.app_common.np.np_trainer.NPTrainer'" in log
    assert "is not in allow_list" in log


def test_a_party_whose_process_is_killed_ends_the_run_and_not_the_federation(shops: Shops) -> None:
    """Kill −9 in the midst of training; nobody hangs, the word names who is missing, and the next job runs."""
    killed = threading.Event()

    def kill() -> None:
        while not (found := job_processes(shops.running["shop"])):
            time.sleep(0.2)
        # Well after the beginning: enrolling takes a moment.
        wait_until(lambda: "terms of this run" in (shops.folder / "shop.log").read_text()[length:])
        time.sleep(2.0)
        for process in found:
            process.kill()
        killed.set()

    length = len((shops.folder / "shop.log").read_text())
    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    with pytest.raises(RunError, match=r"ended"):
        shops.submit(solver="vfb2-sgd", max_rounds=50, tol=0.0, options={"batch_size": 1})
    killer.join(60)
    assert killed.is_set()
    assert shops.submit()["result"]["certificate"]["converged"]


def test_a_kit_of_another_authority_is_not_let_in(shops: Shops, tmp_path: Path) -> None:
    provision("shops", "localhost", shops.port, ["thief"], tmp_path / "kits")
    thief = start(tmp_path / "kits" / "thief", shops.paths["shop"], tmp_path / "runs", tmp_path / "thief.log")
    try:
        wait_until(lambda: "CERTIFICATE_VERIFY_FAILED" in (tmp_path / "thief.log").read_text())
        with Admin(shops.folder / "kits" / "admin") as admin:
            there = {client.name for client in admin.ask(lambda session: session.get_system_info()).client_info}
    finally:
        thief.stop()
    assert there == set(PARTIES)
