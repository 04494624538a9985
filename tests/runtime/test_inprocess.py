"""The in-process runtime: order, virtual time by hand, local work while others are slow, stalls, determinism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.problems import small, train

from evenhand.constraints.kinds import EqualOpportunity
from evenhand.errors import InputError, ProtocolError
from evenhand.protocol.disclosure import PARTICIPANT_TO_SERVER
from evenhand.protocol.messages import Field, Message, Schema, Vocabulary
from evenhand.protocol.roles import Role, Sends
from evenhand.runtime.inprocess import InProcess, VirtualClock
from evenhand.training.vertical import VerticalRun

PING = Schema("ping", {"number": Field("i8")}, direction=PARTICIPANT_TO_SERVER, reveals="Nothing: it is a test.")
BULK = Schema(
    "bulk",
    {"number": Field("i8"), "load": Field("f8", ("load",))},
    direction=PARTICIPANT_TO_SERVER,
    reveals="Nothing: it is a test.",
)


class Toy(Role):
    """Sends `first` at the start; answers each of the next `answers` messages; notes what it got and when it worked."""

    vocabulary = Vocabulary(PING, BULK)

    def __init__(
        self, name: str, peer: str, *, first: Sends = (), answers: int = 0, effort: float = 0.0, work: int = 0
    ) -> None:
        super().__init__(name, {"load": 9})
        self.peer, self.first, self.answers, self.cost, self.left = peer, first, answers, effort, work
        self.got: list[tuple[str, int]] = []
        self.done = True

    def start(self) -> Sends:
        self.effort += self.cost * bool(self.first)
        return self.first

    def handle(self, message: Message) -> Sends:
        self.got.append((message.sender, message.integer("number")))
        self.effort += self.cost
        if self.answers == 0:
            return ()
        self.answers -= 1
        self.reports.append({"answers": self.answers})
        return [PING.message(self.name, message.sender, number=message.integer("number") + 1)]

    def work(self) -> Sends:
        if self.left == 0:
            return ()
        self.left -= 1
        self.effort += self.cost
        self.got.append(("work", self.left))
        return ()


def _ping(sender: str, receiver: str, number: int = 0) -> Message:
    return PING.message(sender, receiver, number=number)


def _bulk(sender: str, receiver: str, number: int = 0) -> Message:
    return BULK.message(sender, receiver, number=number, load=np.zeros(9))


def _times(runtime: InProcess) -> list[tuple[str, str, float]]:
    return [(entry.sender, entry.receiver, pytest.approx(entry.time)) for entry in runtime.transcript]


def test_virtual_time_is_effort_over_speed_plus_latency_plus_bytes_over_bandwidth() -> None:
    """a computes 20/10 = 2 s, its 8 bytes travel 1 + 8/16 = 1.5 s, b computes 20/40 = 0.5 s, and so on."""
    clock = VirtualClock(speed=10, latency=1.0, bandwidth=16, speeds={"b": 40})
    a = Toy("a", "b", first=[_ping("a", "b")], answers=1, effort=20)
    reports = []
    runtime = InProcess([a, Toy("b", "a", answers=2, effort=20)], clock, on_report=reports.append)
    runtime.run()
    assert _times(runtime) == [("a", "b", 2.0), ("b", "a", 4.0), ("a", "b", 7.5), ("b", "a", 9.5)]
    assert [report["time"] for report in reports] == pytest.approx([4.0, 7.5, 9.5])
    assert [report["bytes"] for report in reports] == [8, 16, 24]
    assert runtime.time == pytest.approx(9.5 + 1.5 + 2.0)


def test_a_latency_of_either_end_counts_and_the_longer_wins() -> None:
    clock = VirtualClock(latency=1.0, latencies={"slow": 5.0, "slower": 7.0})
    assert clock.sending("a", "b", 100) == 1.0
    assert clock.sending("slow", "b", 100) == clock.sending("b", "slow", 100) == 5.0
    assert clock.sending("slow", "slower", 100) == 7.0


def test_a_busy_role_takes_what_arrived_meanwhile_in_order() -> None:
    b = Toy("b", "", answers=9, effort=10)
    roles = [
        Toy("first", "b", first=[_ping("first", "b", 1)]),
        Toy("second", "b", first=[_ping("second", "b", 2)]),
        b,
        Toy("late", "b", first=[_ping("late", "b", 3)]),
    ]
    runtime = InProcess(roles, VirtualClock(speed=10, latency=1.0, latencies={"late": 1.5}))
    runtime.run()
    assert b.got == [("first", 1), ("second", 2), ("late", 3)]
    assert [time for sender, _, time in _times(runtime) if sender == "b"] == [2.0, 3.0, 4.0]


def test_a_small_message_does_not_overtake_a_large_one_on_its_link() -> None:
    b = Toy("b", "a")
    runtime = InProcess([Toy("a", "b", first=[_bulk("a", "b", 1), _ping("a", "b", 2)]), b], VirtualClock(bandwidth=8))
    runtime.run()
    assert b.got == [("a", 1), ("a", 2)]
    assert runtime.time == pytest.approx(10.0)


@given(
    sizes=st.lists(st.booleans(), min_size=1, max_size=8),
    latency=st.floats(0, 3),
    bandwidth=st.floats(1, 100) | st.just(float("inf")),
)
def test_messages_keep_their_order_on_a_link(sizes: list[bool], latency: float, bandwidth: float) -> None:
    sends = [(_bulk if large else _ping)("a", "b", number) for number, large in enumerate(sizes)]
    b = Toy("b", "a", effort=3)
    InProcess([Toy("a", "b", first=sends), b], VirtualClock(speed=1, latency=latency, bandwidth=bandwidth)).run()
    assert b.got == [("a", number) for number in range(len(sizes))]


def test_a_role_works_while_its_inbox_is_empty_and_turns_to_messages_first() -> None:
    """Work takes 1 s a piece; messages arrive at 0 (nothing before), and at 2 exactly, when a piece has just ended."""
    b = Toy("b", "a", effort=1, work=4)
    a = Toy("a", "b", first=[_ping("a", "b", 7)])
    InProcess([a, b], VirtualClock(speed=1, latency=2.0)).run()
    assert b.got == [("work", 3), ("work", 2), ("a", 7), ("work", 1), ("work", 0)]


def test_a_stalled_run_names_who_waits() -> None:
    waiting = Toy("b", "a")
    waiting.done = False
    with pytest.raises(ProtocolError, match=r"stalled.* b wait"):
        InProcess([Toy("a", "b", first=[_ping("a", "b")]), waiting]).run()


def test_two_roles_of_one_name_are_refused() -> None:
    with pytest.raises(ProtocolError, match="same name"):
        InProcess([Toy("a", "b"), Toy("a", "b")])


@pytest.mark.parametrize("message", [_ping("b", "a"), _ping("a", "nobody")])
def test_nobody_sends_in_anothers_name_or_to_a_stranger(message: Message) -> None:
    with pytest.raises(ProtocolError, match="a tried to send 'ping'"):
        InProcess([Toy("a", "b", first=[message]), Toy("b", "a")]).run()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"speed": 0}, "speed is 0"),
        ({"bandwidth": -1}, "bandwidth is -1"),
        ({"speeds": {"p1": 0}}, "p1 is 0"),
        ({"latency": -1}, "latency latency is -1"),
        ({"latencies": {"p1": float("nan")}}, "p1 is nan"),
        ({"speed": float("nan")}, "speed is nan"),
    ],
)
def test_impossible_clocks_are_refused(settings: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        VirtualClock(**settings)  # type: ignore[arg-type]


# -- the roles of vertical training on the clock

BLOCKS = [[0, 1], [2], [3]]


def _run(clock: VirtualClock, *, active: Sequence[int] = (0,), rounds: int = 12, **options: object) -> VerticalRun:
    runtime = {"clock": clock, "keep_messages": True}
    given = {"step": 0.3, "pace": "until-server-speaks", **options}
    return train(small(), EqualOpportunity(0.02), BLOCKS, active, runtime=runtime, options=given, max_rounds=rounds)


def test_the_time_of_every_round_is_the_hand_computed_schedule() -> None:
    """Server 20 multiplications a row; a pass is rows × columns; an active party spends 10 a row on ν."""
    speeds = {"server": 3e4, "p0": 2e4, "p1": 1e3, "p2": 5e3}
    clock = VirtualClock(latency=0.02, bandwidth=1e5, speeds=speeds, latencies={"p2": 0.5})
    history = _run(clock, pace="exact", local_steps=2, rounds=5).history
    n, columns = 60, {"p0": 2, "p1": 1, "p2": 1}
    latency = {"p0": 0.02, "p1": 0.02, "p2": 0.5}
    up = {party: latency[party] + (8 * n + 32) / 1e5 for party in columns}
    down = {"p0": 0.02 + (8 * n + 32 + 16) / 1e5, "p1": 0.02 + (8 * n + 24) / 1e5, "p2": 0.5 + (8 * n + 24) / 1e5}
    one_step = {party: 2 * n * columns[party] + (10 * n if party == "p0" else 0) for party in columns}
    turn = {party: one_step[party] * (2 if party == "p0" else 1) / speeds[party] for party in columns}
    arrived = max(n * columns[party] / speeds[party] + up[party] for party in columns)
    expected = []
    for _ in range(6):
        expected.append(arrived + 20 * n / speeds["server"])
        arrived = expected[-1] + max(down[party] + turn[party] + up[party] for party in columns)
    np.testing.assert_allclose(history["time"], expected, rtol=1e-12)


def _local_steps(run: VerticalRun, party: str) -> list[int]:
    """How many local steps a party made in each round after the start, by its messages."""
    assert run.transcript.messages is not None
    sent = [m for m in run.transcript.messages if m.kind == "scores" and m.sender == party]
    counts = Counter(m.integer("round") for m in sent if m.integer("round") > 0)
    return [counts[number] for number in range(1, 1 + run.certificate.rounds)]


@given(speed=st.floats(1e6, 1e10), latency=st.floats(0, 1e-5), steps=st.integers(1, 6))
def test_an_active_party_steps_at_least_once_and_at_most_q_times_a_round(
    speed: float, latency: float, steps: int
) -> None:
    """Assumption 1, whatever the speeds; a passive party steps once."""
    run = _run(VirtualClock(latency=latency, speeds={"p1": speed}), active=(0, 2), rounds=6, local_steps=steps)
    for party in ("p0", "p2"):
        assert all(1 <= count <= steps for count in _local_steps(run, party))
    assert _local_steps(run, "p1") == [1] * 6


def test_the_slower_the_others_the_more_local_steps_up_to_q() -> None:
    counts = {
        slow: _local_steps(_run(VirtualClock(speed=1e9, speeds={"p1": 1e9 / slow}), local_steps=7), "p0")
        for slow in (1, 20, 10_000)
    }
    assert sum(counts[1]) < sum(counts[20]) < sum(counts[10_000])
    assert counts[10_000] == [7] * 12


def test_exact_pace_sends_once_a_round_however_slow_the_others() -> None:
    run = _run(VirtualClock(speeds={"p1": 1e3}), pace="exact", local_steps=7)
    assert _local_steps(run, "p0") == [1] * 12


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_two_runs_are_the_same_run(model: str) -> None:
    clock = VirtualClock(latency=1e-6, bandwidth=1e9, speeds={"p0": 2e9, "p1": 3e7, "p2": 1e8})
    options = {"step": 0.1, "pace": "until-server-speaks", "local_steps": 5}
    first, second = (
        train(
            small(),
            EqualOpportunity(0.02),
            BLOCKS,
            (0, 2),
            runtime={"clock": clock, "keep_messages": True},
            options=options,
            max_rounds=8,
            model=model,
            hidden=(4, 3),
            seed=3,
        )
        for _ in range(2)
    )
    assert first.transcript.entries == second.transcript.entries
    assert first.transcript.messages
    assert second.transcript.messages
    for one, other in zip(first.transcript.messages, second.transcript.messages, strict=True):
        assert {name: array.tobytes() for name, array in one.body.items()} == {
            name: array.tobytes() for name, array in other.body.items()
        }
    assert first.certificate == second.certificate
    for name, party in first.models.items():
        assert party.weights.tobytes() == second.models[name].weights.tobytes()


def test_the_transcript_sums_up_by_link() -> None:
    run = _run(VirtualClock(), pace="exact", rounds=3)
    table = run.transcript.by_link()
    assert table["nbytes"].sum() == run.transcript.total_bytes
    assert table["messages"].sum() == len(run.transcript)
    assert set(table.index) == {pair for party in ("p0", "p1", "p2") for pair in ((party, "server"), ("server", party))}
