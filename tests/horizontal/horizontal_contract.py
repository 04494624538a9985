"""What every horizontal solver owes, as one suite: a solver passes it by being listed in `SOLVERS`.

A subclass gives the fixture `solver`, a name. Nothing here knows a solver's messages or options, apart from the
options that all averaging solvers share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.clients import as_reference, deal_rows, unequal
from support.problems import Reference, ReferenceRow, small

from evenhand.errors import InputError, ProtocolError
from evenhand.horizontal.averaging.server import Server
from evenhand.horizontal.problem import ClientRows, agree
from evenhand.horizontal.solver import Setup
from evenhand.horizontal.solvers import SOLVERS, build_roles
from evenhand.protocol.job import Job
from evenhand.protocol.messages import Message
from evenhand.protocol.roles import Report, Role, Sends
from evenhand.protocol.transcript import Transcript
from evenhand.runtime import checkpoints
from evenhand.runtime.clock import VirtualClock
from evenhand.runtime.faults import Faults, FaultyInProcess
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.inprocess import InProcess, Mailbox
from evenhand.runtime.statefiles import state_bytes, state_from
from evenhand.training.horizontal import HorizontalRun, train_horizontal

PROBLEM = small(seed=3, rows=90)
PARTS = unequal(PROBLEM, 3)
CLOCK = VirtualClock(latency=3e-7, speeds={"c0": 2e9, "c1": 3e7, "c2": 1e8}, latencies={"c2": 2e-6})
OPTIONS: dict[str, Any] = {"batch_size": 16, "step": 0.1}


def make_job(solver: str, **changes: Any) -> Job:
    options = {**OPTIONS, **changes.pop("options", {})}
    return Job(solver=solver, **{"max_rounds": 4, "model": "mlp", "hidden": (3, 2), "options": options, **changes})


def make_roles(job: Job) -> dict[str, Role]:
    clients = deal_rows(PROBLEM, PARTS)
    roles = build_roles(Setup(clients, agree(clients), job))
    return {role.name: role for role in [roles.server, *roles.clients]}


def train(job: Job, clients: Sequence[ClientRows] | None = None, **runtime: Any) -> HorizontalRun:
    clients = deal_rows(PROBLEM, PARTS) if clients is None else clients
    return train_horizontal(job, clients, **{"clock": CLOCK, **runtime})


def reference_rows(solver: str) -> list[ReferenceRow]:
    """The rows of the solver's default constraint, from the definition."""
    everybody, a, b = PROBLEM.slice(), PROBLEM.slice(None, "a"), PROBLEM.slice(None, "b")
    kinds = [constraint.kind for constraint in SOLVERS[solver].default_constraints]
    rows = {
        "loss-parity": [ReferenceRow([(1.0, a), (-1.0, b)], 0.0, 0.0)],
        "group-against-overall": [ReferenceRow([(1.0, everybody), (-1.0, s)], 0.0, 0.0) for s in (a, b)],
    }
    return [row for kind in kinds for row in rows[kind]]


def assert_same_run(one: HorizontalRun, other: HorizontalRun) -> None:
    """Bit for bit."""
    assert one.weights.tobytes() == other.weights.tobytes()
    assert one.multipliers.tobytes() == other.multipliers.tobytes()
    assert one.certificate == other.certificate
    assert one.transcript.entries == other.transcript.entries
    pd.testing.assert_frame_equal(one.history, other.history, check_exact=True)


def assert_same_state(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        np.testing.assert_array_equal(value, right[name], err_msg=name)


class Reborn(InProcess):
    """After every turn, the role that had it is thrown away and made anew from its snapshot, by way of the disk.

    A client made anew shares its arithmetic with nobody, so this also finds results that depend on company.
    """

    def __init__(self, job: Job, folder: Path, reports: list[Report]) -> None:
        super().__init__(list(make_roles(job).values()), CLOCK, Transcript(), reports.append)
        self._job, self._file = job, folder / "state.safetensors"

    def _serve(self, name: str, mailbox: Mailbox) -> None:
        super()._serve(name, mailbox)
        self._file.write_bytes(state_bytes(mailbox.role.snapshot()))
        mailbox.role = make_roles(self._job)[name]
        mailbox.role.restore(state_from(self._file.read_bytes(), self._file))


class Listening(InProcess):
    """Notes every message that reaches a role."""

    def __init__(self, roles: Sequence[Role]) -> None:
        super().__init__(roles, CLOCK, Transcript(keep_messages=True))
        self.heard: Counter[tuple[str, str, str, int]] = Counter()
        for role in roles:
            self._listen(role)

    def _listen(self, role: Role) -> None:
        inner = role.receive

        def receive(message: Message) -> Sends:
            self.heard[message.sender, role.name, message.kind, message.nbytes] += 1
            return inner(message)

        role.receive = receive  # type: ignore[method-assign]


def spoiled(message: Message) -> list[Message]:
    """Ways in which a message can be wrong."""
    head = (message.sender, message.receiver)
    body = dict(message.body)
    first = next(iter(body))
    found = [
        Message(*head, "no-such-kind", body),
        Message(*head, message.kind, {**body, "extra": np.array(1.0)}),
        Message(*head, message.kind, {name: array for name, array in body.items() if name != first}),
        Message("stranger", message.receiver, message.kind, body),
    ]
    for name, array in body.items():
        wrong = [array[None], array.astype(np.float16)]
        if array.dtype.kind == "f":
            wrong += [np.full_like(array, np.nan), np.full_like(array, np.inf)]
        found += [Message(*head, message.kind, {**body, name: value}) for value in wrong if value.size]
    return found


class HorizontalContract:
    """Every test here is run for every solver."""

    def test_two_runs_with_one_seed_are_the_same_run(self, solver: str) -> None:
        job = make_job(solver)
        assert_same_run(train(job), train(job))

    def test_another_seed_is_another_run(self, solver: str) -> None:
        one, other = (train(make_job(solver, seed=seed)) for seed in (1, 2))
        assert not np.array_equal(one.weights, other.weights)

    def test_a_role_restored_after_every_message_runs_as_if_it_had_not_been(self, solver: str, tmp_path: Path) -> None:
        job = make_job(solver, max_rounds=3)
        whole, reports = train(job), list[Report]()
        reborn = Reborn(job, tmp_path, reports)
        reborn.run()
        assert reborn.transcript.entries == whole.transcript.entries
        pd.testing.assert_frame_equal(pd.DataFrame(reports), whole.history, check_exact=True)
        server = reborn.mailboxes["server"].role
        assert isinstance(server, Server)
        assert server.weights.tobytes() == whole.weights.tobytes()
        assert server.certificate == whole.certificate

    def test_a_run_taken_up_from_a_checkpoint_ends_the_same(self, solver: str) -> None:
        job = make_job(solver)
        taken: list[dict[str, Any]] = []
        runtime = InProcess(
            list(make_roles(job).values()), CLOCK, on_report=lambda _: taken.append(checkpoints.take(runtime))
        )
        runtime.run()
        ends = {name: mailbox.role.snapshot() for name, mailbox in runtime.mailboxes.items()}
        assert len(taken) > 1
        for states in taken:
            resumed = InProcess(list(make_roles(job).values()), CLOCK)
            checkpoints.put_back(resumed, states)
            resumed.run()
            assert resumed.time == runtime.time
            for name, mailbox in resumed.mailboxes.items():
                assert_same_state(mailbox.role.snapshot(), ends[name])

    def test_a_run_that_was_killed_goes_on_in_its_folder(self, solver: str, tmp_path: Path) -> None:
        class Killed(Exception):
            pass

        def kill(row: Report) -> None:
            if row["round"] == 2:
                raise Killed

        job = make_job(solver)
        folder = RunFolder.create(tmp_path / "run", {})
        with pytest.raises(Killed):
            train(job, folder=folder, checkpoint_seconds=0.0, on_round=kill)
        assert_same_run(train(job, folder=folder, checkpoint_seconds=0.0), train(job))

    def test_faults_change_nothing(self, solver: str) -> None:
        job = make_job(solver)
        faults = Faults(
            drop=0.2, duplicate=0.2, delay=1e-6, timeout=1e-5, crashes={"c1": [1, 3], "server": [5]}, seed=4
        )
        reports: list[Report] = []
        runtime = FaultyInProcess(list(make_roles(job).values()), faults, CLOCK, on_report=reports.append)
        runtime.run()
        server = runtime.mailboxes["server"].role
        assert isinstance(server, Server)
        whole = train(job)
        assert server.weights.tobytes() == whole.weights.tobytes()
        assert server.certificate == whole.certificate

    def test_the_order_of_clients_changes_nothing(self, solver: str) -> None:
        job, clients = make_job(solver, options={"participation": 0.7}), deal_rows(PROBLEM, PARTS)
        one, other = train(job, clients), train(job, clients[::-1])
        np.testing.assert_allclose(one.weights, other.weights, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(one.multipliers, other.multipliers, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("rounds", [1, 5])
    def test_the_certificate_is_true(self, solver: str, rounds: int) -> None:
        run = train(make_job(solver, model="linear", max_rounds=rounds, alpha=0.03))
        reference = Reference(PROBLEM, reference_rows(solver), 0.0)
        weights, told = as_reference(run), run.certificate
        excess = reference.excess(weights)
        gradient = reference.gradient(weights, run.multipliers) + 0.03 * weights
        assert told.stationarity == pytest.approx(np.linalg.norm(gradient), rel=1e-4, abs=1e-6)
        assert told.violation == pytest.approx(np.max(excess, initial=0.0), rel=1e-5, abs=1e-6)
        assert told.complementarity == pytest.approx(
            np.abs(run.multipliers * excess).max(initial=0.0), rel=1e-4, abs=1e-6
        )
        assert told.objective == pytest.approx(reference.objective(weights) + 0.015 * weights @ weights, rel=1e-6)
        assert told.rounds == rounds == run.history["round"].iloc[-1]
        assert not told.converged

    def test_a_malformed_message_is_refused_and_changes_nothing(self, solver: str) -> None:
        job = make_job(solver, max_rounds=2)
        run = train(job, keep_messages=True)
        every_kind = {(message.receiver, message.kind): message for message in run.transcript.messages or []}
        assert {receiver for receiver, _ in every_kind} == {"server", "c0", "c1", "c2"}
        roles = make_roles(job)
        roles["server"].start()
        for (receiver, _), message in every_kind.items():
            for wrong in spoiled(message):
                before = roles[receiver].snapshot()
                with pytest.raises(ProtocolError):
                    roles[receiver].receive(wrong)
                assert_same_state(roles[receiver].snapshot(), before)

    def test_an_answer_out_of_turn_is_refused_and_changes_nothing(self, solver: str) -> None:
        job = make_job(solver, max_rounds=2)
        sent = [m for m in train(job, keep_messages=True).transcript.messages or [] if m.receiver == "server"]
        server = make_roles(job)["server"]
        server.start()
        late, first = sent[-1], next(message for message in sent if message.sender == "c0")
        server.receive(first)
        before = server.snapshot()
        other_round = Message(first.sender, "server", first.kind, {**first.body, "round": np.array(2)})
        for wrong in (late, first, other_round):
            with pytest.raises(ProtocolError):
                server.receive(wrong)
            assert_same_state(server.snapshot(), before)

    def test_the_transcript_has_every_message_once(self, solver: str) -> None:
        runtime = Listening(list(make_roles(make_job(solver)).values()))
        runtime.run()
        transcript = runtime.transcript
        assert Counter((e.sender, e.receiver, e.kind, e.nbytes) for e in transcript) == runtime.heard
        sizes = [sum(array.nbytes for array in message.body.values()) for message in transcript.messages or []]
        assert [entry.nbytes for entry in transcript] == sizes
        assert transcript.total_bytes == sum(sizes)

    def test_history_has_a_row_a_round_with_bytes_and_time_that_grow(self, solver: str) -> None:
        run = train(make_job(solver))
        history = run.history
        assert list(history["round"]) == [0, 1, 2, 3, 4]
        assert history["bytes"].is_monotonic_increasing
        assert history["time"].is_monotonic_increasing
        assert history["bytes"].iloc[-1] <= run.transcript.total_bytes
        assert history[["objective", "violation", "bytes", "time"]].notna().all(axis=None)
        assert len(run.row_names) == len(reference_rows(solver))
        for name in run.row_names:
            for column in ("value", "exact", "upper multiplier", "lower multiplier"):
                assert history[f"{column}[{name}]"].notna().all()

    def test_a_run_without_reports_sends_the_same_updates_and_certifies_nothing(self, solver: str) -> None:
        quiet, telling = (train(make_job(solver, options={"report_every": every})) for every in (0, 1))
        assert quiet.weights.tobytes() == telling.weights.tobytes()
        assert {"sums", "gradient", "tilt"} <= {entry.kind for entry in telling.transcript}
        assert not {"sums", "gradient", "tilt"} & {entry.kind for entry in quiet.transcript}
        assert np.isnan(quiet.certificate.stationarity)
        assert not quiet.certificate.converged
        assert quiet.history["objective"].isna().all()

    def test_training_lowers_the_loss(self, solver: str) -> None:
        run = train(make_job(solver, model="linear", max_rounds=10, options={"step": 0.05}))
        assert run.history["objective"].iloc[-1] < run.history["objective"].iloc[0] - 0.02

    def test_an_unknown_option_is_refused(self, solver: str) -> None:
        with pytest.raises(InputError, match="no option 'no_such_option'"):
            train(make_job(solver, options={"no_such_option": 1}))
