"""A peer that sends much and takes part in nothing: what a site keeps of it has a limit."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand.protocol.disclosure import SERVER_TO_PARTIES
from evenhand.protocol.messages import Field, Message, Schema, Vocabulary
from evenhand.protocol.roles import Role, Sends
from evenhand.runtime.endpoint import Endpoint
from evenhand.runtime.links import LinkSettings, Packet
from evenhand.runtime.packets import packet_bytes

MEGABYTE = 2**20
LINKS = LinkSettings(linger=0.25, most_ahead=8 * MEGABYTE)
KNOWN = Schema("known", {"x": Field("f8", (None,))}, "Nothing.", SERVER_TO_PARTIES)


class Listener(Role):
    vocabulary = Vocabulary(KNOWN)

    def __init__(self) -> None:
        super().__init__("shop", {})
        self.heard = 0

    def handle(self, message: Message) -> Sends:
        self.heard += 1
        return ()


def arrive(site: Endpoint, number: int, kind: str, size: int = MEGABYTE) -> None:
    message = Message("phone", "shop", kind, {"x": np.zeros(size // 8)})
    packet = site.opened("phone", packet_bytes(Packet(0, 256, number, message)))
    if packet is not None:
        site.arrive(1.0, "phone", packet)


def kept(site: Endpoint) -> int:
    early = site.ends["phone"].incoming.early.values()
    return sum(one.nbytes for one in (*site.waiting, *early))


@pytest.mark.parametrize("gap", [0, 1], ids=["in order", "after a gap"])
@pytest.mark.parametrize("before_a_role", [True, False])
def test_unknown_kinds_do_not_fill_the_memory(gap: int, before_a_role: bool) -> None:
    site = Endpoint("shop", ["server", "phone"], LINKS, 0.0)
    if not before_a_role:
        assert not site.has_mail(Listener())
    for number in range(gap, 200):
        arrive(site, number, f"nonsense {number}")
    assert kept(site) <= LINKS.most_ahead
    arrive(site, gap, "one large message", 9 * MEGABYTE)
    assert kept(site) <= LINKS.most_ahead


def test_known_kinds_wait_for_a_slow_role_within_a_limit() -> None:
    site, role = Endpoint("shop", ["server", "phone"], LINKS, 0.0), Listener()
    site.has_mail(role)
    for number in range(200):
        arrive(site, number, "known")
    assert kept(site) <= LINKS.most_ahead + 2 * MEGABYTE


def test_dropped_messages_are_taken_when_they_are_sent_again() -> None:
    """Nothing is lost: what is not acknowledged is sent again, and by then the role has taken the others."""
    site, role = Endpoint("shop", ["server", "phone"], LINKS, 0.0), Listener()
    sent = 0
    while role.heard < 40:
        for number in range(sent, 40):
            arrive(site, number, "known")
        while (message := site.take(role)) is not None:
            role.receive(message)
        assert site.ends["phone"].incoming.have > sent
        sent = site.ends["phone"].incoming.have
    assert role.heard == 40


def test_a_large_message_for_a_later_role_comes_through() -> None:
    site, role = Endpoint("shop", ["server", "phone"], LINKS, 0.0), Listener()
    arrive(site, 0, "known", 12 * MEGABYTE)
    assert kept(site) == 0
    assert not site.has_mail(role)
    arrive(site, 0, "known", 12 * MEGABYTE)
    assert site.has_mail(role)


def test_the_list_of_refusals_is_limited() -> None:
    site = Endpoint("shop", ["server", "phone"], LINKS, 0.0)
    for _ in range(1500):
        site.opened("stranger", b"")
    assert len(site.refused) == 1000
