"""A job does what its submitter was told: honest patience, no stale runs, and endings that name who is missing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="make federation runs these in an environment with NVIDIA FLARE")

import tomli_w
from support.shops import LEASE, PARTIES, Shops, job_processes, running_shops, wait_until

import evenhand.federation
from evenhand.cli.federation_client import start
from evenhand.errors import FELL_SHORT, InputError, LostError, RunError
from evenhand.jobs.federation.files import FederationJob, read_federation_job
from evenhand.runtime.nvflare import submitting
from evenhand.runtime.nvflare.kits import PARTICIPANTS

pytestmark = pytest.mark.timeout(300)
LONG: dict[str, Any] = {"solver": "vfb2-sgd", "max_rounds": 100_000, "tol": 0.0, "options": {"batch_size": 1}}


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shops]:
    with running_shops(tmp_path_factory.mktemp("submitting")) as running:
        yield running


@pytest.fixture
def federation(shops: Shops) -> Iterator[evenhand.federation.Federation]:
    with evenhand.federation.connect(shops.folder / "kits" / "admin", 120.0) as found:
        yield found


def job(shops: Shops, **changes: Any) -> FederationJob:
    content = read_federation_job(shops.paths["job"])
    assert isinstance(content, FederationJob)
    return FederationJob(job=content.job.model_copy(update=changes), party=content.party)


def log(shops: Shops, name: str) -> str:
    return (shops.folder / f"{name}.log").read_text(errors="replace")


def is_running(shops: Shops) -> bool:
    return all(job_processes(shops.running[name]) for name in PARTIES)


def kill(shops: Shops, name: str) -> None:
    for process in shops.running[name].processes():
        process.kill()
    shops.running[name].wait()


def command(shops: Shops, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "evenhand", "federation", *words, "--kit", str(shops.folder / "kits" / "admin")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_a_party_that_left_is_missing_although_it_is_still_registered(
    shops: Shops, federation: evenhand.federation.Federation
) -> None:
    wait_until(lambda: all(one.answers for one in federation.parties().values()))
    kill(shops, "shop")
    try:
        there = federation.parties()
        assert there["shop"].heard is not None, "it is still registered"
        assert {name for name, one in there.items() if one.answers} == {"bank", "phone"}
        with pytest.raises(LostError, match=r"shop missing: shop has joined, and does not answer any more") as caught:
            shops.submit(patience=2.0)
        assert caught.value.missing == ("shop",)
        assert federation.jobs() == []
        # It leaves after the job was submitted: the job is aborted in the queue.
        content = job(shops).model_dump(exclude_none=True, mode="json")
        job_id = submitting.submit(federation.admin, "late", content, PARTIES)
        with pytest.raises(LostError, match=r"shop missing: .* was aborted and will not run"):
            submitting.wait_for_end(federation.admin, job_id, print, patience=6.0)
        # Nobody's look aborts a job that goes on by itself.
        waiting = submitting.submit(federation.admin, "waiting", content, PARTIES, detach=True)
        with evenhand.federation.connect(federation.admin.kit, 2.0) as looking:
            seen: list[str] = []

            def look(status: str) -> None:
                seen.append(status)
                if any("shop" in one for one in seen):
                    time.sleep(6.0)
                    federation.attach(waiting).cancel()

            with pytest.raises(RunError, match=r"^job \S+ was aborted$"):
                looking.attach(waiting).wait(look)
        assert any("waiting for shop" in one for one in seen)
    finally:
        shops.start("shop")
    wait_until(lambda: federation.parties()["shop"].answers)
    time.sleep(15.0)
    assert "ABORTED" in federation.record(job_id).status
    assert not (shops.folder / "server" / f"{job_id}-server").exists()


def test_a_killed_process_is_named_at_the_submitter_the_server_and_each_party(
    shops: Shops, federation: evenhand.federation.Federation
) -> None:
    submission = federation.submit(job(shops, **LONG))
    seen: list[str] = []

    def on_progress(_: Any) -> None:
        if is_running(shops) and not seen and submission.progress().report:  # type: ignore[union-attr]
            seen.append("killed")
            for process in job_processes(shops.running["shop"]):
                process.kill()

    with pytest.raises(LostError, match="shop is missing: its process ended without a word") as caught:
        submission.wait(on_progress=on_progress)
    assert caught.value.missing == ("shop",)
    for name in ("server", "bank", "phone"):
        assert "the run ended: shop is missing: its process ended without a word" in log(shops, name), name


def test_a_party_that_stops_is_named_to_all_others(shops: Shops) -> None:
    table = shops.paths["phone"].parent / "table.csv"
    before = table.read_text()
    table.write_text(before + before.splitlines()[-1] + "\n")
    try:
        with pytest.raises(RunError, match=r"phone: it stopped"):
            shops.submit()
    finally:
        table.write_text(before)
    for name in ("server", "bank", "shop"):
        assert "the run ended: phone: it stopped" in log(shops, name), name


def test_a_job_ends_with_its_submitter(shops: Shops, federation: evenhand.federation.Federation) -> None:
    content = job(shops, **LONG).model_dump(exclude_none=True, mode="json")
    (shops.folder / "long.toml").write_text(tomli_w.dumps(content))
    interrupted, killed = (command(shops, "submit", str(shops.folder / "long.toml")) for _ in range(2))
    wait_until(lambda: [one.status for one in federation.jobs()][-2:] == ["RUNNING"] * 2)
    first, second = federation.jobs()[-2:]
    time.sleep(8.0)
    interrupted.send_signal(signal.SIGINT)
    out, said = interrupted.communicate(timeout=60)
    assert interrupted.returncode == 130, said
    assert "was aborted; resume with: --resume" in said
    aborted = first if first.id in out else second
    other = second if aborted is first else first
    wait_until(lambda: not federation.record(aborted.id).active)
    # The other one has no time to say anything.
    assert federation.record(other.id).active
    killed.kill()
    killed.communicate()
    wait_until(lambda: not federation.record(other.id).active)
    with pytest.raises(RunError, match=f"nobody has followed the job for {LEASE:.0f} seconds"):
        federation.attach(other.id).wait()


def test_a_detached_job_goes_on_and_can_be_followed_and_aborted(
    shops: Shops, federation: evenhand.federation.Federation
) -> None:
    (shops.folder / "job.toml").write_text(tomli_w.dumps(job(shops, **LONG).model_dump(exclude_none=True, mode="json")))
    submitted = command(shops, "submit", str(shops.folder / "job.toml"), "--detach")
    run, said = submitted.communicate(timeout=120)
    assert submitted.returncode == 0, said
    run = run.strip()
    wait_until(lambda: federation.record(run).status == "RUNNING")
    time.sleep(LEASE + 5.0)
    there, said = command(shops, "status", "--json").communicate(timeout=60)
    found = json.loads(there)
    assert {name for name, one in found["parties"].items() if one["answers"]} == set(PARTIES), said
    (active,) = found["jobs"]
    assert active["id"] == run
    assert active["progress"]["report"]["round"] > 0
    attached = command(shops, "attach", run)
    time.sleep(5.0)
    _, said = command(shops, "abort", run).communicate(timeout=60)
    out, said = attached.communicate(timeout=60)
    assert attached.returncode in (RunError.exit_code, LostError.exit_code), out + said
    assert "the job was aborted" in said
    assert "round" in out
    wait_until(lambda: "the run ended: the job was aborted" in log(shops, "shop"))


def test_exit_codes_are_those_of_train(shops: Shops, tmp_path: Path) -> None:
    content = job(shops, max_rounds=1).model_dump(exclude_none=True, mode="json")
    (tmp_path / "short.toml").write_text(tomli_w.dumps(content))
    done = command(shops, "submit", str(tmp_path / "short.toml"), "--result", str(tmp_path / "result.json"))
    out, said = done.communicate(timeout=120)
    assert done.returncode == FELL_SHORT, out + said
    told = json.loads((tmp_path / "result.json").read_text())
    assert told["outcome"] == "fell short"
    assert told["exit_code"] == FELL_SHORT
    assert told["run"] in out
    assert told["result"]["certificate"]["rounds"] == 1
    assert "fell short: " in said


@pytest.mark.parametrize("side", ["server", *PARTIES])
def test_each_side_can_watch_its_run_and_the_server_has_a_page(shops: Shops, side: str) -> None:
    if side == "server":
        shops.submit()
    folder = shops.side(side)
    assert folder.finished

    def evenhand(*words: str) -> subprocess.CompletedProcess[str]:
        words = (sys.executable, "-m", "evenhand", *words)
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(words, capture_output=True, text=True, check=False, env=env)

    watched = evenhand("watch", str(folder.path))
    assert watched.returncode == 0, watched.stderr
    assert ("round" if side == "server" else "messages sent and received") in watched.stdout
    page = evenhand("report", str(folder.path))
    if side == "server":
        assert page.returncode == 0, page.stderr
    else:
        assert page.returncode == InputError.exit_code
        assert f"is the side of {side}" in page.stderr


def test_a_submitter_and_an_operator_may_do_their_own_part_and_no_more(
    shops: Shops, federation: evenhand.federation.Federation
) -> None:
    kits = shops.folder / "kits"
    with (
        evenhand.federation.connect(kits / "submitter", 60.0) as submitter,
        evenhand.federation.connect(kits / "operator", 60.0) as operator,
    ):
        outcome = submitter.submit(job(shops)).wait()
        assert outcome.result["certificate"]["converged"]
        assert set(submitter.parties()) == set(operator.parties()) == set(PARTIES)
        refused = [
            lambda: submitter.revoke("shop"),
            lambda: operator.submit(job(shops)),
            lambda: operator.attach(outcome.run).wait(),
        ]
        for one in refused:
            with pytest.raises(RunError, match="the server refuses"):
                one()
        other = federation.submit(job(shops, **LONG))
        with pytest.raises(RunError, match="the server refuses"):
            submitter.attach(other.id).cancel()
        assert other.status in ("SUBMITTED", "DISPATCHED", "RUNNING")
        operator.attach(other.id).cancel()
        wait_until(lambda: not federation.record(other.id).active)
    # The party itself refuses, not only the server.
    before = shops.running["shop"].processes()[0].pid
    for ask in (lambda session: session.shutdown("client", ["shop"]), lambda session: session.get_client_env(["shop"])):
        with contextlib.suppress(RunError):
            federation.admin.ask(ask, patience=0.0)
    time.sleep(5.0)
    assert shops.running["shop"].processes()[0].pid == before
    assert federation.parties()["shop"].answers


def test_revoking_a_party_that_does_not_exist_is_an_error(
    shops: Shops, federation: evenhand.federation.Federation
) -> None:
    assert json.loads((shops.folder / "kits" / "admin" / PARTICIPANTS).read_text()) == {"parties": PARTIES}
    with pytest.raises(InputError, match="this federation has no party 'shopp'; did you mean 'shop'"):
        federation.revoke("shopp")
    done = command(shops, "revoke", "nosuch")
    _, said = done.communicate(timeout=60)
    assert done.returncode == InputError.exit_code
    assert "no party 'nosuch'" in said


def test_a_second_process_on_the_same_kit_is_refused_and_the_first_goes_on(
    shops: Shops, federation: evenhand.federation.Federation
) -> None:
    first = shops.running["shop"].processes()
    with pytest.raises(RunError, match=rf"kits/shop.*process {os.getpid()} on "):
        start(shops.folder / "kits" / "shop", shops.paths["shop"], shops.folder / "again")
    assert shops.running["shop"].processes()[0].pid == first[0].pid
    assert federation.parties()["shop"].answers
