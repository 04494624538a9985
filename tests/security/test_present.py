"""Who is in a masked sum is not the server's word alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("nacl")
pytest.importorskip("torch")
from support.clients import deal_rows
from support.problems import small

from evenhand.errors import InputError, ProtocolError, RunError
from evenhand.horizontal.averaging.messages import MODEL
from evenhand.horizontal.masked.messages import AGREED, EXCHANGE, UNMASK
from evenhand.horizontal.problem import ClientData, HorizontalServerData
from evenhand.privacy.key_exchange import agree_here
from evenhand.privacy.mechanism import SharedGaussian, noise_terms
from evenhand.privacy.neighbours import Company, smallest_sum
from evenhand.protocol.job import Job
from evenhand.solvers.roles import client
from evenhand.training.horizontal import build_roles
from evenhand_reproductions.in_memory import horizontal_terms

CLIENTS = 6
ROWS = deal_rows(small(seed=3, rows=90), np.array_split(np.arange(90), CLIENTS))
OPTIONS = {"batch_size": 16, "step": 0.1, "local_epochs": 1}
EVERYBODY = tuple(range(CLIENTS))


class Hostile:
    """A server that says of each exchange what it likes; clients are real."""

    def __init__(self, noise: Any = None, **job: Any) -> None:
        asked = Job(**{"solver": "fedavg", "max_rounds": 5, "protection": "masked", "options": OPTIONS, **job})
        terms = horizontal_terms(asked, ROWS, noise=noise_terms(noise))
        owns = {one.name: ClientData(one, None, noise, secret=bytes(32)) for one in ROWS}
        self.terms, self.owns = terms, owns
        server, clients = build_roles(terms, HorizontalServerData(), owns)
        self.weights = getattr(server.inner, "weights", None)  # type: ignore[attr-defined]
        self.names, self.digest = terms.names, terms.digest
        self.roles = {role.name: role for role in clients}
        self.company: Company | None = None
        self.answers: dict[int, Any] = {}

    def role(self, place: int) -> Any:
        return self.roles[self.names[place]]

    def ask(self, number: int, members: Sequence[int], round_number: int | None = None) -> None:
        self.company, self.answers = Company(tuple(members), f"{self.digest} {number}"), {}
        body = {"weights": self.weights, "statistics": np.zeros(0, "f4"), "multipliers": np.zeros(0)}
        for place in members:
            name = self.names[place]
            told = EXCHANGE.message("server", name, exchange=number, members=np.array(members))
            self.role(place).receive(told)
            self.role(place).receive(MODEL.message("server", name, round=round_number or number, **body))
        for place in members:
            (self.answers[place],) = self.role(place).work()

    def tell_present(self, number: int, present: Mapping[int, Sequence[int]]) -> dict[int, np.ndarray]:
        """Tell each client who is present; return what each vouches for."""
        assert self.company is not None
        found = {}
        for place, told in present.items():
            near = [other for other in self.company.neighbours(place) if other in told]
            boxes = [self.answers[other]["sealed"][self.company.neighbours(other).index(place)] for other in near]
            sealed = np.stack(boxes) if boxes else np.zeros((0, 0), np.uint8)
            body = {"exchange": number, "present": np.array(told), "sealed": sealed}
            (answer,) = self.role(place).receive(UNMASK.message("server", self.names[place], **body))
            found[place] = answer["vouchers"]
        return found

    def open(self, number: int, vouchers: Mapping[int, np.ndarray], present: Mapping[int, Sequence[int]]) -> Any:
        """Forward vouchers as the protocol says; return the opened shares."""
        assert self.company is not None
        opened = {}
        for place, told in present.items():
            near = [other for other in self.company.neighbours(place) if other in told]
            rows = [vouchers[other][self.company.neighbours(other).index(place)] for other in near]
            body = {"exchange": number, "vouchers": np.stack(rows)}
            (opened[place],) = self.role(place).receive(AGREED.message("server", self.names[place], **body))
        return opened

    def exchange(self, number: int, members: Sequence[int] = EVERYBODY, present: Sequence[int] | None = None) -> Any:
        """An honest exchange, but for its members and for those who are present."""
        self.ask(number, members)
        said = dict.fromkeys(members if present is None else present, members if present is None else present)
        return self.open(number, self.tell_present(number, said), said)


def test_an_honest_exchange_is_opened() -> None:
    server = Hostile()
    assert set(server.exchange(1)) == set(EVERYBODY)
    assert set(server.exchange(2)) == set(EVERYBODY)


@pytest.mark.parametrize("present", [[0] * 6, [0, 0, 1, 2, 3, 4], [1, 0, 2, 3, 4, 5], [0, 1, 2, 3, 4, 6], [1, 2, 3, 4]])
@pytest.mark.parametrize("noise", [None, SharedGaussian(0.5, None, 2.0, shares=6)], ids=["bare", "noise"])
def test_positions_are_in_order_each_once_and_of_members(present: list[int], noise: Any) -> None:
    server = Hostile(noise)
    server.ask(1, EVERYBODY)
    with pytest.raises((ProtocolError, RunError)):
        server.tell_present(1, {0: present})


@pytest.mark.parametrize("members", [(0, 1), (0, 2), (0, 1, 2), (0, 0, 1, 2, 3), (1, 0, 2, 3, 4, 5), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize("solver", ["fedavg", "sqp"])
def test_members_are_as_many_as_the_terms_prescribe(members: tuple[int, ...], solver: str) -> None:
    server = Hostile(solver=solver, options=OPTIONS if solver == "fedavg" else {})
    with pytest.raises(ProtocolError, match="refuses exchange 1"):
        server.role(0).receive(EXCHANGE.message("server", "c0", exchange=1, members=np.array(members)))


def test_the_same_exchange_is_not_answered_twice_after_a_checkpoint() -> None:
    server = Hostile()
    kept = {name: role.snapshot() for name, role in server.roles.items()}
    server.exchange(1)
    for name, role in server.roles.items():
        role.restore(kept[name])
    with pytest.raises(ProtocolError, match="refuses exchange 1"):
        server.ask(1, EVERYBODY)
    # Nor is another sum opened that differs from the first by one client.
    server.ask(2, EVERYBODY, round_number=1)
    with pytest.raises(RunError, match="with earlier sums it would show a sum over 1 of them"):
        server.tell_present(2, dict.fromkeys(EVERYBODY[1:], EVERYBODY[1:]))


@pytest.mark.parametrize("second", [(0, 1, 2, 3, 4), (0, 1, 2, 3)])
@pytest.mark.parametrize("least_summed", [1, 2, 3])
def test_differences_of_two_sums_hold_enough_clients(second: tuple[int, ...], least_summed: int) -> None:
    server = Hostile(least_summed=least_summed)
    server.exchange(1)
    if CLIENTS - len(second) >= least_summed:
        assert set(server.exchange(2, EVERYBODY, second)) == set(second)
        return
    with pytest.raises(RunError, match=f"least_summed is {least_summed}"):
        server.exchange(2, EVERYBODY, second)


def test_a_client_that_was_left_out_of_a_sum_is_not_asked_again() -> None:
    """Else three sums, each two of which differ by two clients, would show single ones."""
    sums = [{0, 1, 2, 3}, {0, 1, 4, 5}, {0, 2, 4, 5}]
    assert smallest_sum(sums[:2]) == 2
    assert smallest_sum(sums) == 1
    server = Hostile(least_summed=2)
    server.exchange(1, EVERYBODY, (0, 1, 2, 3))
    for place in (4, 5):
        told = EXCHANGE.message("server", server.names[place], exchange=2, members=np.array(EVERYBODY))
        with pytest.raises(ProtocolError, match="refuses exchange 2"):
            server.role(place).receive(told)


def test_clients_that_were_told_different_sets_open_nothing() -> None:
    server = Hostile(least_summed=1)
    server.ask(1, EVERYBODY)
    camps = {place: (0, 1, 2, 3) if place in (0, 1, 2) else (0, 3, 4, 5) for place in EVERYBODY}
    vouchers = server.tell_present(1, camps)
    for place in EVERYBODY:
        with pytest.raises(ProtocolError, match=r"were told that the same members\s+are present"):
            server.open(1, vouchers, {place: camps[place]})


@pytest.mark.parametrize("apart", [False, True])
def test_clients_that_were_told_different_cuts_open_nothing(apart: bool) -> None:
    rule: Any = {"rule": "rate", "capacity": 0.2}
    server = Hostile(rule=rule)
    cuts = {name: 0.3 if apart and place == 0 else 0.2 for place, name in enumerate(server.names)}
    sessions = agree_here(server.names, server.digest)
    for name, cut in cuts.items():
        own = replace(server.owns[name], session=sessions[name])
        server.roles[name] = client(server.terms.at_step(2, cut), name, own)
    server.digest = server.terms.at_step(2, 0.2).digest
    if not apart:
        assert set(server.exchange(1)) == set(EVERYBODY)
        return
    with pytest.raises(ProtocolError):
        server.exchange(1)


def test_vouchers_cannot_be_made_up_moved_or_repeated() -> None:
    server = Hostile(least_summed=1)
    server.ask(1, EVERYBODY)
    all_told = dict.fromkeys(EVERYBODY, EVERYBODY)
    vouchers = server.tell_present(1, all_told)
    forged = {
        place: np.random.default_rng(place).integers(0, 255, rows.shape).astype("u1")
        for place, rows in vouchers.items()
    }
    moved = {place: vouchers[(place + 1) % CLIENTS] for place in EVERYBODY}
    for wrong in (forged, moved):
        with pytest.raises(ProtocolError, match="no share is opened"):
            server.open(1, wrong, {0: EVERYBODY})
    assert server.open(1, vouchers, all_told)
    server.ask(2, EVERYBODY)
    server.tell_present(2, all_told)
    with pytest.raises(ProtocolError, match="no share is opened"):
        server.open(2, vouchers, {0: EVERYBODY})


def test_a_client_is_told_who_is_present_once() -> None:
    server = Hostile(least_summed=1)
    server.ask(1, EVERYBODY)
    server.tell_present(1, {0: EVERYBODY})
    with pytest.raises(ProtocolError, match="has no shares to open"):
        server.tell_present(1, {0: EVERYBODY[:5]})


def test_changing_participants_under_masks_need_noise_or_a_word() -> None:
    with pytest.raises(InputError, match="can be subtracted from each other"):
        Hostile(options={**OPTIONS, "participation": 0.7})
    Hostile(options={**OPTIONS, "participation": 0.7}, least_summed=1)
    Hostile(SharedGaussian(0.5, None, 2.0, shares=4), options={**OPTIONS, "participation": 0.7})


@given(st.lists(st.sets(st.integers(0, 5), min_size=1), min_size=1, max_size=4))
def test_the_bound_on_sums_is_below_every_combination(sums: list[set[int]]) -> None:
    """Checked against the row space: the bound never exceeds the support of a vector in it."""
    rows = np.array([[place in one for place in range(6)] for one in sums], dtype=float)
    bound = smallest_sum(sums)
    everything = {place for one in sums for place in one}
    for size in range(1, bound):
        for inside in combinations(sorted(everything), size):
            outside = [place for place in range(6) if place not in inside]
            # A vector of the row space with this support would be in the null space of the other columns.
            null = np.linalg.matrix_rank(rows) - np.linalg.matrix_rank(rows[:, outside])
            assert null == 0
