"""A party is gone for good in the middle of training: the run ends, or goes on without it, as the job says."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w
from support.federation import Network, assert_alike, run_sites, write_identities, write_shops

from evenhand.errors import JobError, LostError, RunError
from evenhand.jobs.federation.dispatch import party_part
from evenhand.jobs.federation.files import parse_federation_job, read_federation_job, read_party, site_env
from evenhand.jobs.federation.sites import PartyEnd, server_program
from evenhand.jobs.folder import read_job
from evenhand.models.saved import to_state
from evenhand.protocol.messages import Message
from evenhand.runtime.links import LinkSettings
from evenhand.runtime.site import Site
from evenhand.training.run import one_blas_thread

FAIR = {"kind": "equal-opportunity", "epsilon": 0.05}
JOB = {"constraint": FAIR, "max_rounds": 30, "test_fraction": 0.2, "lost_party": "continue", "numbers": "standard"}


class DiedError(Exception):
    """A process that is killed."""


def write_four(folder: Path, job: dict[str, Any], without: str = "") -> dict[str, Path]:
    """Shops with a fourth party, or without one of them."""
    paths = write_shops(folder, job)
    rng = np.random.default_rng(9)
    table = pd.read_csv(folder / "bank" / "table.csv")[["id"]].assign(letters=rng.normal(size=120))
    (folder / "post").mkdir()
    table.to_csv(folder / "post" / "table.csv", index=False)
    section = {"name": "post", "role": "passive", "table": "table.csv", "id": "id"}
    paths["post"] = folder / "post" / "party.toml"
    paths["post"].write_text(tomli_w.dumps({"identity": "identity", "party": section}))
    members = [{"name": name, "role": "active" if name == "bank" else "passive"} for name in four(without)]
    paths["job"].write_text(tomli_w.dumps({"job": job, "party": members}))
    for own in folder.glob("*/identity"):
        shutil.rmtree(own)
    return paths | write_identities(folder, [one["name"] for one in members])


def four(without: str = "") -> list[str]:
    return [name for name in ("bank", "shop", "phone", "post") if name != without]


def run(
    paths: Mapping[str, Path],
    dying: str = "",
    kind: str = "",
    times: int = 0,
    *,
    told: bool = True,
    heard: list[Message] | None = None,
) -> dict[str, Any]:
    """Run all sites; one dies when it is about to send a kind of message for this time.

    The server's supervisor tells it so, or it finds out by the silence. All other messages are added to `heard`.
    """
    job = read_federation_job(paths["job"])
    network = Network()
    sites: dict[str, Site] = {}

    def server(site: Site) -> Any:
        sites["server"], bank = site, paths["bank"]
        return server_program(job, read_party(bank), bank.parent, lambda: site.transcript, identity=paths["identity"])

    def party(name: str) -> Any:
        return lambda _: party_part(job, site_env(paths[name]), None)

    sent: list[str] = []

    def veto(message: Message) -> str | None:
        sent.extend(one for one in (message.kind, *message.inside) if one == kind)
        if len(sent) < times:
            return note(message)
        network.dead.add(dying)
        if told:
            sites["server"].lose(dying)
        raise DiedError

    def note(message: Message) -> None:
        if heard is not None:
            heard.append(message)

    vetoes = {name: veto if name == dying else note for name in job.parts}
    links = LinkSettings(window=16, retry=0.05, longest_retry=0.2, ping=0.2, patience=0.8 if not told else 20.0)
    with one_blas_thread():
        programs = {"server": server, **{name: party(name) for name in job.parts}}
        return run_sites(programs, network, vetoes, links=links)


SOLVERS = {"subspace": "direction", "learners": "learner-outputs", "trees": "leaves"}


@pytest.mark.parametrize(("solver", "told"), [("subspace", False), *((one, True) for one in SOLVERS)])
def test_the_others_train_a_model_without_it(solver: str, told: bool, tmp_path: Path) -> None:
    if solver == "trees":
        pytest.importorskip("lightgbm")
    job = JOB | {"solver": solver, "tol": 1e-6} | ({} if solver == "subspace" else {"max_rounds": 6})
    ends = run(write_four(tmp_path / "four", job), "shop", SOLVERS[solver], 3, told=told)
    assert isinstance(ends["shop"], DiedError)
    assert isinstance(ends["server"], dict), ends
    fewer = run(write_four(tmp_path / "three", job, without="shop"))
    found, expected = ends["server"], fewer["server"]
    assert found.pop("gone") == [{"party": "shop", "round": 3}]
    # Linear models go on from where they were; others begin anew, and come out the same.
    near = 1e-4 if solver == "subspace" else 1e-9
    assert found["certificate"]["converged"] == expected["certificate"]["converged"]
    assert found["certificate"]["objective"] == pytest.approx(expected["certificate"]["objective"], rel=near)
    assert found["certificate"]["rounds"] == expected["certificate"]["rounds"] + 2
    assert_alike(found["quality"]["train"]["DEO"], pytest.approx(expected["quality"]["train"]["DEO"], abs=2 * near))
    for name in four("shop"):
        assert isinstance(ends[name], PartyEnd), ends
        assert ends[name].gone == ["shop"]
        assert list(ends[name].terms.names) == ["bank", "post", "phone"]
        for key, value in to_state(fewer[name].model).items():
            assert to_state(ends[name].model)[key] == pytest.approx(value, abs=100 * near), key


def test_papers_solvers_go_on_too(tmp_path: Path) -> None:
    ends = run(write_four(tmp_path, JOB | {"solver": "fairvfl", "max_rounds": 4}), "shop", "scores", 3)
    assert ends["server"]["gone"] == [{"party": "shop", "round": 2}]
    assert ends["server"]["certificate"]["without"] == "shop (gone in round 2)"


def test_a_run_ends_by_default_and_says_how_to_resume(tmp_path: Path) -> None:
    """The error names the party and says how to go on."""
    job = {**JOB, "solver": "subspace", "lost_party": "end"}
    ends = run(write_four(tmp_path, job), "shop", "direction", 2, told=False)
    assert isinstance(ends["server"], LostError)
    assert ends["server"].missing == ("shop",)
    assert "then resume from the last checkpoint" in str(ends["server"])
    assert "cannot go on" not in str(ends["server"])


def test_a_masked_sum_over_one_party_is_refused(tmp_path: Path) -> None:
    """With one passive party left the run ends, and says that too few are left."""
    paths = write_shops(tmp_path, {**JOB, "solver": "subspace"})
    ends = run(paths, "shop", "direction", 2, told=False)
    assert isinstance(ends["server"], LostError)
    assert str(ends["server"]).endswith(
        "the run cannot go on without shop: a masked sum needs 2 passive parties, and only phone would be left"
    )


def test_sums_after_a_party_is_gone_have_masks_of_their_own(tmp_path: Path) -> None:
    """Words that were sent before it was known are under masks that nobody can take off."""
    heard: list[Message] = []
    ends = run(write_four(tmp_path, {**JOB, "solver": "subspace"}), "shop", "direction", 3, heard=heard)
    assert isinstance(ends["server"], dict), ends
    sent: dict[str, list[Message]] = {name: [] for name in four("bank")}
    for one in heard:
        if one.kind == "masked" and one.text("kind") == "direction":
            sent[one.sender].append(one)
    # Two rounds with shop; the third is not complete, and numbers begin again without it.
    assert len(sent["shop"]) == 2
    assert len(sent["phone"]) == len(sent["post"]) > 4
    for place, (phone, post) in enumerate(zip(sent["phone"], sent["post"], strict=True)):
        both = (phone["words"].view(np.uint64) + post["words"].view(np.uint64)).view(np.int64)
        small = float(np.mean(np.abs(both.astype(np.float64)) < 2.0**55))
        # Random words are as small as that once in 256 times; sums of rows and of inner products nearly always.
        assert small < 0.2 if place < 3 else small > 0.6, (place, small)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ({"lost_party": "end"}, "only where the run ends when a party is gone"),
        ({"least_summed": 2}, "masked sums before and after differ by that party alone"),
    ],
)
def test_a_party_refuses_by_its_policy(policy: dict[str, Any], says: str, tmp_path: Path) -> None:
    paths = write_four(tmp_path, {**JOB, "solver": "subspace"})
    content = tomllib.loads(paths["phone"].read_text())
    paths["phone"].write_text(tomli_w.dumps(content | {"policy": policy}))
    ends = run(paths)
    assert isinstance(ends["server"], RunError)
    assert "phone: " in str(ends["server"])
    assert says in str(ends["server"])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"protection": "encrypted"}, "weights are in shares"),
        ({"label_privacy": {"epsilon": 1.0}}, "trains more than once on the same responses"),
        ({"solver": "trees", "options": {"interactions": "full"}}, "trees that cross parties"),
        ({"solver": "vfb2-sgd"}, "in which parties send each other messages"),
        ({"lost_party": "wait"}, "lost_party"),
    ],
)
def test_jobs_that_cannot_go_on_are_refused(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    content: dict[str, Any] = {"job": {"lost_party": "continue", **changes}}
    content["party"] = [{"name": "bank", "role": "active"}]
    with pytest.raises(JobError, match=says):
        parse_federation_job(content, "job.toml")


def test_in_one_process_nobody_can_be_lost(tmp_path: Path) -> None:
    paths = write_shops(tmp_path, {"lost_party": "continue"})
    with pytest.raises(JobError, match="in one process no party can be gone"):
        read_job(paths["together"])
