"""Links: each message once and in order over a network that does anything to packets, or word that nobody is there."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.faults import Cut, Faults, FaultyInProcess

from evenhand.errors import InputError, ProtocolError, RunError
from evenhand.protocol.disclosure import PARTICIPANT_TO_SERVER
from evenhand.protocol.messages import TEXT, Message, Schema, Vocabulary
from evenhand.protocol.roles import Role, Sends
from evenhand.runtime.inprocess import VirtualClock
from evenhand.runtime.links import LinkEnd, LinkSettings, Packet
from evenhand.runtime.packets import checksum, packet_bytes, packet_from

QUICK = LinkSettings(window=4, retry=1.0, longest_retry=8.0, ping=10.0, patience=5000.0, slowest=float("inf"))
NOTE = Schema("note", {"text": TEXT}, direction=PARTICIPANT_TO_SERVER, reveals="Nothing.")


def note(number: int) -> Message:
    return Message("a", "b", "note", {"number": np.array(number)})


def numbers(messages: list[Message]) -> list[int]:
    return [message.integer("number") for message in messages]


class Wire:
    """Two ends and a bad network between them."""

    def __init__(self, seed: int, loss: float, delay: float, link: LinkSettings = QUICK) -> None:
        self.random = random.Random(seed)
        self.loss, self.delay = loss, delay
        self.ends = {"a": LinkEnd("b", link, 0.0), "b": LinkEnd("a", link, 0.0)}
        self.under_way: list[tuple[float, int, str, Packet]] = []
        self.got: dict[str, list[Message]] = {"a": [], "b": []}
        self.most_under_way = 0
        self.sent = 0

    def step(self, now: float, takes: bool = True) -> None:
        for name, end in self.ends.items():
            for packet in end.due(now):
                for _ in range(self.random.choice([1, 1, 2])):
                    if self.random.random() >= self.loss:
                        self.sent += 1
                        arrival = now + self.random.random() * self.delay
                        heapq.heappush(self.under_way, (arrival, self.sent, "ab"[name == "a"], packet))
        while self.under_way and self.under_way[0][0] <= now:
            _, _, to, packet = heapq.heappop(self.under_way)
            ready = self.ends[to].arrive(now, packet)
            self.got[to] += ready
            for _ in ready if takes else ():
                self.ends[to].take()

    def run(self, until: float, takes: bool = True) -> None:
        now = 0.0
        while now < until and not all(end.delivered for end in self.ends.values()):
            now += 0.25
            self.step(now, takes)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.floats(0, 0.7), st.floats(0, 6), st.integers(0, 40), st.integers(0, 40))
def test_every_message_arrives_once_and_in_order_both_ways(
    seed: int, loss: float, delay: float, forth: int, back: int
) -> None:
    wire = Wire(seed, loss, delay)
    for number in range(forth):
        wire.ends["a"].post(note(number))
    for number in range(back):
        wire.ends["b"].post(note(number))
    wire.run(until=4000.0)
    assert numbers(wire.got["b"]) == list(range(forth))
    assert numbers(wire.got["a"]) == list(range(back))


def test_who_takes_nothing_is_sent_no_more_than_the_window() -> None:
    wire = Wire(0, loss=0.0, delay=0.1)
    for number in range(20):
        wire.ends["a"].post(note(number))
    wire.run(until=50.0, takes=False)
    assert numbers(wire.got["b"]) == [0, 1, 2, 3]
    assert wire.ends["a"].holds_up
    for _ in range(4):
        wire.ends["b"].take()
    for now in range(51, 56):
        wire.step(float(now), takes=False)
    assert numbers(wire.got["b"]) == list(range(8))


def test_what_waited_for_room_is_due_as_soon_as_there_is_some() -> None:
    end = LinkEnd("b", QUICK, 0.0)
    for number in range(5):
        end.post(note(number))
    assert end.wakes_at() < 0.0
    assert [packet.number for packet in end.due(0.0)] == [0, 1, 2, 3]
    assert end.wakes_at() == QUICK.retry
    end.arrive(0.5, Packet(1, 5))
    assert end.wakes_at() < 0.5
    assert [packet.number for packet in end.due(0.5)] == [4]


def test_a_message_beyond_the_window_is_refused() -> None:
    end = LinkEnd("b", QUICK, 0.0)
    with pytest.raises(ProtocolError, match="only messages below 4 are allowed"):
        end.arrive(0.0, Packet(0, 4, 4, note(4)))
    assert numbers(end.arrive(0.0, Packet(0, 4, 0, note(0)))) == [0]


def test_an_acknowledgement_of_what_was_never_sent_is_refused_and_changes_nothing() -> None:
    end = LinkEnd("b", QUICK, 0.0)
    end.post(note(0))
    with pytest.raises(ProtocolError, match="b acknowledges 2 messages, but was sent 1"):
        end.arrive(0.0, Packet(2, 9, 0, note(7)))
    assert end.incoming.have == 0
    assert not end.delivered


def test_a_copy_is_dropped_and_acknowledged_again() -> None:
    end = LinkEnd("b", QUICK, 0.0)
    assert numbers(end.arrive(0.0, Packet(0, 4, 0, note(0)))) == [0]
    assert end.due(0.0) == [Packet(1, 4)]
    assert end.due(0.0) == []
    assert end.arrive(0.1, Packet(0, 4, 0, note(0))) == []
    assert end.due(0.1) == [Packet(1, 4)]


def test_what_is_not_acknowledged_is_sent_again_at_growing_intervals() -> None:
    end = LinkEnd("b", QUICK, 0.0)
    end.post(note(0))
    sent = [now for now in range(40) if any(packet.message is not None for packet in end.due(float(now)))]
    assert sent == [0, 1, 3, 7, 15, 23, 31, 39]


def large(number: int, nbytes: int = 80_000_000) -> Message:
    """A message of so many bytes, which take no memory."""
    return Message("a", "b", "note", {"number": np.array(number), "numbers": np.broadcast_to(0.0, (nbytes // 8,))})


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("bandwidth", [1.01e6, 1e7])
def test_large_messages_on_a_slow_line_are_sent_once(bandwidth: float, count: int) -> None:
    """Packets follow each other, each as long under way as its bytes take."""
    link = LinkSettings(patience=5000.0)
    ends = {"a": LinkEnd("b", link, 0.0), "b": LinkEnd("a", link, 0.0)}
    under_way: list[tuple[float, int, str, Packet]] = []
    free, sent, got, now = {"a": 0.0, "b": 0.0}, 0, [], 0.0
    for number in range(count):
        ends["a"].post(large(number))
    while not all(end.delivered for end in ends.values()):
        for name, end in ends.items():
            for packet in end.due(now):
                nbytes = 0 if packet.message is None else packet.message.nbytes
                free[name] = max(free[name], now) + nbytes / bandwidth
                heapq.heappush(under_way, (free[name] + 0.05, len(under_way), "ab"[name == "a"], packet))
                sent += packet.message is not None
        now = min([*(end.wakes_at() for end in ends.values()), *(one[0] for one in under_way)])
        while under_way and under_way[0][0] <= now:
            _, _, to, packet = heapq.heappop(under_way)
            got += ends[to].arrive(now, packet)
    assert numbers(got) == list(range(count))
    assert sent == count


def test_a_large_message_that_was_lost_is_sent_again_once_a_slow_line_would_have_carried_it() -> None:
    end = LinkEnd("b", LinkSettings(retry=1.0, longest_retry=8.0, patience=5000.0, slowest=1e6), 0.0)
    end.post(large(0, 10_000_000))
    sent = [now for now in range(40) if any(packet.message is not None for packet in end.due(float(now)))]
    # Ten seconds and one; then as long for either copy, and two.
    assert sent == [0, 12, 35]


def test_what_is_acknowledged_is_waited_for_no_more() -> None:
    end = LinkEnd("b", LinkSettings(retry=1.0, longest_retry=8.0, patience=5000.0, slowest=1e6), 0.0)
    end.post(large(0))
    end.post(note(1))
    assert len(end.due(0.0)) == 2
    end.arrive(50.0, Packet(1, 256))
    assert 51.0 < end.outgoing.retries_at < 51.1


def test_who_hears_nothing_asks_and_at_last_gives_up() -> None:
    end = LinkEnd("bank", LinkSettings(retry=1.0, ping=5.0, patience=20.0), 0.0)
    asked = [now for now in range(21) if any(packet.asks for packet in end.due(float(now)))]
    assert asked == [5, 10, 15, 20]
    with pytest.raises(RunError, match="bank has not been heard from for 21 seconds"):
        end.due(21.0)


def test_who_is_asked_answers() -> None:
    end = LinkEnd("b", QUICK, 0.0)
    assert end.arrive(1.0, Packet(0, 4, asks=True)) == []
    assert end.due(1.0) == [Packet(0, 4)]


@pytest.mark.parametrize(
    "wrong",
    [{"window": 0}, {"retry": 0.0}, {"retry": 60.0}, {"ping": 0.0}, {"ping": 300.0}, {"slowest": 0.0}],
    ids=str,
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="links: "):
        LinkSettings(**wrong)  # type: ignore[arg-type]


# -- packets as bytes


@pytest.mark.parametrize("packet", [Packet(3, 9), Packet(0, 256, asks=True), Packet(5, 8, 7, note(7))])
def test_a_packet_comes_back_as_it_was(packet: Packet) -> None:
    again = packet_from(packet_bytes(packet))
    assert again[:3] == packet[:3]
    assert again.asks == packet.asks
    assert (again.message is None) == (packet.message is None)


ROW = 8 * 509
"""Bytes after which large contents begin a new row of the table that they are summed up in."""


@pytest.mark.parametrize("size", [ROW - 1, ROW, ROW + 1, 2 * ROW - 1, 2 * ROW, 2 * ROW + 7, 5 * ROW + 3])
def test_the_sum_tells_any_flipped_bit_and_any_cut_around_the_size_from_which_words_are_summed_up(size: int) -> None:
    content = np.random.default_rng(size).integers(256, size=size, dtype=np.uint8)
    right = checksum(content.data)
    # Every bit of some words in each part: the first, the last, those at the borders of rows, and what is left over.
    places = {place for row in range(0, size, ROW) for place in (*range(row, row + 17), *range(row - 17, row))}
    places |= set(range(size - 17, size))
    for place in sorted(place for place in places if 0 <= place < size):
        for bit in range(8):
            content[place] ^= 1 << bit
            assert checksum(content.data) != right
            content[place] ^= 1 << bit
    assert checksum(content.data) == right
    assert all(checksum(content.data[:shorter]) != right for shorter in range(size - 9, size))
    assert checksum(np.append(content, np.uint8(0)).data) != right


@pytest.mark.parametrize("rows", [2, 3, 8])
def test_the_sum_tells_rows_that_changed_places_and_what_happened_to_every_word(rows: int) -> None:
    table = np.random.default_rng(rows).normal(size=(rows, ROW // 8))
    right = checksum(table.tobytes())
    reordered = [np.roll(table, 1, axis=0), table[::-1], np.roll(table, 1, axis=1), table[:, ::-1], np.roll(table, 1)]
    for changed in (*reordered, -table, np.zeros_like(table), np.repeat(table[:1], rows, axis=0)):
        assert checksum(np.ascontiguousarray(changed).tobytes()) != right
    for place in range(1, ROW // 8):
        # Two signs of a column, which a sum by column alone does not tell.
        table[[0, -1], place] *= -1
        assert checksum(table.tobytes()) != right
        table[[0, -1], place] *= -1


@given(seed=st.integers(0, 2**32))
def test_a_large_packet_with_a_bit_flipped_or_words_swapped_is_refused(seed: int) -> None:
    rng = np.random.default_rng(seed)
    message = Message("a", "b", "numbers", {"numbers": rng.normal(size=int(rng.integers(500, 5000)))})
    content = packet_bytes(Packet(0, 4, 0, message))
    assert packet_from(content).message is not None
    flipped, swapped = bytearray(content), bytearray(content)
    flipped[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
    length, middle = 8 * int(rng.integers(1, 100)), len(content) // 2
    one, other = int(rng.integers(200, middle - length)), int(rng.integers(middle, len(content) - length))
    swapped[one : one + length] = content[other : other + length]
    swapped[other : other + length] = content[one : one + length]
    for damaged in (flipped, swapped):
        with pytest.raises(ProtocolError):
            packet_from(damaged)


def test_a_packet_with_any_bit_flipped_or_cut_anywhere_is_refused() -> None:
    content = packet_bytes(Packet(5, 8, 7, note(7)))
    for place in range(len(content)):
        with pytest.raises(ProtocolError):
            packet_from(content[:place])
        for bit in range(8):
            damaged = bytearray(content)
            damaged[place] ^= 1 << bit
            with pytest.raises(ProtocolError):
                packet_from(bytes(damaged))


# -- nothing hangs


class Waiting(Role):
    """Says something once, if asked to, and then waits for what never comes."""

    vocabulary = Vocabulary(NOTE)

    def __init__(self, name: str, to: str | None) -> None:
        super().__init__(name, {})
        self._to = to

    def start(self) -> Sends:
        return [] if self._to is None else [NOTE.message(self.name, self._to, text=np.zeros(1, np.uint8))]

    def handle(self, message: Message) -> Sends:
        return ()


class Bulk(Waiting):
    """Says much at once, or hears it, and is done."""

    def start(self) -> Sends:
        self.done = self._to is not None
        return [] if self._to is None else [NOTE.message(self.name, self._to, text=np.zeros(3_000_000, np.uint8))]

    def handle(self, message: Message) -> Sends:
        self.done = True
        return ()


@dataclass(frozen=True)
class Counting(VirtualClock):
    """Notes what is sent."""

    sent: list[int] = field(default_factory=list)

    def sending(self, sender: str, receiver: str, nbytes: int) -> float:
        self.sent.append(nbytes)
        return super().sending(sender, receiver, nbytes)


def test_on_the_virtual_clock_a_large_message_crosses_a_slow_line_once() -> None:
    """Three seconds are thirty times as long as a small message is waited for."""
    clock = Counting(latency=0.01, bandwidth=1e6)
    runtime = FaultyInProcess([Bulk("a", "b"), Bulk("b", None)], Faults(), clock)
    runtime.run()
    assert runtime.time > 3.0
    assert [nbytes for nbytes in clock.sent if nbytes] == [3_000_000]


def test_a_network_that_stays_cut_ends_the_run_with_a_word_on_who_is_missing() -> None:
    faults = Faults(cuts=[Cut(0.0, float("inf"), ("b",))], patience=100.0)
    with pytest.raises(RunError, match="b has not been heard from"):
        FaultyInProcess([Waiting("a", "b"), Waiting("b", None)], faults, VirtualClock(latency=0.01)).run()


def test_a_run_in_which_everybody_waits_ends_with_a_word_on_who_does() -> None:
    with pytest.raises(ProtocolError, match="the run stalled: nothing has moved, yet a, b wait"):
        FaultyInProcess([Waiting("a", "b"), Waiting("b", None)], Faults(patience=100.0)).run()
