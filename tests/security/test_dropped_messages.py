"""A relay cannot drop a message unnoticed: what both ends say of their messages has a code that only they can make."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from support.keys import fixed_sessions

from evenhand.errors import LostError, ProtocolError
from evenhand.protocol.messages import Message
from evenhand.runtime.endpoint import Endpoint
from evenhand.runtime.links import LinkSettings, Packet
from evenhand.runtime.packets import packet_bytes, packet_from

LINKS = LinkSettings(retry=1.0, longest_retry=4.0, ping=2.0, patience=20.0)
Relay = Callable[[str, Packet], Sequence[Packet]]


class Pair:
    """Two endpoints that have agreed on keys, with a relay between them and time by hand."""

    def __init__(self, relay: Relay = lambda _, packet: [packet], links: LinkSettings = LINKS) -> None:
        self.relay, self.now = relay, 0.0
        self.sites = {"a": Endpoint("a", ["b"], links, 0.0), "b": Endpoint("b", ["a"], links, 0.0)}
        self.got: list[int] = []
        sessions = fixed_sessions(["a", "b"])
        for name, site in self.sites.items():
            site.secure(sessions[name])

    def send(self, number: int, by: str = "a") -> None:
        to = "b" if by == "a" else "a"
        self.sites[by].post(self.now, [Message(by, to, "note", {"number": np.array(number)})])

    def step(self, seconds: float = 1.0) -> None:
        self.now += seconds
        for name, site in self.sites.items():
            for peer, packet in site.due(self.now):
                for one in self.relay(name, packet):
                    found = self.sites[peer].opened(name, packet_bytes(one))
                    assert found is not None
                    self.got += [
                        message.integer("number") for message in self.sites[peer].arrive(self.now, name, found)
                    ]

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.step()


def dropping(number: int, acknowledged: bool = False) -> Relay:
    """Drop one message of a for ever; acknowledge it in the name of b, if told to."""

    def relay(sender: str, packet: Packet) -> Sequence[Packet]:
        if sender == "a" and packet.number == number:
            return []
        return [packet._replace(have=number + 1)] if acknowledged and sender == "b" else [packet]

    return relay


def test_messages_arrive_once_and_in_order() -> None:
    pair = Pair()
    for number in range(5):
        pair.send(number)
        pair.step()
    pair.run(100)
    assert pair.got == list(range(5))


def test_an_acknowledgement_in_the_name_of_another_is_refused_by_the_sender() -> None:
    pair = Pair(dropping(1, acknowledged=True))
    pair.send(0)
    pair.send(1)
    with pytest.raises(ProtocolError, match=r"a: a packet in the name of b says what b has not said"):
        pair.run(10)


def test_a_message_that_is_dropped_is_missed_by_its_receiver() -> None:
    pair = Pair(dropping(1))
    for number in range(3):
        pair.send(number)
    with pytest.raises(LostError, match=r"message 1 of a has not arrived for 2. seconds, although a has sent 3"):
        pair.run(60)
    assert pair.got == [0]
    assert pair.now < 2 * LINKS.patience


def test_the_last_message_is_missed_too() -> None:
    """No later message shows the gap; the sender's pings and retries do."""
    pair = Pair(dropping(0))
    pair.send(0)
    with pytest.raises(LostError, match="message 0 of a has not arrived"):
        pair.run(60)


def test_old_packets_are_no_sign_of_life() -> None:
    """The relay drops all that is new, and repeats what came before."""
    kept: list[Packet] = []

    def relay(sender: str, packet: Packet) -> Sequence[Packet]:
        if sender == "b":
            return [packet]
        if len(kept) < 3:
            kept.append(packet)
            return [packet]
        return kept

    pair = Pair(relay)
    pair.send(0)
    pair.run(4)
    pair.send(1)
    with pytest.raises(LostError, match="a has not been heard from"):
        pair.run(100)


def test_a_sealed_message_without_its_stamp_is_refused() -> None:
    pair = Pair(lambda _, packet: [packet._replace(stamp=None)])
    pair.send(0)
    with pytest.raises(ProtocolError, match="came without its stamp"):
        pair.step()


def test_acknowledgements_without_a_stamp_count_for_nothing() -> None:
    def relay(sender: str, packet: Packet) -> Sequence[Packet]:
        if sender == "a":
            return [] if packet.number >= 0 else [packet._replace(stamp=None)]
        return [packet._replace(stamp=None, have=1)]

    pair = Pair(relay)
    pair.send(0)
    with pytest.raises(LostError):
        pair.run(100)
    assert pair.got == []


@pytest.mark.parametrize("change", ["have", "room", "asks", "sent", "serial", "code"])
def test_every_number_of_a_packet_is_covered(change: str) -> None:
    def relay(_: str, packet: Packet) -> Sequence[Packet]:
        assert packet.stamp is not None
        if change in ("sent", "serial"):
            return [packet._replace(stamp=packet.stamp._replace(**{change: getattr(packet.stamp, change) + 1}))]
        if change == "code":
            return [packet._replace(stamp=packet.stamp._replace(code=bytes(16)))]
        new = not packet.asks if change == "asks" else getattr(packet, change) + 1
        return [packet._replace(**{change: new})]

    pair = Pair(relay)
    pair.send(0)
    with pytest.raises(ProtocolError, match=r"says what . has not said"):
        pair.step()


def test_memory_that_is_full_is_not_taken_for_a_relay() -> None:
    pair = Pair(links=LinkSettings(retry=1.0, longest_retry=4.0, ping=2.0, patience=20.0, most_ahead=10))
    pair.send(0)
    pair.send(1)
    # A message has eight bytes, so the second has to wait until a role takes the first; none does.
    pair.run(200)
    assert pair.got == [0]


def test_a_stamp_survives_the_wire() -> None:
    packets: list[Packet] = []
    pair = Pair(lambda _, packet: [packets.append(packet) or packet])  # type: ignore[func-returns-value]
    pair.send(0)
    pair.step()
    for packet in packets:
        again = packet_from(packet_bytes(packet))
        assert again._replace(message=None) == packet._replace(message=None)


NEVER = LinkSettings(retry=1e12, longest_retry=1e12, ping=1e12, patience=2e12)
"""As on Flower: nothing is sent twice, and there is no clock."""


def test_a_visit_that_brought_less_than_it_was_given_is_noticed_at_the_server() -> None:
    pair = Pair(dropping(1), NEVER)
    for number in range(2):
        pair.send(number)
    pair.step()
    pair.sites["a"].check_complete("b", 0)
    with pytest.raises(ProtocolError, match="b has not confirmed message 1, which its visit was to bring"):
        pair.sites["a"].check_complete("b", 1)


def test_an_answer_that_lacks_a_message_is_noticed_at_the_server() -> None:
    pair = Pair(dropping(1), NEVER)
    for number in range(3):
        pair.send(number)
    pair.step()
    with pytest.raises(ProtocolError, match=r"a has sent 3 messages, and message 1 has not arrived"):
        pair.sites["b"].check_complete("a", -1)


def test_a_message_may_be_on_its_way_during_one_visit_and_not_two() -> None:
    pair = Pair(dropping(0), NEVER)
    pair.send(0)
    pair.send(1)
    pair.step()
    pair.sites["b"].check_visits()
    with pytest.raises(ProtocolError, match="somebody between the two has dropped it"):
        pair.sites["b"].check_visits()
