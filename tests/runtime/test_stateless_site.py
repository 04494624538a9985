"""Participants that are there only while somebody calls: the run is that of one process, though visits fail."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from support.contracts import assert_same_state
from support.schedules import ASYNCHRONOUS, NAMES, case_of

from evenhand.errors import RunError
from evenhand.protocol.roles import Role
from evenhand.protocol.state import State
from evenhand.runtime.checkpointfiles import state_bytes, state_from
from evenhand.runtime.packets import only_acknowledges
from evenhand.runtime.site import Program
from evenhand.runtime.stateless_site import StatelessSite


def alone(role: Role) -> Program[Role]:
    yield role
    return role


class Messenger:
    """Goes round; of each visit it may forget the answer, and then calls again as if it had never been there."""

    def __init__(self, make: Callable[[], dict[str, Role]], loss: float = 0.0, seed: int = 0) -> None:
        self.make, self.loss, self.random = make, loss, random.Random(seed)
        names = list(make())
        self.states: dict[str, State | None] = dict.fromkeys(names)
        self.mail: dict[str, list[tuple[str, bytes]]] = {name: [] for name in names}
        self.ends: dict[str, State] = {}
        self.visits = 0

    def visit(self, name: str) -> None:
        mail = self.mail[name]
        while True:
            self.visits += 1
            role = self.make()[name]
            peers = [one for one in self.mail if one != name]
            site: StatelessSite[Role] = StatelessSite(name, peers, alone(role), float(self.visits), self.states[name])
            answer = site.visit(self.random.sample(mail, len(mail)))
            # What lasts goes by way of bytes.
            content = state_bytes(site.snapshot())
            if self.random.random() >= self.loss:
                break
            if self.random.random() < 0.5:
                # The answer was lost after the state was kept.
                self.states[name] = state_from(content, None)  # type: ignore[arg-type]
        self.states[name], self.mail[name] = state_from(content, None), []  # type: ignore[arg-type]
        for to, packet in answer:
            self.mail[to].append((name, packet))
        if site.ended:
            self.ends[name] = role.snapshot()

    def run(self) -> None:
        for name in self.mail:
            self.visit(name)
        while waiting := [
            name for name, mail in self.mail.items() if any(not only_acknowledges(content) for _, content in mail)
        ]:
            self.visit(self.random.choice(waiting))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ASYNCHRONOUS])
def test_a_run_by_visits_ends_as_in_one_process(name: str) -> None:
    if name == "trees":
        pytest.importorskip("lightgbm")
    case = case_of(name)
    messenger = Messenger(case.make, loss=0.3)  # type: ignore[arg-type]
    messenger.run()
    for role, mailbox in case.calm[0].mailboxes.items():
        assert_same_state(messenger.ends[role], mailbox.role.snapshot())


def test_a_state_of_something_else_is_refused() -> None:
    case = case_of("subspace")
    role: Any = case.make()["p0"]
    with pytest.raises(RunError, match="the state of the last visit is not one of this run"):
        StatelessSite("p0", ["server"], alone(role), 0.0, {"roles": [["done"]], "role 0 done": True})


def test_what_is_no_packet_is_refused_and_changes_nothing() -> None:
    case = case_of("subspace")
    site = StatelessSite("p0", ["server", "p1", "p2"], alone(case.make()["p0"]), 0.0)
    before = state_bytes(site.snapshot())
    site.visit([("server", b"GET / HTTP/1.1"), ("stranger", b"")])
    assert len(site.endpoint.refused) == 2
    assert state_bytes(site.snapshot()) == before


def test_a_party_decides_what_leaves_it_when_it_is_visited() -> None:
    """A party of fedbcd is the first to speak."""
    role = case_of("fedbcd").make()["p0"]
    with pytest.raises(RunError, match="p0's policy does not allow a message to "):
        StatelessSite("p0", ["server", "p1", "p2"], alone(role), 0.0, veto=lambda one: f"no {one.kind}").visit([])
