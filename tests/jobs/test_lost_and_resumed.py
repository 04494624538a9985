"""A run that goes on without a party is interrupted: it resumes from the last checkpoint that had everybody."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs.test_lost_party import JOB, DiedError, four, run, write_four
from support.contracts import assert_same_state
from support.federation import Network, run_sites

from evenhand.arrays import Integers
from evenhand.errors import LostError, ProtocolError, RunError
from evenhand.jobs.federation.checkpointing import CheckpointManager
from evenhand.jobs.federation.dispatch import party_part, server_part
from evenhand.jobs.federation.files import read_federation_job, site_env
from evenhand.jobs.federation.folders import side_folder
from evenhand.jobs.ledger import Ledger
from evenhand.models.saved import to_state
from evenhand.protocol.job import Job
from evenhand.protocol.leaving import PAUSE
from evenhand.protocol.messages import Message
from evenhand.runtime.links import LinkSettings
from evenhand.runtime.site import Site
from evenhand.solvers import roles as solver_roles
from evenhand.solvers.roles import vertical_terms
from evenhand.training.run import one_blas_thread
from evenhand.vertical.problem import PartyData

ANSWERS = {"direction", "leaves", "learner-outputs", "scores"}
LONG = {**JOB, "solver": "fairvfl", "tol": 0.0, "max_rounds": 12, "protection": "masked"}
"""Takes all its rounds, so that there are checkpoints however slow the machine is."""
LINEAR = {**LONG, "solver": "subspace"}


@dataclass
class Attempt:
    """One attempt at a run, in which one party may be gone for good, and everybody may be cut off after that.

    Parameters
    ----------
    paths
        Everybody's files.
    runs
        Folder of the run folders.
    resume
        Whether there was an attempt before.
    gone
        Party that dies when it is about to send its `at`th message of kind `kind`, or the first after that for which
        everybody has a checkpoint.
    absent
        Party that does not take part from the beginning.
    cut_off
        All are interrupted when phone sends its answer of this number after `gone`.

    Attributes
    ----------
    heard
        All messages that left.
    """

    paths: dict[str, Path]
    runs: Path
    resume: bool = False
    gone: str = ""
    kind: str = "scores"
    at: int = 3
    absent: str = ""
    cut_off: int = 0
    patience: float = 20.0
    heard: list[Message] = field(default_factory=list)

    def kept(self) -> bool:
        """Whether everybody has a checkpoint."""
        return all(any((self.runs / name / "checkpoints").glob("0*")) for name in (*four(), "server"))

    def keys(self) -> dict[str, tuple[bytes, int]]:
        """Return everybody's public key of this attempt, and the number of the attempt."""
        found = {
            one.sender: (one["key"].tobytes(), one.integer("attempt")) for one in self.heard if one.kind == "public-key"
        }
        told = next(one for one in self.heard if one.kind == "public-keys")
        return found | {"server": (told["keys"][0].tobytes(), int(told["attempts"][0]))}

    def words(self, name: str) -> list[Integers]:
        """Return a party's answers under masks, by round."""
        sent = [one for one in self.heard if one.kind == "masked" and one.sender == name]
        return [one["words"] for one in sent if one.text("kind") in ANSWERS]

    def sums(self) -> list[Integers]:
        """Return the sums of all answers, by round."""
        return [np.sum(words, axis=0) for words in zip(*map(self.words, four("bank")), strict=True)]

    def run(self) -> dict[str, Any]:
        job, network = read_federation_job(self.paths["job"]), Network()
        others = list(job.parts)
        over, sites = threading.Event(), dict[str, Site]()
        sent = dict.fromkeys(("died", "ended", "answers"), 0)

        def veto(message: Message) -> str | None:
            kinds = (message.kind, *message.inside)
            if message.sender == self.gone and self.kind in kinds:
                sent["died"] += 1
                if sent["died"] >= self.at and self.kept():
                    network.dead.add(self.gone)
                    sites["server"].lose(self.gone)
                    raise DiedError
            self.heard.append(message)
            sent["ended"] += message.kind == "go-on"
            if self.cut_off and sent["ended"] and message.sender == "phone" and ANSWERS & {*kinds}:
                sent["answers"] += 1
                if sent["answers"] == self.cut_off:
                    over.set()
            return None

        with ExitStack() as stack:
            folders = {
                name: stack.enter_context(side_folder(self.runs / name, name, job, None, self.resume))
                for name in ("server", *others)
                if name != self.absent
            }
            for folder in folders.values():
                stack.enter_context(folder.recorded())

            def checkpoints(site: Site) -> CheckpointManager:
                return CheckpointManager(site, folders[site.name], others, 0.0, "run")

            def server(site: Site) -> Any:
                sites["server"], env = site, site_env(self.paths["bank"])
                return server_part(job, lambda: env, lambda: site.transcript, checkpoints(site), self.paths["identity"])

            def party(name: str) -> Callable[[Site], Any]:
                return lambda site: party_part(job, site_env(self.paths[name]), None, checkpoints(site))

            links = LinkSettings(window=16, retry=0.05, longest_retry=0.2, ping=0.2, patience=self.patience)

            def away(_: Site) -> Any:
                raise DiedError

            programs = {"server": server, **{name: party(name) for name in others}}
            if self.absent:
                programs[self.absent] = away
                network.dead.add(self.absent)
            with one_blas_thread():
                return run_sites(programs, network, dict.fromkeys(programs, veto), links, over)


def interrupted(paths: dict[str, Path], runs: Path, **settings: Any) -> Attempt:
    """Return an attempt in which shop was gone, and all others were cut off two rounds later."""
    attempt = Attempt(paths, runs, gone="shop", cut_off=2, **settings)
    ends = attempt.run()
    assert isinstance(ends["shop"], DiedError), ends
    assert "stopped from outside" in str(ends["server"]), ends
    kinds = [one.kind for one in attempt.heard]
    assert "go-on" in kinds, sorted(set(kinds))
    return attempt


@pytest.mark.parametrize(("job", "kind"), [(LINEAR | {"protection": "none"}, "direction"), (LONG, "saved")])
def test_with_everybody_back_it_ends_as_if_nobody_had_been_gone(job: dict[str, Any], kind: str, tmp_path: Path) -> None:
    """Shop is gone in a round, or between a checkpoint and its word that it has one."""
    paths = write_four(tmp_path, job)
    whole = Attempt(paths, tmp_path / "whole")
    expected = whole.run()
    first = interrupted(paths, tmp_path / "runs", kind=kind, at=2)
    again = Attempt(paths, tmp_path / "runs", True)
    ends = again.run()
    assert {one.integer("number") > 0 for one in again.heard if one.kind == "resume"} == {True}
    assert ends["server"] == expected["server"]
    for name in four():
        assert_same_state(to_state(ends[name].model), to_state(expected[name].model))
    if job["protection"] == "masked":
        assert_masks_are_new(whole, first, again)


def assert_masks_are_new(whole: Attempt, first: Attempt, again: Attempt) -> None:
    """Rounds that are repeated have the same sums, and no key and no masked word of the first attempt."""
    before, repeated = first.keys(), again.keys()
    assert before.keys() == repeated.keys() == {*four(), "server"}
    for name, (key, number) in before.items():
        assert key != repeated[name][0]
        assert (number, repeated[name][1]) == (1, 2)
    sums, sums_again = whole.sums(), again.sums()
    start = len(sums) - len(sums_again)
    assert start > 0
    for one, other in zip(sums[start:], sums_again, strict=True):
        np.testing.assert_array_equal(one, other)
    for name in four("bank"):
        # The same content was sent before: without masks of their own, words would be the same.
        sent = np.concatenate([*first.words(name), *whole.words(name)])
        assert np.intersect1d(sent, np.concatenate(again.words(name))).size == 0


def test_a_party_that_is_still_away_is_named(tmp_path: Path) -> None:
    paths = write_four(tmp_path, LONG)
    interrupted(paths, tmp_path / "runs")
    ends = Attempt(paths, tmp_path / "runs", True, absent="shop", patience=0.8).run()
    assert isinstance(ends["server"], LostError)
    assert ends["server"].missing == ("shop",)
    assert "check that it runs and can be reached, then resume from the last checkpoint" in str(ends["server"])
    # Nothing is lost by the attempt.
    assert isinstance(Attempt(paths, tmp_path / "runs", True).run()["server"], dict)


def test_a_party_that_comes_back_with_another_table_is_refused(tmp_path: Path) -> None:
    paths = write_four(tmp_path, LONG)
    interrupted(paths, tmp_path / "runs")
    table = paths["shop"].parent / "table.csv"
    table.write_text(table.read_text().replace(",x,", ",y,", 1))
    again = Attempt(paths, tmp_path / "runs", True)
    ends = again.run()
    assert isinstance(ends["shop"], RunError)
    where = re.escape(str(tmp_path / "runs" / "shop"))
    assert re.match(f"{where} was started with other terms or other data; put the table back", str(ends["shop"]))
    assert all(isinstance(end, Exception) for end in ends.values())
    assert not [one for one in again.heard if one.kind in ("masked", "derivative")]


@pytest.mark.parametrize(("job", "kind"), [(LINEAR, "direction"), (LONG, "scores")])
def test_the_same_party_may_be_gone_again(job: dict[str, Any], kind: str, tmp_path: Path) -> None:
    paths = write_four(tmp_path, job)
    interrupted(paths, tmp_path / "runs", kind=kind)
    ends = Attempt(paths, tmp_path / "runs", True, gone="shop", kind=kind, at=1).run()
    assert isinstance(ends["server"], dict), ends
    assert [one["party"] for one in ends["server"]["gone"]] == ["shop"]
    assert list(ends["phone"].terms.names) == ["bank", "post", "phone"]


def test_another_party_may_not_be_gone_behind_masks(tmp_path: Path) -> None:
    """Sums without shop and sums without post, of the same rows, would tell what each of them adds."""
    paths = write_four(tmp_path, LONG)
    interrupted(paths, tmp_path / "runs")
    again = Attempt(paths, tmp_path / "runs", True, gone="post", at=1)
    ends = again.run()
    refused = [name for name in ("phone", "shop") if "a run loses no other parties in another" in str(ends[name])]
    assert refused, ends
    assert isinstance(ends["server"], Exception)


def test_a_training_ends_once() -> None:
    job = Job(solver="subspace", lost_party="continue", protection="none")
    terms = vertical_terms(job, {"bank": "active", "shop": "passive", "phone": "passive"}, 20, {})
    role = solver_roles.party(terms, "shop", PartyData(np.random.default_rng(1).normal(size=(20, 2))))
    role.start()
    pause = PAUSE.message("server", "shop", round=1)
    assert [one.kind for one in role.receive(pause)] == ["paused"]
    with pytest.raises(ProtocolError, match="a second 'pause' is refused"):
        role.receive(pause)


RATE = {"threshold": "rate", "capacity": 0.25, "constraint": []}


@pytest.mark.parametrize(
    ("changes", "most", "says"),
    [
        ({}, 12, "12 rounds are more than the 9 that are left of its 12: its table took 3 before"),
        (RATE, 48, "trains 4 times, up to 12 rounds each) are more than the 45 that are left of its 48"),
        ({}, 15, ""),
    ],
)
def test_terms_without_a_party_leave_room_for_the_rounds_before(
    changes: dict[str, Any], most: int, says: str, tmp_path: Path
) -> None:
    """What follows may take all its rounds; a party with too few refuses at once, and takes no round in vain."""
    paths = write_four(tmp_path, LINEAR | changes)
    paths["phone"].write_text(paths["phone"].read_text() + f"\n[policy]\nmost_rounds = {most}\n")
    ends = run(paths, "shop", "direction", 3)
    assert says in str(ends["server"])
    assert isinstance(ends["server"], RunError if says else dict)
    if says:
        assert Ledger(paths["phone"].parent).rounds("table.csv") == 3
