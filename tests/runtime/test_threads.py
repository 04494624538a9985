"""The runtime of threads: nothing lost, order kept, tasks overlap, errors and stalls come out, and VFB² converges."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.problems import Reference, deal, parity_rows, pooled_weights, small
from support.schedules import NAMES, assert_ended_as_it_should, case_of

from evenhand.constraints import EqualOpportunity
from evenhand.errors import DivergenceError, InputError, ProtocolError, RunError
from evenhand.protocol.disclosure import PARTICIPANT_TO_SERVER
from evenhand.protocol.job import Job
from evenhand.protocol.messages import Field, Message, Schema, Vocabulary
from evenhand.protocol.roles import Report, Role, Sends, Task
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.folder import RunFolder
from evenhand.runtime.threads import Threads
from evenhand_reproductions.in_memory import Holdings, train_vertical

NOTE = Schema("note", {"number": Field("i8")}, direction=PARTICIPANT_TO_SERVER, reveals="A number.")


def note(sender: str, receiver: str, number: int) -> Message:
    return NOTE.message(sender, receiver, number=number)


class Caller(Role):
    """Sends numbers to everybody and waits for all answers."""

    vocabulary = Vocabulary(NOTE)

    def __init__(self, others: tuple[str, ...], count: int) -> None:
        super().__init__("server", {})
        self.others, self.count = others, count
        self.answers: list[tuple[str, int]] = []

    def start(self) -> Sends:
        return [note(self.name, other, number) for number in range(self.count) for other in self.others]

    def handle(self, message: Message) -> Sends:
        self.answers.append((message.sender, message.integer("number")))
        self.reports.append({"answers": len(self.answers)})
        self.done = len(self.answers) == self.count * len(self.others)
        return ()


class Answerer(Role):
    """Answers every number with itself, at once."""

    vocabulary = Vocabulary(NOTE)

    def __init__(self, name: str) -> None:
        super().__init__(name, {})
        self.done = True
        self.begun: list[int] = []

    def handle(self, message: Message) -> Sends:
        self.begun.append(message.integer("number"))
        return [note(self.name, "server", self.begun[-1])]


class Handshake(Task):
    """Ends only if another task of the role runs at the same time."""

    def __init__(self, number: int, meeting: threading.Barrier, sends: Sends) -> None:
        self.number, self.meeting, self.sends = number, meeting, sends

    def run(self) -> None:
        self.meeting.wait(timeout=30)


class Worker(Answerer):
    """Answers in two tasks, the first of which needs a companion."""

    def __init__(self, name: str, companions: int) -> None:
        super().__init__(name)
        self.meeting = threading.Barrier(companions)
        self.inside = 0

    def begin(self, message: Message) -> Task | Sends:
        self.begun.append(message.integer("number"))
        return Handshake(self.begun[-1], self.meeting, [])

    def finish(self, task: Task) -> Task | Sends:
        assert isinstance(task, Handshake)
        if task.number >= 0:
            return Handshake(-1 - task.number, self.meeting, [note(self.name, "server", task.number)])
        return ()


class Failing(Answerer):
    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(name)
        self.error = error

    def handle(self, message: Message) -> Sends:
        if message.integer("number") == 3:
            raise self.error
        return super().handle(message)


def test_every_message_arrives_once_and_links_keep_their_order() -> None:
    names = ("a", "b", "c")
    caller, answerers = Caller(names, 200), [Answerer(name) for name in names]
    reports: list[Report] = []
    listeners: set[str] = set()

    def listen(report: Report) -> None:
        reports.append(report)
        listeners.add(threading.current_thread().name)

    runtime = Threads([caller, *answerers], Transcript(), listen, workers=3)
    runtime.run()
    assert sorted(caller.answers) == [(name, number) for name in names for number in range(200)]
    for answerer in answerers:
        assert answerer.begun == list(range(200))
        assert [number for sender, number in caller.answers if sender == answerer.name] == list(range(200))
    assert [report["answers"] for report in reports] == list(range(1, 601))
    assert listeners == {threading.current_thread().name}
    assert len(runtime.transcript) == 1200
    times = [report["time"] for report in reports]
    assert times == sorted(times)
    assert reports[-1]["bytes"] == runtime.transcript.total_bytes == 1200 * 8
    assert not [thread for thread in threading.enumerate() if thread.name in ("server", *names)]


def test_tasks_of_one_role_overlap_and_may_be_followed_by_others() -> None:
    """Each task waits for a second one: with one thread, or under a lock, the barrier would break."""
    caller, worker = Caller(("a",), 6), Worker("a", companions=2)
    Threads([caller, worker], workers=2).run()
    assert sorted(caller.answers) == [("a", number) for number in range(6)]
    assert worker.begun == list(range(6))


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_ends_the_run_and_names_the_role(workers: int) -> None:
    roles = [Caller(("a", "b"), 50), Answerer("a"), Failing("b", DivergenceError("steps are too long"))]
    with pytest.raises(DivergenceError, match=r"^b: steps are too long"):
        Threads(roles, workers=workers).run()
    with pytest.raises(ZeroDivisionError) as caught:
        Threads([Caller(("b",), 9), Failing("b", ZeroDivisionError())], workers=workers).run()
    assert caught.value.__notes__ == ["raised in a thread of b"]
    assert not [thread for thread in threading.enumerate() if thread.name in ("server", "a", "b")]


def test_an_error_of_the_listener_is_the_callers() -> None:
    def listen(report: Report) -> None:
        raise KeyError("not today")

    with pytest.raises(KeyError, match="not today"):
        Threads([Caller(("a",), 50), Answerer("a")], on_report=listen).run()


def test_a_stall_is_found() -> None:
    silent = Answerer("a")
    silent.handle = lambda message: ()  # type: ignore[method-assign]
    with pytest.raises(ProtocolError, match="the run stalled: no message is in flight, but server wait"):
        Threads([Caller(("a",), 5), silent]).run()
    with pytest.raises(ProtocolError, match="stalled"):
        Threads([Caller((), 1)]).run()


def test_a_message_in_anothers_name_or_to_a_stranger_is_refused() -> None:
    for wrong in (note("c", "server", 1), note("a", "nobody", 1)):
        forger = Answerer("a")
        forger.handle = lambda message, wrong=wrong: [wrong]  # type: ignore[method-assign, misc]
        with pytest.raises(ProtocolError, match="a tried to send 'note'"):
            Threads([Caller(("a",), 5), forger]).run()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": 0}, "at least one thread"),
        ({"slowdown": {"nobody": 2.0}}, "for a role of the run"),
        ({"slowdown": {"a": 0.5}}, "must be 1 or more"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Threads([Caller(("a",), 1), Answerer("a")], **settings)
    with pytest.raises(ProtocolError, match="same name"):
        Threads([Answerer("a"), Answerer("a")])


@pytest.mark.parametrize("name", NAMES)
def test_roles_of_every_solver_end_as_they_should(name: str) -> None:
    """The contract, on threads; `tests/engines` has it on the engines."""
    make = case_of(name).make
    # Each made on its own: those that are made together may share a batch, in one thread.
    roles = {one: make()[one] for one in make()}
    threads = Threads(list(roles.values()))
    threads.run()
    sent = [entry[1:5] for entry in threads.transcript]
    assert_ended_as_it_should(name, {one: role.snapshot() for one, role in roles.items()}, sent)


# -- VFB²

PROBLEM = small(seed=2, rows=90)
BLOCKS = [[0], [1, 3], [2]]
MU = 0.1


def job(solver: str, **changes: Any) -> Job:
    settings = {"alpha": MU, "tol": 1e-8, "max_rounds": 600, "options": {"batch_size": 8}}
    return Job(solver=solver, **{**settings, **changes})


@pytest.mark.parametrize("solver", ["vfb2-svrg", "vfb2-saga"])
@pytest.mark.parametrize(("workers", "slowdown"), [(1, {}), (3, {"p1": 1.6, "p2": 2.0})])
def test_vfb2_in_threads_ends_at_the_optimum_stragglers_or_not(
    solver: str, workers: int, slowdown: dict[str, float]
) -> None:
    server, parties = Holdings.of(job(solver), deal(PROBLEM, BLOCKS, (0, 2)), PROBLEM.labels).roles()
    Threads([server, *parties], workers=workers, slowdown=slowdown).run()
    assert server.certificate is not None
    assert server.certificate.converged
    found = np.zeros(5)
    for party, block in zip(parties, BLOCKS, strict=True):
        found[block] = party.model.weights[: len(block)]
    found[-1] = parties[0].model.weights[-1]
    np.testing.assert_allclose(found, Reference(PROBLEM, [], MU).optimum()[0], atol=1e-6)


def test_a_threaded_run_is_recorded_but_not_resumed(tmp_path: Path) -> None:
    parties = deal(PROBLEM, BLOCKS, (0,))

    def train(folder: RunFolder, runtime: str, **named: Any) -> Any:
        return train_vertical(
            job("vfb2-svrg", max_rounds=5, tol=0.0),
            *(parties, PROBLEM.labels, PROBLEM.sensitive),
            **{"runtime": runtime, "folder": folder, "checkpoint_seconds": 0.0, **named},
        )

    folder = RunFolder.create(tmp_path / "threads", {})
    run = train(folder, "threads")
    assert [row["round"] for row in folder.read_lines("metrics.jsonl")] == [0, 1, 2, 3, 4, 5]
    assert len(folder.read_lines("transcript.jsonl")) == len(run.transcript)
    assert folder.last_checkpoint() is None
    assert np.isfinite(pooled_weights(run, BLOCKS)).all()

    def stop(report: Report) -> None:
        if report["round"] == 3:
            raise KeyboardInterrupt

    begun = RunFolder.create(tmp_path / "messages", {})
    with pytest.raises(KeyboardInterrupt):
        train(begun, "messages", on_round=stop)
    with pytest.raises(RunError, match="cannot resume"):
        train(begun, "threads")


@pytest.mark.parametrize("solver", ["fairvfl", "fedbcd"])
def test_with_exact_pace_threads_change_no_bit_of_fairvfl(solver: str) -> None:
    """The server sums everybody's last scores, in their order, once all have answered, whoever was faster."""
    problem = small(seed=4, rows=60)
    constraints = (EqualOpportunity(0.02),) if solver == "fairvfl" else ()
    job = Job(solver, constraints, max_rounds=20, options={"local_steps": 3})
    parties = deal(problem, [[0, 1], [2], [3]], (0, 2))
    runs = [
        train_vertical(job, parties, problem.labels, problem.sensitive, runtime=runtime)
        for runtime in ("messages", "threads")
    ]
    for name, model in runs[0].models.items():
        np.testing.assert_array_equal(model.weights, runs[1].models[name].weights)


@pytest.mark.parametrize("workers", [1, 2])
def test_asynchronous_fairvfl_in_threads_works_on_while_the_server_is_silent(workers: int) -> None:
    """FairVFL Algorithm 2: an active party goes on for up to Q steps; the optimum is the same."""
    problem = small(seed=4, rows=60)
    blocks = [[0, 1], [2], [3]]
    rows = parity_rows(problem, [1], 0.02)
    weights, _ = Reference(problem, rows, 0.1).optimum()
    options = {"local_steps": 4, "pace": "until-server-speaks", "dual_step": 0.5, "damping": 0.0, "step": 0.2}
    job = Job("fairvfl", (EqualOpportunity(0.02),), alpha=0.1, max_rounds=1500, tol=1e-5, options=options)
    parties = deal(problem, blocks, (0, 2))
    run = train_vertical(job, parties, problem.labels, problem.sensitive, runtime="threads", workers=workers)
    np.testing.assert_allclose(pooled_weights(run, blocks), weights, atol=5e-3)
    sent = run.transcript.frame().query("kind == 'scores'").groupby("sender")["messages"].sum()
    assert sent["p0"] > sent["p1"], "only active parties work on"
