"""Fault schedules drawn from seeds, and what every solver owes under any of them.

A case is a solver, or an exchange before or after training, with its roles. Under a schedule a solver in lock-step ends
as it does without, bit for bit; an asynchronous one with a certificate that is true, and where it converges, converged
to the same objective.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import pytest
from horizontal.horizontal_contract import CLOCK as HORIZONTAL_CLOCK
from horizontal.horizontal_contract import Case as HorizontalCase
from support.contracts import Make, assert_same_state, ends
from support.faults import Cut, Faults, FaultyInProcess
from support.problems import Reference, parity_rows
from vertical.contract import BLOCKS, CLOCK, EPSILON, MU, PROBLEM, make_job, make_roles

from evenhand.privacy.private_align import PrivateAlignParty, PrivateAlignServer
from evenhand.protocol.agree import AgreeClient, AgreeServer
from evenhand.protocol.align import AlignParty, AlignServer
from evenhand.protocol.enrol import EnrolParty, EnrolServer
from evenhand.protocol.roles import Report, Role
from evenhand.protocol.scoring import ScoreParty, ScoreServer
from evenhand.protocol.state import State
from evenhand.protocol.terms import VerticalTerms
from evenhand.runtime.inprocess import InProcess, VirtualClock
from evenhand.solvers.registry import HORIZONTAL, VERTICAL
from evenhand.solvers.roles import vertical_terms
from evenhand.vertical.server import Server
from evenhand.vertical.vfb2.options import METHODS

ASYNCHRONOUS = tuple(METHODS)


def faults_of(seed: int, names: list[str], horizon: float) -> Faults:
    """A schedule; half of all seeds disturb everything at once, the others a few things."""
    rng = np.random.default_rng(seed)
    timeout = horizon / float(rng.choice([3, 30, 300]))
    some = rng.random(7) < (1.0 if seed % 2 else 0.4)
    begins = rng.uniform(0, horizon, 3)
    return Faults(
        drop=float(some[0] * rng.uniform(0, 0.6)),
        duplicate=float(some[1] * rng.uniform(0, 0.9)),
        corrupt=float(some[2] * rng.uniform(0, 0.4)),
        delay=float(some[3] * rng.exponential(2.0)) * timeout,
        timeout=timeout,
        cuts=[
            Cut(begin, begin + float(rng.exponential(30.0)) * timeout, tuple(rng.choice(names, rng.integers(1, 3))))
            for begin in begins[: rng.integers(1, 4) * some[4]]
        ],
        crashes={name: rng.integers(0, 40, rng.integers(1, 6)).tolist() for name in names if some[5]},
        downtime=float(rng.choice([0.0, 1.0, 50.0])) * timeout,
        save_every=int(rng.integers(1, 6)),
        window=int(rng.choice([1, 2, 8, 256])) if some[6] else 256,
        seed=seed,
    )


@dataclass(frozen=True)
class ScheduleCase:
    """A solver under faults."""

    name: str
    make: Make
    clock: VirtualClock
    check: Callable[[ScheduleCase, FaultyInProcess, list[Report]], None]

    @cached_property
    def calm(self) -> tuple[InProcess, list[Report]]:
        """The same run without faults."""
        reports: list[Report] = []
        runtime = InProcess(list(self.make().values()), self.clock, on_report=reports.append)
        runtime.run()
        return runtime, reports

    def run(self, seed: int) -> None:
        calm, _ = self.calm
        faults = faults_of(seed, list(calm.mailboxes), calm.time)
        reports: list[Report] = []
        runtime = FaultyInProcess(list(self.make().values()), faults, self.clock, on_report=reports.append)
        try:
            runtime.run()
            self.check(self, runtime, reports)
        except Exception as error:
            error.add_note(
                f"{self.name}, schedule {seed}: {faults}\nagain: EVENHAND_SEED={seed} EVENHAND_SCHEDULES=1 "
                f"pytest -m soak tests/soak/test_schedules_soak.py -k {self.name}"
            )
            raise


def ends_alike(case: ScheduleCase, runtime: FaultyInProcess, reports: list[Report]) -> None:
    """Bit for bit: every role, every row of history, every message once."""
    calm, calm_reports = case.calm
    states = ends(runtime)
    for name, state in ends(calm).items():
        assert_same_state(state, states[name])
    assert [_untimed(row) for row in reports] == [_untimed(row) for row in calm_reports]
    assert sorted(entry[1:] for entry in runtime.transcript) == sorted(entry[1:] for entry in calm.transcript)


def _untimed(row: Report) -> dict[str, Any]:
    # What a clock and the order in which others send have a part in.
    return {name: repr(value) for name, value in row.items() if name not in ("time", "bytes")}


def certificate_is_true(case: ScheduleCase, runtime: FaultyInProcess, _: list[Report]) -> None:
    assert_certificate_is_true(case, {name: mailbox.role for name, mailbox in runtime.mailboxes.items()})


def assert_certificate_is_true(case: ScheduleCase, roles: Mapping[str, Role]) -> None:
    server: Any = roles["server"]
    assert isinstance(server, Server)
    told = server.certificate
    assert told is not None
    solver = VERTICAL[case.name]
    reference = Reference(PROBLEM, parity_rows(PROBLEM, [1], EPSILON) if solver.takes_constraints else [], MU)
    weights = np.zeros(5)
    for place, block in enumerate(BLOCKS):
        own = roles[f"p{place}"].model.weights  # type: ignore[attr-defined]
        weights[block] = own[: len(block)]
        if place == 0:
            weights[-1] = own[-1]
    gradient = reference.gradient(weights, server.multipliers)
    assert told.stationarity == pytest.approx(np.linalg.norm(gradient), rel=1e-6, abs=1e-12)
    assert told.violation == pytest.approx(np.max(reference.excess(weights), initial=0.0), abs=1e-12)
    assert told.objective == pytest.approx(reference.objective(weights), rel=1e-12)
    if solver.exact:
        calm: Any = case.calm[0].mailboxes["server"].role
        assert calm.certificate.converged
        assert told.converged
        assert told.objective == pytest.approx(calm.certificate.objective, abs=1e-4)


def assert_ended_as_it_should(name: str, states: Mapping[str, State], sent: Iterable[Sequence[Any]]) -> None:
    """What the contract says of results, whichever engine carried the run.

    Every role's state at its end is bit for bit that of one process, and so are the messages by sender, receiver, kind
    and bytes; of an asynchronous solver the certificate is true.
    """
    case = case_of(name)
    if name not in ASYNCHRONOUS:
        calm, _ = case.calm
        assert states.keys() == calm.mailboxes.keys()
        for role, state in ends(calm).items():
            assert_same_state(state, states[role])
        assert sorted(tuple(one) for one in sent) == sorted(entry[1:5] for entry in calm.transcript)
        return
    roles = case.make()
    for role, state in states.items():
        roles[role].restore(state)
    assert_certificate_is_true(case, roles)


ROWS = "rows-"
"""In front of a solver across rows that has the name of one across columns."""
NAMES = (*VERTICAL, *(f"{ROWS}{name}" if name in VERTICAL else name for name in HORIZONTAL))
"""Every solver that is listed."""


def exchange_roles(name: str) -> dict[str, Role]:
    """Roles of an exchange before or after training."""
    parties, seed = ["p0", "p1", "p2"], np.random.default_rng(5)
    ids = {one: pd.Index([f"c{number}" for number in seed.permutation(15)[:12]]) for one in parties}
    made: list[Role]
    if name == "enrol":
        terms = vertical_terms(make_job("subspace"), dict.fromkeys(parties, "active"), 7, {})
        made = [EnrolServer(terms), *(EnrolParty(one, VerticalTerms) for one in parties)]
    elif name == "align":
        made = [AlignServer(parties, "inner"), *(AlignParty(one, index) for one, index in ids.items())]
    elif name == "private-align":
        keys = {one: bytes([3 + place]) + bytes(31) for place, one in enumerate(parties)}
        made = [PrivateAlignServer(parties)]
        for one, index in ids.items():
            party = PrivateAlignParty(one, index, parties, key=keys[one])
            # The order is drawn from the operating system; here every run must draw the same.
            party._order = np.arange(len(index))
            made.append(party)
    elif name == "agree":
        server = AgreeServer(parties, lambda told: {"rows": sum(int(one["rows"]) for one in told.values())})
        made = [server, *(AgreeClient(one, {"rows": 10 + place}) for place, one in enumerate(parties))]
    else:
        made = [ScoreServer(parties, 9), *(ScoreParty(one, seed.normal(size=9)) for one in parties)]
    return {role.name: role for role in made}


EXCHANGES = ("enrol", "align", "private-align", "agree", "score")


def case_of(name: str) -> ScheduleCase:
    if name in EXCHANGES:
        return ScheduleCase(name, lambda: exchange_roles(name), CLOCK, ends_alike)
    if name not in VERTICAL:
        solver = name.removeprefix(ROWS)
        case = HorizontalCase(solver, HORIZONTAL[solver].scopes[-1])
        return ScheduleCase(name, case.maker(case.job()), HORIZONTAL_CLOCK, ends_alike)
    if name in ASYNCHRONOUS:
        rounds = 400 if VERTICAL[name].exact else 8
        job = make_job(name, max_rounds=rounds, tol=1e-4, options={"batch_size": 20})
        return ScheduleCase(name, lambda: make_roles(job), CLOCK, certificate_is_true)
    job = make_job(name, max_rounds=5, tol=0.0)
    return ScheduleCase(name, lambda: make_roles(job), CLOCK, ends_alike)
